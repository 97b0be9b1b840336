"""What the bytes of a key or value are shown as."""

import base64
import json
import uuid
from contextlib import closing
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_source.client_config import Settings
from kafkagroup.admin.peek import Payload, Peek, Record, payload, schemas_of
from tests.support.avro import framed, record
from tests.support.fake_broker import TOPIC, FakeBroker, Partition
from tests.support.native import kernel
from tests.support.registry_server import RegistryServer


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, Payload("none", None, None)),
        (b"", Payload("text", "", 0)),
        (b"42", Payload("text", "42", 2)),
        ("Grüße\n".encode(), Payload("text", "Grüße\n", 8)),
        (b'{"a": 1}', Payload("json", '{"a": 1}', 8)),
        (b"[1]", Payload("json", "[1]", 3)),
        (b"{a: 1}", Payload("text", "{a: 1}", 6)),
        (b"\xff\xfe", Payload("binary", base64.b64encode(b"\xff\xfe").decode(), 2)),
        (b"a\x00b", Payload("binary", base64.b64encode(b"a\x00b").decode(), 3)),
        (b"\x00\x00\x00\x00\x2a\x06abc", Payload("binary", base64.b64encode(b"\x06abc").decode(), 9, 42)),
        (b'\x00\x00\x00\x00\x07{"a": 1}', Payload("json", '{"a": 1}', 13, 7)),
        # Deep, or with numbers that JSON lacks.
        (b"[" * 200_000, Payload("text", "[" * 200_000, 200_000)),
        (b"[NaN]", Payload("text", "[NaN]", 5)),
        # Numbers of eight bytes, such as Java's LongSerializer writes; one is a time.
        (b"\x00\x00\x01\x8b\xcf\xe5\x68\x00", Payload("binary", "AAABi8/laAA=", 8)),
        (b"\x00\x00\x00\x00\x00\x00\x00\x2a", Payload("binary", base64.b64encode(bytes(7) + b"\x2a").decode(), 8)),
    ],
    ids=repr,
)
def test_bytes(data: bytes | None, shown: Payload) -> None:
    assert payload(data) == shown


def test_avro_is_json_if_a_registry_has_its_schema() -> None:
    kernel()
    from kafka_source.values.readable import ReadableValues

    schema = record(
        "Order",
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "next", "type": ["null", "Order"]},
    )
    value = {"id": 7, "name": "Grüße", "raw": b"\xff", "day": date(2026, 11, 25), "price": Decimal("1.50")}
    value |= {"tags": ["a", None], "counts": {"x": 1}, "next": None}
    with RegistryServer() as registry:
        registry.add(42, schema)
        registry.add(8, 'syntax = "proto3";', schemaType="PROTOBUF")
        decoder = ReadableValues(Settings({"url": registry.url}))
        for _ in range(2):
            data = framed(42, schema, value)
            shown = payload(data, decoder)
            assert (shown.format, shown.size, shown.schema_id) == ("json", len(data), 42)
            found = json.loads(shown.text or "")
            assert found == {**value, "raw": "/w==", "day": "2026-11-25", "price": "1.50", "next": None}
        for unusable in (data[:-4], framed(8, schema, value)):
            assert payload(unusable, decoder) == payload(unusable)
        assert payload(framed(9, schema, value), decoder).schema_id is None
        assert registry.count(42) == 1
        # Named by a GUID in a header.
        guid = uuid.UUID(int=7)
        registry.answers[f"/schemas/guids/{guid}"] = registry.answers["/schemas/ids/42"]
        shown = payload(data[5:], decoder, b"\x01" + guid.bytes)
        assert (json.loads(shown.text or ""), shown.size) == (found, len(data) - 5)
        for header in (b"\x01" + uuid.UUID(int=8).bytes, b"\x01", None):
            assert payload(data, decoder, header).schema_id == 42


