"""Values keep their meaning where a schema has changed: compared with fastavro, and with what was written."""

import io
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import duration_pb2

from tests.support.native import kernel

native = kernel()

AT, DAY = datetime(2026, 1, 31, 12, 0, 0, 5000, timezone.utc), datetime(2026, 1, 31, tzinfo=timezone.utc)
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def of_users(kind: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": "of-users"}


def read(written: Any, wanted: Any, value: Any) -> tuple[Any, list[str]]:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), value)
    decoder = native.AvroDecoder(json.dumps(wanted), framing="none")
    decoder.add_writer_schema(0, json.dumps(written))
    done = decoder.decode(pa.array([out.getvalue()], pa.binary()))
    return pa.array(done)[0].as_py(), [why for _, _, why in done.bad]


@pytest.mark.parametrize(
    ("written", "wanted", "value", "seen"),
    [
        (MILLIS, MICROS, AT, AT),
        (MICROS, MILLIS, AT, AT),
        (["null", MICROS], ["null", MILLIS], AT, AT),
        ({"type": "int", "logicalType": "date"}, MILLIS, date(2026, 1, 31), DAY),
        (decimal(10, 2), decimal(12, 4), Decimal("19.99"), Decimal("19.9900")),
        (decimal(12, 4), decimal(10, 2), Decimal("19.9900"), Decimal("19.99")),
        (decimal(64, 2), decimal(64, 2), Decimal("12.34"), Decimal("12.34")),
        # Avro's specification: an unknown logical type is ignored.
        (of_users("long"), MILLIS, 5, datetime(1970, 1, 1, 0, 0, 0, 5000, timezone.utc)),
        (MILLIS, of_users("long"), AT, round(AT.timestamp() * 1000)),
        (of_users("int"), {"type": "int", "logicalType": "date"}, 5, date(1970, 1, 6)),
        ("int", of_users("float"), 5, 5.0),
    ],
)
def test_a_value_is_what_was_written(written: Any, wanted: Any, value: Any, seen: Any) -> None:
    assert read(written, wanted, value) == (seen, [])


def test_what_is_not_exact_or_does_not_fit_is_bad() -> None:
    for written, wanted, value in (
        (decimal(12, 4), decimal(10, 2), Decimal("19.9901")),
        (decimal(64, 2), decimal(64, 2), Decimal(10) ** 40),
    ):
        assert len(read(written, wanted, value)[1]) == 1


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("string", decimal(10, 2)), (MILLIS, {"type": "long", "logicalType": "local-timestamp-millis"})],
)
def test_another_meaning_is_refused_by_both_names(written: Any, wanted: Any) -> None:
    with pytest.raises(ValueError, match=r"of the writer schema cannot be read as .*\("):
        read(written, wanted, "1234" if written == "string" else AT)


def test_a_record_in_itself_is_its_json() -> None:
    fields = [{"name": "v", "type": "int"}, {"name": "n", "type": ["null", "N"]}]
    schema = {"type": "record", "name": "N", "fields": fields}
    value = {"v": 1, "n": {"v": 2, "n": {"v": 3, "n": None}}}
    found, bad = read(schema, schema, value)
    assert (found["v"], json.loads(found["n"]), bad) == (1, value["n"], [])


def test_a_struct_of_protobuf_is_its_json_and_an_empty_message_is_there() -> None:
    text = """syntax = "proto3"; import "google/protobuf/struct.proto";
    message M { google.protobuf.Struct s = 1; oneof what { On on = 2; Off off = 3; } } message On {} message Off {}"""
    decoder = native.ProtobufDecoder(text, framing="none")
    entry = b"\x0a\x01a\x12\x02\x20\x01"
    done = decoder.decode(pa.array([b"\x0a\x09\x0a\x07" + entry + b"\x1a\0", b"\x12\0"], pa.binary()))
    assert done.bad == []
    assert pa.array(done).to_pylist() == [
        {"s": '{"a":true}', "on": None, "off": True},
        {"s": None, "on": True, "off": None},
    ]


def of_protobuf(text: str, *values: bytes, **options: Any) -> tuple[list[Any], list[str]]:
    done = native.ProtobufDecoder(text, framing="none", **options).decode(pa.array(values, pa.binary()))
    return pa.array(done).to_pylist(), [why for _, _, why in done.bad]


def test_an_entry_of_a_closed_enum_without_a_symbol_is_not_there() -> None:
    text = 'syntax = "proto2"; message M { map<string, E> by = 1; } enum E { A = 0; B = 2; }'
    entries = [b"\x0a\x05\x0a\x01" + key + b"\x10" + number for key, number in ((b"k", b"\7"), (b"l", b"\2"))]
    assert of_protobuf(text, b"".join(entries)) == ([{"by": [("l", "B")]}], [])


def test_the_pieces_of_a_duration_keep_their_signs() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/duration.proto"; message M { google.protobuf.Duration d = 1; }'
    half, one = duration_pb2.Duration(nanos=-500_000_000), duration_pb2.Duration(seconds=-1)
    pieces = b"".join(b"\x0a" + bytes([piece.ByteSize()]) + piece.SerializeToString() for piece in (half, one))
    assert of_protobuf(text, pieces) == ([{"d": timedelta(seconds=-1.5)}], [])


def test_entries_in_a_text_of_json_have_defaults_for_what_they_lack() -> None:
    """A message that contains itself is a text: keys and values of all kinds."""
    kinds = ("int64", "double", "string", "bool", "fixed32", "bytes", "N")
    fields = " ".join(f"map<string, {kind}> m{i} = {i};" for i, kind in enumerate(kinds, 1))
    text = f'syntax = "proto3"; message N {{ {fields} map<int32, bool> key = 8; N next = 9; }}'
    value = b"\x4a\x10" + b"".join(bytes([i << 3 | 2, 0]) for i in range(1, 9))
    (row,), bad = of_protobuf(text, value)
    defaults: tuple[object, ...] = (0, 0.0, "", False, 0, "", {})
    maps: dict[str, Any] = {f"m{i}": {"": default} for i, default in enumerate(defaults, 1)}
    assert (json.loads(row["next"]), bad) == ({**maps, "key": {"0": False}}, [])


def test_fields_of_json_that_come_again_are_bounded() -> None:
    """The same struct a thousand times: each one costs what its columns take."""
    kind = pa.struct([("s", pa.struct([(f"f{i}", pa.int64()) for i in range(1000)]))])
    decoder = native.JsonDecoder(kind, max_decoded_bytes=1 << 20)
    again = b"{" + b",".join([b'"s":{}'] * 1000) + b"}"
    done = decoder.decode(pa.array([b'{"s":{},"s":{"f0":1}}', again], pa.binary()))
    assert pa.array(done)[0].as_py()["s"]["f0"] == 1
    assert [(row, "max.decoded.bytes" in why) for row, _, why in done.bad] == [(1, True)]
