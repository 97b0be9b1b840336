"""`arrow.decode_values` on batches of records: what the mode does, and which batches and arguments it refuses."""

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
import pytest

from kafka_source.errors import InvalidConfigurationError, OptionError, UnreadableRecordError
from kafkagroup.arrow.decoding import decode_values
from tests.support.avro import datum, framed, record
from tests.support.native import kernel
from tests.support.registry_server import RegistryServer

kernel()

ORDER = record("Order", {"name": "id", "type": "long"}, {"name": "amount", "type": "double", "default": 0.0})
OLD = record("Order", {"name": "id", "type": "int"})
GOOD = framed(2, ORDER, {"id": 5, "amount": 0.5})
BAD = GOOD[:-1]


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        server.add(1, OLD)
        server.add(2, ORDER)
        yield server


def batch(*values: bytes | None) -> pa.RecordBatch:
    rows = len(values)
    return pa.record_batch(
        {
            "offset": pa.array(range(rows), pa.int64()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * rows, pa.string()),
            "partition": pa.array([0] * rows, pa.int32()),
        }
    )


def test_each_value_is_decoded_by_its_own_schema_and_other_columns_stay(registry: RegistryServer) -> None:
    raw = [batch(GOOD, None), batch(), batch(framed(1, OLD, {"id": 6}))]
    found = pa.Table.from_batches(decode_values(raw, {"url": registry.url}, schema_id=2))
    assert found.column_names == ["offset", "value", "topic", "partition"]
    assert found["value"].to_pylist() == [{"id": 5, "amount": 0.5}, None, {"id": 6, "amount": 0.0}]
    assert found["offset"].to_pylist() == [0, 1, 0]


def test_the_mode_says_what_becomes_of_bad_values(registry: RegistryServer) -> None:
    with pytest.raises(UnreadableRecordError, match="orders-0 at offset 1"):
        list(decode_values([batch(GOOD, BAD)], {"url": registry.url}, schema_id=2))
    (kept,) = decode_values([batch(GOOD, BAD)], {"url": registry.url}, schema_id=2, mode="PERMISSIVE")
    assert kept["value"].is_valid().to_pylist() == [True, False]
    assert kept["_corrupt_record"].to_pylist() == [None, BAD]
    (rest,) = decode_values([batch(BAD, GOOD)], {"url": registry.url}, schema_id=2, mode="DROPMALFORMED")
    assert rest["offset"].to_pylist() == [1]


def test_the_registry_says_that_a_schema_is_of_protobuf(registry: RegistryServer) -> None:
    both = 'syntax = "proto3"; package shop; message Note { string text = 1; } message Order { int64 id = 1; }'
    registry.add(3, both, schemaType="PROTOBUF")
    order, note = b"\0\0\0\0\x03\x02\x02\x08\x05", b"\0\0\0\0\x03\0\x0a\x01x"
    (orders,) = decode_values(
        [batch(order, note)], {"url": registry.url}, schema_id=3, message="shop.Order", mode="DROPMALFORMED"
    )
    (notes,) = decode_values([batch(note)], {"url": registry.url}, schema_id=3)
    assert (orders["value"].to_pylist(), notes["value"].to_pylist()) == ([{"id": 5}], [{"text": "x"}])
    with pytest.raises(InvalidConfigurationError, match="of type AVRO, and not PROTOBUF"):
        list(decode_values([], {"url": registry.url}, schema_id=2, message="shop.Order"))


def test_a_schema_may_be_named_in_a_header_and_values_may_be_json(registry: RegistryServer) -> None:
    guid = UUID(int=7)
    registry.answers[f"/schemas/guids/{guid}"] = registry.answers["/schemas/ids/1"]
    headers = pa.array(
        [[{"key": "__value_schema_id", "value": b"\x01" + guid.bytes}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    raw = batch(datum(OLD, {"id": 6}), GOOD).append_column("headers", headers)
    (orders,) = decode_values([raw], {"url": registry.url}, schema_id=2)
    assert orders["value"].to_pylist() == [{"id": 6, "amount": 0.0}, {"id": 5, "amount": 0.5}]
    registry.add(4, {"properties": {"id": {"type": "integer"}}}, schemaType="JSON")
    (of_json,) = decode_values([batch(b'\0\0\0\0\x04{"id": 5}')], {"url": registry.url}, schema_id=4)
    assert of_json["value"].to_pylist() == [{"id": 5}]
    registry.add(5, {"$ref": "line.json"}, schemaType="JSON")
    with pytest.raises(
        InvalidConfigurationError,
        match=r"JSON Schema with id 5 has no column type, because it refers to line\.json, which is none",
    ):
        list(decode_values([], {"url": registry.url}, schema_id=5))


def test_keys_are_decoded_by_a_call_of_its_own(registry: RegistryServer) -> None:
    registry.add(3, {"type": "string"})
    raw = batch(GOOD, BAD, GOOD).append_column("key", pa.array([b"\0\0\0\0\x03\x02a", None, b"a"], pa.binary()))
    settings = {"url": registry.url}
    values = decode_values([raw], settings, schema_id=2, mode="DROPMALFORMED")
    (both,) = decode_values(values, settings, schema_id=3, mode="PERMISSIVE", column="key")
    assert both["key"].to_pylist() == ["a", None]
    assert both["_corrupt_record_key"].to_pylist() == [None, b"a"]
    assert both["value"].null_count == 0


def test_what_cannot_be_decoded_is_refused_with_what_is_missing(registry: RegistryServer) -> None:
    with pytest.raises(InvalidConfigurationError, match="the batch has no offset"):
        list(decode_values([batch(GOOD).drop_columns(["offset"])], {"url": registry.url}, schema_id=2))
    with pytest.raises(InvalidConfigurationError, match="does not have"):
        list(decode_values([], {"url": registry.url}, schema_id=99))
    with pytest.raises(OptionError, match="PERMISSIVE"):
        list(decode_values([], {"url": registry.url}, schema_id=2, mode="SKIP"))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="value or key"):
        list(decode_values([], {"url": registry.url}, schema_id=2, column="headers"))  # type: ignore[arg-type]
