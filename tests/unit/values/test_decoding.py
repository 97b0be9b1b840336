"""Batches of raw records become columns: what the mode does, what the registry is asked, and what a replay has."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError, InvalidConfigurationError, UnreadableRecordError
from kafka_source.model.record_columns import TOO_LARGE, Column
from kafka_source.source.row_columns import columns_to_fetch
from kafka_source.values.reader_schema import ReaderSchema
from tests.support.avro import datum, framed, record
from tests.support.native import kernel

kernel()

from kafka_source.values.decoding import ColumnDecoding, Decoding  # noqa: E402
from kafka_source.values.replayed_schema import current_column  # noqa: E402
from tests.support.decoded import decode  # noqa: E402

ID = {"name": "id", "type": "long"}
AMOUNT = {"name": "amount", "type": "double", "default": 0.0}
ORDER = record("Order", ID, AMOUNT)
OLD = record("Order", {"name": "id", "type": "int"})


def of(schema, schema_id=1):
    return ReaderSchema(json.dumps(schema), schema_id)


def decoding(registry, schema=ORDER, **changed):
    reader = of(schema)
    kind = reader.column_type()
    mode = changed.pop("mode", "FAILFAST")
    made = {
        "reader": reader,
        "type": kind,
        "framing": "confluent",
        "corrupt": "_corrupt_record",
        "registry": Settings({"url": registry.url, "timeout.ms": "300"}),
    }
    return Decoding((ColumnDecoding(**{**made, **changed}),), mode)


def raw(*values):
    rows = len(values)
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * rows,
            "partition": pa.array([3] * rows, pa.int32()),
            "offset": pa.array(range(100, 100 + rows), pa.int64()),
        }
    )


def test_one_request_for_each_id_however_many_batches_have_it(registry):
    registry.add(2, OLD)
    how = decoding(registry, mode="PERMISSIVE")
    for _ in range(3):
        rows, made = decode(raw(framed(1, ORDER, {"id": 5, "amount": 0.5}), None, framed(2, OLD, {"id": 6})), how)
        assert rows.num_rows == 3
        assert made["value"].to_pylist() == [{"id": 5, "amount": 0.5}, None, {"id": 6, "amount": 0.0}]
        assert made["_corrupt_record"].to_pylist() == [None] * 3
    # The schema of the column comes with the query.
    assert registry.asked == ["/schemas/ids/2"]


def test_ids_that_no_registry_has_are_bad_and_not_asked_for(registry):
    values = raw(*(b"\0" + number.to_bytes(4, "big") + b"\2" for number in (1 << 31, (1 << 32) - 1)))
    assert decode(values, decoding(registry, mode="DROPMALFORMED"))[0].num_rows == 0
    assert registry.asked == []


def test_a_schema_of_another_type_or_of_another_record_is_for_the_mode_to_decide(registry):
    registry.add(8, 'syntax = "proto3";', schemaType="PROTOBUF")
    registry.add(9, record("Order", {"name": "id", "type": "string"}))
    values = raw(framed(1, ORDER, {"id": 5, "amount": 0.5}), b"\0\0\0\0\x08abc", b"\0\0\0\0\x09\x02a", b"\0\0\0")
    rows, made = decode(values, decoding(registry, mode="PERMISSIVE"))
    assert rows.num_rows == 4
    assert made["value"].is_valid().to_pylist() == [True, False, False, False]
    assert made["_corrupt_record"].to_pylist() == [None, *values["value"].to_pylist()[1:]]
    rows, made = decode(values, decoding(registry, mode="DROPMALFORMED"))
    assert (rows["offset"].to_pylist(), len(made["value"])) == ([100], 1)
    reasons = {1: "schema id is 8.*PROTOBUF", 2: "schema id is 9; no value of it.*schema 1: field id", 3: "zero byte"}
    for row, reason in reasons.items():
        with pytest.raises(UnreadableRecordError, match=reason) as failed:
            decode(values.slice(row, 1), decoding(registry))
        assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("orders", 3, 100 + row)


@pytest.mark.parametrize(("mode", "told"), [("FAILFAST", False), ("PERMISSIVE", True), ("DROPMALFORMED", True)])
def test_bad_values_are_told_with_their_records_where_they_do_not_end_the_query_and_tombstones_are_not(
    registry, mode, told
):
    good = framed(1, ORDER, {"id": 5, "amount": 0.5})
    found: list[tuple[int, bytes, str]] = []

    def on_bad(records, reasons):
        found.extend(zip(records["offset"].to_pylist(), records["value"].to_pylist(), reasons, strict=True))

    how = decoding(registry, mode=mode)
    decode(raw(good, None), how, None, on_bad)
    with nullcontext() if told else pytest.raises(UnreadableRecordError):
        decode(raw(b"no Avro", good, None, good[:-1]), how, None, on_bad)
    assert [(offset, value) for offset, value, _ in found] == ([(100, b"no Avro"), (103, good[:-1])] if told else [])
    assert all("no Avro" not in reason for _, _, reason in found)
    assert not told or found[1][2].startswith("its schema id is 1; field amount")


@pytest.mark.parametrize(("mode", "offsets"), [("PERMISSIVE", [100, 101]), ("DROPMALFORMED", [100])])
def test_a_timestamp_that_is_too_large_makes_a_bad_record(registry, mode, offsets):
    good = framed(1, ORDER, {"id": 5, "amount": 0.5})
    times = pa.array([7, TOO_LARGE], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    told: list[str] = []
    how = decoding(registry, mode=mode)
    rows, made = decode(
        raw(good, good).append_column("timestamp", times), how, None, lambda _, reasons: told.extend(reasons)
    )
    assert (rows["offset"].to_pylist(), len(made["value"])) == (offsets, len(offsets))
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [7, None][: len(offsets)]
    assert told == ["its timestamp is too large for microseconds"]
    wanted = (Column("timestamp"), Column("value", made=how.columns[0].type))
    lenient = [column.lenient for column in columns_to_fetch(wanted, how) if column.name == "timestamp"]
    strict = columns_to_fetch((Column("timestamp", nullable=False),), how)
    assert (lenient, strict[0].lenient) == ([True], False)
    assert not columns_to_fetch(wanted, replace(how, mode="FAILFAST"))[0].lenient


def test_keys_are_decoded_by_their_own_schemas_and_a_bad_one_is_told_from_a_bad_value(registry):
    (value,) = decoding(registry).columns
    kind = of(OLD).column_type()
    key = replace(value, reader=replace(of(OLD, 4), column="key"), type=kind, corrupt="_corrupt_record_key")
    good, keyed = framed(1, ORDER, {"id": 5, "amount": 0.5}), framed(4, OLD, {"id": 7})
    batch = raw(good, b"no Avro", good, None, b"", good)
    batch = batch.append_column("key", pa.array([keyed, keyed, keyed[:-1], None, b"x", keyed]))
    told: list[str] = []
    how = Decoding((value, key), "PERMISSIVE")
    rows, made = decode(batch, how, None, lambda _, reasons: told.extend(reasons))
    assert rows.num_rows == 6
    assert made["key"].to_pylist() == [{"id": 7}, {"id": 7}, None, None, None, {"id": 7}]
    assert made["value"].is_valid().to_pylist() == [True, False, True, False, False, True]
    assert made["_corrupt_record"].to_pylist() == [None, b"no Avro", None, None, b"", None]
    assert made["_corrupt_record_key"].to_pylist() == [None, None, keyed[:-1], None, b"x", None]
    both = "Confluent's framing); its key: the value does not start with"
    assert told[1].startswith("its key's schema id is 4; field id: ")
    assert ("its key" in told[0], len(told), both in told[2]) == (False, 3, True)
    rows, made = decode(batch, replace(how, mode="DROPMALFORMED"))
    assert rows["offset"].to_pylist() == [100, 103, 105]
    assert {name: len(column) for name, column in made.items()} == {"value": 3, "key": 3}
    with pytest.raises(UnreadableRecordError, match=r"offset 102 .*: its key's schema id is 4"):
        decode(batch.slice(2, 1), replace(how, mode="FAILFAST"))
    newer = record("Order", {"name": "id", "type": "int"}, {"name": "area", "type": "int", "default": 3})
    now = replace(key, reader=replace(of(newer, 9), column="key"), type=of(newer).column_type())
    _, made = decode(batch.slice(0, 1), Decoding((now,), "FAILFAST"), {"key": key.reader})
    assert made["key"].to_pylist() == [{"id": 7, "area": 3}]


def test_the_column_has_the_nullability_that_is_asked_for(registry):
    kind = pa.struct([pa.field("amount", pa.float64(), nullable=True)])
    _, made = decode(raw(datum(ORDER, {"id": 5, "amount": 0.5})), decoding(registry, framing="none", type=kind))
    assert made["value"].type == kind
    assert made["value"].to_pylist() == [{"amount": 0.5}]


def test_a_replayed_batch_is_resolved_to_the_schema_of_its_first_run(registry):
    newer = record("Order", ID, AMOUNT, {"name": "currency", "type": "string", "default": "EUR"})
    registry.add(2, newer)
    values = raw(framed(2, newer, {"id": 5, "amount": 0.5, "currency": "CHF"}), None, b"\1")
    how = decoding(registry, newer, mode="PERMISSIVE")
    assert decode(values, how)[1]["value"].to_pylist()[0]["currency"] == "CHF"
    _, made = decode(values, how, {"value": of(ORDER, 7)})
    assert made["value"].to_pylist() == [{"id": 5, "amount": 0.5, "currency": "EUR"}, None, None]
    assert made["_corrupt_record"].to_pylist() == [None, None, b"\1"]
    assert made["value"].type == how.columns[0].type


def test_fields_that_came_were_renamed_or_widened_have_a_value():
    tags = {"type": "array", "items": "string"}
    then = record("Order", {"name": "id", "type": "int"}, {"name": "tags", "type": tags}, {"name": "x", "type": "int"})
    now = record(
        "Order",
        {"name": "labels", "type": tags, "aliases": ["tags"]},
        ID,
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "counts", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    )
    column = pa.array([{"id": 5, "tags": ["a"], "x": 1}, None], of(then).column_type())
    wanted = of(now).column_type(pa.struct([(name, pa.null()) for name in ("labels", "id", "note", "counts")]))
    made = current_column(of(then), of(now, 2), wanted)(column)
    made.validate(full=True)
    assert made.type == wanted
    assert made.to_pylist() == [{"labels": ["a"], "id": 5, "note": None, "counts": [1, 2]}, None]


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"name": "id", "type": "string"}, "field id was int64 and is string"),
        ({"name": "id", "type": "int"}, "field id was int64 and is int32"),
        ({"name": "amount", "type": "double"}, "field amount could be null and cannot any more"),
        ({"name": "new", "type": "string"}, "field new is new and has no default"),
    ],
)
def test_a_schema_that_cannot_show_the_batch_stops_the_query_and_says_what_to_do(field, why):
    then, now = record("Order", ID, {"name": "amount", "type": ["null", "double"]}), record("Order", field)
    with pytest.raises(InvalidConfigurationError, match=f"schema 1.*schema 2.*{why}.*value.schema.id=1"):
        current_column(of(then), of(now, 2), of(now).column_type(pa.struct([(str(field["name"]), pa.null())])))


def test_a_union_with_other_members_cannot_show_a_batch_of_before():
    then, now = ([ORDER, record("Note", field)] for field in (ID, AMOUNT))
    with pytest.raises(InvalidConfigurationError, match=r"it was struct<member0: .*value.schema.id=1"):
        current_column(of(then), of(now, 2), of(now).column_type(pa.struct([("member0", pa.null())])))


def test_a_query_that_ends_at_a_newer_schema_asks_for_it_where_an_id_is_new(registry):
    registry.add(1, ORDER, "orders-value")
    registry.add(9, OLD)
    newest = (("orders-value", 1),)
    how = decoding(registry, reader=replace(of(ORDER), newest=newest), ends_at_newer=True)
    latest = "/subjects/orders-value/versions/latest"
    rows = raw(framed(1, ORDER, {"id": 5, "amount": 0.5}))
    assert decode(rows, how)[0].num_rows == 1
    assert latest not in registry.asked
    # One of another subject has a higher number, and is no newer one.
    assert decode(raw(framed(9, OLD, {"id": 6})), how)[1]["value"].to_pylist() == [{"id": 6, "amount": 0.0}]
    registry.add(10, record("Order", ID, AMOUNT, {"name": "note", "type": "string", "default": ""}), "orders-value")
    for _ in range(2):
        assert decode(rows, how)[0].num_rows == 1
        with pytest.raises(
            ApplicationRecoverableError, match=r"value has schema 1, .* schema 10.*Start the query again"
        ):
            decode(raw(framed(10, ORDER, {"id": 7, "amount": 0.5})), how)
    assert registry.asked.count(latest) == 3
    # Without the mode it goes on.
    newer = raw(b"\0\0\0\0\x0a" + datum(ORDER, {"id": 7, "amount": 0.5}) + b"\0")
    assert decode(newer, decoding(registry))[1]["value"].to_pylist() == [{"id": 7, "amount": 0.5}]


def test_ids_of_bad_records_are_new_once_and_need_no_registry_after_that(registry):
    registry.add(1, ORDER, "orders-value")
    registry.add(9, record("Note", ID))
    newest = (("orders-value", 1),)
    how = decoding(registry, reader=replace(of(ORDER), newest=newest), ends_at_newer=True, mode="PERMISSIVE")
    rows = raw(framed(9, record("Note", ID), {"id": 5}), framed(1, ORDER, {"id": 5, "amount": 0.5}))
    for refusals in (0, 100, 0):
        registry.first = [(503, {}, b"")] * refusals
        assert decode(rows, how)[1]["value"].to_pylist() == [None, {"id": 5, "amount": 0.5}]
    assert registry.asked == ["/schemas/ids/9", "/subjects/orders-value/versions/latest"]


def test_json_values_end_the_query_at_a_newer_schema_too(registry):
    registry.add(1, {"type": "object"}, "orders-value", schemaType="JSON")
    registry.add(2, {"type": "object"}, schemaType="JSON")
    kind = pa.struct({"id": pa.int64()})
    reader = ReaderSchema("", 1, json=kind, newest=(("orders-value", 1),))
    how = decoding(registry, reader=reader, type=kind, ends_at_newer=True)
    for number in (1, 2, 2):
        assert decode(raw(b"\0\0\0\0" + bytes([number]) + b'{"id": 5}'), how)[1]["value"].to_pylist() == [{"id": 5}]
    assert registry.asked == ["/schemas/ids/2", "/subjects/orders-value/versions/latest"]
    registry.add(3, {"type": "object"}, "orders-value", schemaType="JSON")
    with pytest.raises(ApplicationRecoverableError, match="schema 3"):
        decode(raw(b'\0\0\0\0\x03{"id": 5}'), how)


@pytest.mark.parametrize("value_format", ["avro", "json"])
def test_rules_of_a_records_schema_end_the_query_in_each_mode(registry, value_format):
    encrypts = {"name": "pii", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}
    kind, text = pa.struct({"id": pa.int64()}), b'{"id": 5}'
    reader, schema, value = ReaderSchema("", 1, json=kind), {"type": "object"}, b"\0\0\0\0\2" + text
    if value_format == "avro":
        reader, schema, value = of(ORDER), OLD, framed(2, OLD, {"id": 5})
        kind = reader.column_type()
    registry.add(2, schema, schemaType=value_format.upper(), ruleSet={"domainRules": [encrypts]})
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        with pytest.raises(InvalidConfigurationError, match=r"Rules of the schema with id 2 .*pii .ENCRYPT"):
            decode(raw(value), decoding(registry, reader=reader, type=kind, mode=mode))
    how = decoding(registry, reader=reader, type=kind)
    ignoring = replace(how.columns[0], registry=Settings({"url": registry.url, "rules": "ignore"}))
    _, made = decode(raw(value), replace(how, columns=(ignoring,)))
    assert made["value"].to_pylist()[0]["id"] == 5


def test_schemas_that_cannot_be_a_column_are_refused():
    with pytest.raises(InvalidConfigurationError, match=r"schema 1: .*lon"):
        of({"type": "lon"}).column_type()
