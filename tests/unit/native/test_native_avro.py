"""Avro values are decoded by their own writer schemas into a column of the reader schema."""

import copy
import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.support.avro import datum, framed
from tests.support.native import kernel

native = kernel()

READER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "country", "type": "string", "default": "DE"},
    ],
}
OLD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "id", "type": "int"},
    ],
}


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def decoder_of(reader: Any, writers: dict[int, Any], **options: Any) -> Any:
    decoder = native.AvroDecoder(json.dumps(reader), **options)
    for schema_id, writer in writers.items():
        decoder.add_writer_schema(schema_id, json.dumps(writer))
    return decoder


def decode(decoder: Any, values: pa.Array) -> tuple[list[Any], list[Any]]:
    decoded = decoder.decode(values)
    array = pa.array(decoded)
    array.validate(full=True)
    assert len(array) == len(values)
    return array.to_pylist(), decoded.bad


NEW_ROW = {"id": 2**40, "customer": "Ada", "note": "ring twice", "country": "FR"}
OLD_ROW = {"id": 7, "customer": "Bo", "note": None, "country": "DE"}


def test_ids_tombstones_and_bad_records_keep_their_order() -> None:
    new = framed(1, READER, NEW_ROW)
    old = framed(2, OLD, {"customer": "Bo", "weight": 1.5, "id": 7})
    values = column(new, old, None, new[:-1], old, b"", b"\x01" + new[1:], new, framed(9, OLD, {**OLD_ROW, "weight": None}))
    decoder = decoder_of(READER, {1: READER, 2: OLD})
    assert decoder.missing_ids(values) == ([9], 9)
    rows, bad = decode(decoder, values)
    assert rows == [NEW_ROW, OLD_ROW, None, None, OLD_ROW, None, None, NEW_ROW, None]
    assert [(row, schema_id) for row, schema_id, _ in bad] == [(3, 1), (5, None), (6, None), (8, 9)]
    assert bad[0][2].startswith("field country: ")
    assert not any("Ada" in message for _, _, message in bad)


def test_a_slice_and_large_offsets_are_read() -> None:
    values = column(None, framed(1, READER, NEW_ROW), framed(1, READER, OLD_ROW))
    decoder = decoder_of(READER, {1: READER})
    assert decode(decoder, values[1:])[0] == [NEW_ROW, OLD_ROW]
    assert decode(decoder, values.cast(pa.large_binary())[2:])[0] == [OLD_ROW]
    assert decode(decoder, values[:0])[0] == []
    with pytest.raises(ValueError, match="binary"):
        decoder.decode(pa.array([1]))


def test_only_the_fields_asked_for_are_decoded() -> None:
    values = column(framed(1, READER, NEW_ROW), framed(2, OLD, {"customer": "Bo", "weight": None, "id": 7}))
    decoder = decoder_of(READER, {1: READER, 2: OLD}, wanted=pa.struct([("note", pa.null()), ("id", pa.null())]))
    rows, bad = decode(decoder, values)
    assert (rows, bad) == ([{"note": "ring twice", "id": 2**40}, {"note": None, "id": 7}], [])
    assert [field.name for field in pa.field(decoder).type] == ["note", "id"]
    with pytest.raises(ValueError, match="no field price"):
        native.AvroDecoder(json.dumps(READER), wanted=pa.struct([("price", pa.null())]))


def test_a_writer_schema_that_cannot_be_resolved_is_refused_with_the_path() -> None:
    decoder = native.AvroDecoder(json.dumps(READER))
    without = {**READER, "fields": READER["fields"][1:]}
    with pytest.raises(ValueError, match="^field id: the writer schema does not have the field"):
        decoder.add_writer_schema(1, json.dumps(without))
    other = {**READER, "fields": [{"name": "id", "type": "string"}, *READER["fields"][1:]]}
    with pytest.raises(ValueError, match="^field id: string of the writer schema cannot be read as long"):
        decoder.add_writer_schema(1, json.dumps(other))


@pytest.mark.parametrize(
    ("framing", "schema_id", "head"),
    [
        ("confluent", 2**32 - 1, b"\0\xff\xff\xff\xff"),
        ("apicurio", 2**40, b"\0\0\0\1\0\0\0\0\0"),
        ("single-object", 0x0807060504030201, b"\xc3\1\1\2\3\4\5\6\7\x08"),
        ("none", 0, b""),
    ],
)
def test_framings(framing: str, schema_id: int, head: bytes) -> None:
    decoder = native.AvroDecoder('"string"', framing=framing)
    values = column(head + datum("string", "Ada"))
    assert decoder.missing_ids(values) == ([schema_id], 1)
    decoder.add_writer_schema(schema_id, '"string"')
    assert decode(decoder, values) == (["Ada"], [])
