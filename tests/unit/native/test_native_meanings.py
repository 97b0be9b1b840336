"""Values keep their meaning where a schema has changed: compared with fastavro, and with what was written."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.support.native import kernel

native = kernel()

AT, DAY = datetime(2026, 1, 31, 12, 0, 0, 5000, timezone.utc), datetime(2026, 1, 31, tzinfo=timezone.utc)
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


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