def test_times_beyond_the_year_9999_are_numbers() -> None:
    """A producer that writes microseconds into timestamps is what people look for with `peek`."""
    kernel()
    times = {"day": ("int", "date"), "at": ("long", "timestamp-micros"), "local": ("long", "local-timestamp-millis")}
    fields = [{"name": name, "type": {"type": kind, "logicalType": it}} for name, (kind, it) in times.items()]
    schema, numbers = record("Times", *fields), {"day": 3_000_000, "at": 1 << 60, "local": 1 << 50}
    plain = record("Times", *({"name": name, "type": kind} for name, (kind, _) in times.items()))
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, at in enumerate((1_700_000_000_123, 1_700_000_000_123_456, 1_700_000_000_123_456_789)):
        builder.append(number, at, None, framed(42, plain, numbers), [])
    with RegistryServer() as registry, closing(FakeBroker()) as broker:
        broker.partitions = {0: Partition({0: bytes(builder.build())}, end=3)}
        registry.add(42, schema)
        where = Settings({"bootstrap.servers": broker.bootstrap_servers})
        found = list(Peek(where, TOPIC, registry=Settings({"url": registry.url})).records())
    times_shown = {"2023-11-14T22:13:20.123Z", "1700000000123456 ms since 1970", "beyond microseconds"}
    assert {one.timestamp for one in found} == times_shown
    assert [json.loads(one.value.text or "") for one in found] == [{**numbers, "local": (1 << 50) * 1000}] * 3


def test_protobuf_is_json_of_the_message_that_the_indexes_name() -> None:
    kernel()
    from kafka_source.values.readable import ReadableValues

    schema = """syntax = "proto3"; package shop; import "line.proto"; import "google/protobuf/duration.proto";
    message Order { int64 id = 1; Line line = 2; map<int32, bytes> raw = 3; google.protobuf.Duration took = 4; }
    message Note { string text = 1; message Author { string name = 1; } }"""
    with RegistryServer() as registry:
        registry.add(1, 'syntax = "proto3"; message Line { string item = 1; Line next = 2; }', "line")
        registry.add(
            42, schema, schemaType="PROTOBUF", references=[{"name": "line.proto", "subject": "line", "version": 1}]
        )
        decoder = ReadableValues(Settings({"url": registry.url}))
        head = b"\0\0\0\0\x2a"
        order = b"\0\x08\x05\x12\x03\x0a\x01x\x1a\x05\x08\x03\x12\x01\xff\x22\x02\x08\x05"
        shown = payload(head + order, decoder)
        assert (shown.format, shown.schema_id, shown.message) == ("json", 42, "shop.Order")
        found = json.loads(shown.text or "")
        line = found.pop("line")
        assert (line["item"], found) == ("x", {"id": 5, "raw": {"3": "/w=="}, "took": "0:00:05"})
        note = payload(head + b"\x02\x02\x0a\x01x", decoder)
        assert str(note) == '[schema 42 shop.Note] {"text": "x"}'
        author = payload(head + b"\x04\x02\x00\x0a\x01y", decoder)
        assert str(author) == '[schema 42 shop.Note.Author] {"name": "y"}'
        for other in (head + b"\x02\x04\x0a\x01x", head + b"\x04\x02", head + order[:-1]):
            assert payload(other, decoder) == payload(other)
        records = [
            Record("orders", 0, at, "", "create", payload(None), one, ()) for at, one in enumerate((note, shown))
        ]
        assert [(use.schema_id, use.message) for use in schemas_of(records)] == [(42, "shop.Note"), (42, "shop.Order")]


@given(st.binary())
def test_nothing_is_lost(data: bytes) -> None:
    shown = payload(data)
    assert shown.text is not None
    body = base64.b64decode(shown.text) if shown.format == "binary" else shown.text.encode()
    frame = b"" if shown.schema_id is None else b"\x00" + shown.schema_id.to_bytes(4, "big")
    assert frame + body == data


def test_a_line_for_people() -> None:
    assert str(payload(b"\x00\x00\x00\x00\x2a\x06")) == "[schema 42] Bg== (base64)"
    assert str(payload(None)) == "-"
