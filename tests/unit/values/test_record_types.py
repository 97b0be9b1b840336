"""Several types of records in one topic: the union of their schemas, and which records a column has."""

import json

import pyarrow as pa
import pytest

from kafka_source.values.record_types import other_record, union_of
from tests.support.avro import record
from tests.support.native import kernel

LINE = record("shop.Line", {"name": "item", "type": "string"})


def test_each_record_of_a_union_has_its_own_types():
    """Two subjects may define a nested type of one name differently."""
    street, iban = {"name": "street", "type": "string"}, {"name": "iban", "type": "string"}
    order = record("shop.Order", {"name": "ship", "type": record("Address", street)})
    refund = record("shop.Refund", {"name": "to", "type": record("Address", street, iban)})
    text = union_of({"orders": json.dumps(order), "refunds": json.dumps(refund)})
    decoder = kernel().AvroDecoder(text, framing="none")
    decoder.add_writer_schema(0, json.dumps(refund))
    decoded = decoder.decode(pa.array([b"\2s\6DE1"], pa.binary()))
    refunded = {"to": {"street": "s", "iban": "DE1"}}
    assert pa.array(decoded).to_pylist() == [{"member0": None, "member1": refunded}]


@pytest.mark.parametrize(
    ("schema", "why"),
    [('"long"', "sent is no record"), (json.dumps(LINE), r"sent and of another .* record shop\.Line")],
)
def test_what_is_no_union_of_records_is_refused(schema, why):
    with pytest.raises(ValueError, match=why):
        union_of({"lines": json.dumps(LINE), "sent": schema})


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        (LINE, LINE, None),
        # Namespaces are not compared, and the reader may know another name.
        (record("old.Line"), LINE, None),
        (record("shop.Row"), {**LINE, "aliases": ["Row"]}, None),
        (record("shop.Row"), LINE, "the record is a Row, and the column Line"),
        (record("Row"), [LINE, record("Note")], "the record is a Row, and the column Line or Note"),
        (record("Note"), ["null", LINE, record("Note")], None),
        ({"type": record("Row")}, {"type": LINE}, "the record is a Row, and the column Line"),
        # A union decides record by record, and other types have no names.
        ([record("Row"), LINE], LINE, None),
        ("string", LINE, None),
        (record("Row"), "string", None),
    ],
    ids=str,
)
def test_a_record_of_another_name_is_no_record_of_the_column(writer, reader, why):
    assert other_record(json.dumps(writer), json.dumps(reader)) == why


@pytest.mark.parametrize("text", ["no JSON", "[" * 100_000])
def test_who_reads_the_schema_says_that_it_is_none(text):
    assert other_record(text, json.dumps(LINE)) is None
