"""Several types of records in one topic: the union of their schemas, and which records a column has."""

from __future__ import annotations

import json

import pytest

from kafka_source.values.record_types import other_record, union_of
from tests.support.avro import record

LINE = record("shop.Line", {"name": "item", "type": "string"})


def test_a_union_has_each_type_once():
    order = record("shop.Order", {"name": "lines", "type": {"type": "array", "items": LINE}})
    sent = {
        **record("Sent", {"name": "line", "type": LINE}, {"name": "order", "type": ["null", "string"]}),
        "namespace": "a",
    }
    schemas = {"orders": json.dumps(order), "sent": json.dumps(sent)}
    first, second = json.loads(union_of(schemas))
    assert first["fields"][0]["type"]["items"] == LINE
    assert [field["type"] for field in second["fields"]] == ["shop.Line", ["null", "string"]]
    # Whichever comes first defines what they share.
    second, first = json.loads(union_of(dict(reversed(schemas.items()))))
    assert (first["fields"][0]["type"]["items"], second["fields"][0]["type"]) == ("shop.Line", LINE)


@pytest.mark.parametrize(
    ("schema", "why"), [('"long"', "sent is no record"), (json.dumps(LINE), r"sent is a record shop\.Line, as")]
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
