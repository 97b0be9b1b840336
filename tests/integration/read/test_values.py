"""Avro values and keys read as columns: a real topic, a real Spark, and a registry that answers as the test says."""

import base64
import json
import time
import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest

import kafkagroup
from kafkagroup.embedded import SchemaRegistry
from kafkagroup.progress import lag_of
from tests.support.avro import datum, framed, record
from tests.support.native import kernel
from tests.support.records import reader, running, stream, write_records
from tests.support.registry_server import Answer
from tests.support.waiting import wait_until

kernel()

ID = {"name": "id", "type": "long"}
AMOUNT = {"name": "amount", "type": "double", "default": 0.0}
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
OLD = record("Order", {"name": "id", "type": "int"})
NOW = record("Order", ID, AMOUNT)
NEWER = record("Order", ID, AMOUNT, CURRENCY)
SHOP = record("Shop", {"name": "shop", "type": "int"})
SECRET = "hunter2hunter2"

UNAUTHORIZED: Answer = 401, {}, b'{"error_code":40101,"message":"Unauthorized"}'
BROKEN: Answer = 503, {}, b"<html>"


def write(kafka, topic, *values, partition=0, key=b"k", headers=None):
    place = {"key": key, "partition": partition, "headers": headers}
    write_records(kafka.bootstrap_servers, topic, ({"value": value, **place} for value in values))


def avro(registry, **options):
    return {"value.format": "avro", "schema.registry.url": registry.url, **options}


def loaded(spark, kafka, topic, registry, **options):
    return reader(spark, kafka, topic, **avro(registry, **options)).load()


def values(frame):
    return [row.value for row in frame.orderBy("partition", "offset").collect()]


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_each_value_is_read_by_its_own_schema_however_the_ids_are_mixed(spark, kafka, topic, registry, engine):
    name = topic("mixed", partitions=1)
    registry.add(1, OLD)
    registry.add(3, NEWER)
    registry.add(2, NOW, f"{name}-value")
    written = [framed(1, OLD, {"id": 7}), framed(2, NOW, {"id": 8, "amount": 2.5}), None]
    written.append(framed(3, NEWER, {"id": 9, "amount": 3.5, "currency": "CHF"}))
    write(kafka, name, *written * 50)
    # And by its GUID in a header, as Confluent's newer serializers name it.
    guid = uuid.UUID(int=7)
    registry.answers[f"/schemas/guids/{guid}"] = registry.answers["/schemas/ids/1"]
    write(kafka, name, datum(OLD, {"id": 6}), headers=[("__value_schema_id", b"\x01" + guid.bytes)])
    frame = loaded(spark, kafka, name, registry, engine=engine, value_framing="confluent-header")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,amount:double>"
    assert not frame.schema["value"].dataType["id"].nullable
    rows = frame.orderBy("offset").collect()
    # A record without a value is no bad record.
    assert [row.value for row in rows] == [*[(7, 0.0), (8, 2.5), None, (9, 3.5)] * 50, (6, 0.0)]
    assert [(bytes(row.key), row.topic, row.offset) for row in rows[:2]] == [(b"k", name, 0), (b"k", name, 1)]
    assert registry.asked.count(f"/subjects/{name}-value/versions/latest") == 1
    # Spark may sort and read in several workers: none asks twice, and none for the column's own schema.
    assert all(1 <= registry.count(number) <= 2 for number in (1, 3))
    assert registry.count(2) == 0


def test_types_are_those_of_sparks_own_avro(spark, kafka, topic, registry):
    name = topic("types", partitions=1)
    schema = record(
        "All",
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "inner", "type": ["null", record("Inner", ID)]},
    )
    registry.add(4, schema, f"{name}-value")
    value = {
        "day": date(2026, 11, 25),
        "at": 1_700_000_000_000,
        "local": 1_700_000_000_000_000,
        "price": Decimal("12.34"),
        "tags": ["a", None],
        "counts": {"x": 1},
        "either": "text",
        "inner": None,
    }
    write(kafka, name, framed(4, schema, value))
    frame = loaded(spark, kafka, name, registry).select("value.*")
    assert frame.schema.simpleString() == (
        "struct<day:date,at:timestamp,local:timestamp_ntz,price:decimal(9,2),tags:array<string>,counts:map<string,int>,"
        "either:struct<member0:int,member1:string>,inner:struct<id:bigint>>"
    )
    (row,) = frame.selectExpr("* except(at)", "unix_millis(at) AS millis").collect()
    assert row.asDict(recursive=True) == {
        **{name: value[name] for name in ("day", "price", "tags", "counts", "inner")},
        "local": datetime(2023, 11, 14, 22, 13, 20),
        "either": {"member0": None, "member1": "text"},
        "millis": 1_700_000_000_000,
    }


def test_a_requested_schema_decodes_only_its_fields(spark, kafka, topic, registry):
    name = topic("fewer", partitions=1)
    registry.add(3, NEWER, f"{name}-value")
    write(kafka, name, framed(3, NEWER, {"id": 9, "amount": 3.5, "currency": "CHF"}))
    source = reader(spark, kafka, name, **avro(registry))
    frame = source.schema("offset bigint, value struct<currency: string, id: bigint>").load()
    assert frame.collect() == [(0, ("CHF", 9))]
    asked = len(registry.asked)
    # Nobody asks for the values, so nobody asks the registry.
    assert source.schema("offset bigint").load().collect() == [(0,)]
    assert len(registry.asked) == asked
    with pytest.raises(Exception, match=r"value struct<id:int>.*it takes value struct<id:bigint,amount:double"):
        source.schema("value struct<id: int>").load().collect()
    with pytest.raises(Exception, match="value binary"):
        source.schema("value binary").load().collect()


@pytest.fixture(scope="module")
def bad_values():
    return [framed(2, NOW, {"id": 1, "amount": 2.5})[:-3], b"{}", framed(99, NOW, {"id": 2, "amount": 1.5}), b""]


@pytest.fixture
def with_bad_values(kafka, topic, registry, bad_values):
    name = topic("bad", partitions=1)
    registry.add(2, NOW, f"{name}-value")
    good = framed(2, NOW, {"id": 5, "amount": 0.5})
    write(kafka, name, good, None, *bad_values, good)
    return name


def test_permissive_keeps_the_bytes_of_bad_values_beside_null(spark, kafka, registry, with_bad_values, bad_values):
    frame = loaded(spark, kafka, with_bad_values, registry, mode="permissive", columnNameOfCorruptRecord="broken")
    rows = frame.orderBy("offset").select("value", "broken").collect()
    good = ((5, 0.5), None)
    assert [tuple(row) for row in rows] == [good, (None, None), *((None, bytearray(b)) for b in bad_values), good]


def test_dropmalformed_leaves_bad_values_out_and_keeps_tombstones(spark, kafka, registry, with_bad_values):
    frame = loaded(spark, kafka, with_bad_values, registry, mode="DROPMALFORMED")
    assert [(row.offset, row.value) for row in frame.orderBy("offset").collect()] == [
        (0, (5, 0.5)),
        (1, None),
        (6, (5, 0.5)),
    ]


def test_a_streams_progress_counts_the_values_that_it_drops(spark, kafka, topic, kafkagroup_schema_registry, tmp_path):
    name = topic("counted", partitions=2)
    number = kafkagroup_schema_registry.register(f"{name}-value", NOW)
    good = framed(number, NOW, {"id": 5, "amount": 0.5})
    # Two bad values, an id that the registry does not know, and two that no registry can have.
    bad = [good[:-3], b"{}", framed(number + 9999, NOW, {"id": 2, "amount": 1.5})]
    bad += [b"\0\x80\0\0\0" + good[5:], b"\0\xff\xff\xff\xff" + good[5:]]
    options = avro(kafkagroup_schema_registry, **{"schema.registry.timeout.ms": 2000})
    frame = stream(spark, kafka, name, startingOffsets="earliest", mode="DROPMALFORMED", **options)
    with running(frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()) as query:
        for partition in (0, 1):
            write(kafka, name, good, None, *bad, partition=partition)
        query.processAllAvailable()
        # The bad records of a micro-batch are told with the next one.
        write(kafka, name, good)
        query.processAllAvailable()
        write(kafka, name, good)
        query.processAllAvailable()
        told = [lag.bad_records for progress in query.recentProgress for lag in lag_of(progress)]
    assert sum(count or 0 for count in told) == 10
    assert told[-1] == 0


def test_failfast_names_the_record_and_never_shows_its_value(spark, kafka, topic, registry):
    name = topic("failfast", partitions=1)
    schema = record("Login", {"name": "user", "type": "string"}, {"name": "age", "type": "int"})
    registry.add(2, schema, f"{name}-value")
    write(kafka, name, framed(2, schema, {"user": SECRET, "age": 7})[:-1])
    with pytest.raises(Exception, match=f"{name}-0 at offset 0.*schema id is 2.*field age.*PERMISSIVE") as failed:
        loaded(spark, kafka, name, registry).collect()
    assert SECRET not in str(failed.value)
    write(kafka, name, framed(77, schema, {"user": "u", "age": 7}))
    with pytest.raises(Exception, match=f"{name}-0 at offset 1.*schema id is 77; the schema registry .* does not have"):
        loaded(spark, kafka, name, registry, startingOffsets=json.dumps({name: {"0": 1}})).collect()
    stranger = record("Login", {"name": "age", "type": "int"})
    registry.add(5, stranger)
    write(kafka, name, framed(5, stranger, {"age": 7}))
    with pytest.raises(Exception, match=r"schema id is 5; no value of it can be read with schema 2: field user"):
        loaded(spark, kafka, name, registry, startingOffsets=json.dumps({name: {"0": 2}})).collect()


def test_values_without_framing_have_the_schema_that_is_given(spark, kafka, topic):
    name = topic("unframed", partitions=1)
    write(kafka, name, datum(NOW, {"id": 3, "amount": 1.5}), None)
    options = {"value.format": "avro", "value.framing": "none", "value.schema": json.dumps(NOW)}
    assert values(reader(spark, kafka, name, **options).load()) == [(3, 1.5), None]


def test_a_pinned_id_keeps_the_columns(spark, kafka, topic, registry):
    name = topic("pinned-id", partitions=1)
    registry.add(2, NOW)
    registry.add(3, NEWER, f"{name}-value")
    write(kafka, name, framed(3, NEWER, {"id": 9, "amount": 3.5, "currency": "CHF"}))
    assert values(loaded(spark, kafka, name, registry, value_schema_id=2)) == [(9, 3.5)]


def test_strings_need_no_cast(spark, kafka, topic):
    name = topic("strings", partitions=1)
    write(kafka, name, "grüezi".encode())
    (row,) = (
        reader(spark, kafka, name, value_format="string", key_format="string").load().select("key", "value").collect()
    )
    assert row == ("k", "grüezi")


def test_a_pinned_read_has_columns_also_where_nothing_is_new(spark, kafka, topic, group, registry):
    name = topic("pinned", partitions=1)
    registry.add(2, NOW, f"{name}-value")
    write(kafka, name, framed(2, NOW, {"id": 5, "amount": 0.5}))
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": group,
        "subscribe": name,
        **avro(registry),
    }
    with kafkagroup.pinned(spark, options) as frame:
        assert frame.select("value.id").collect() == [(5,)]
    with kafkagroup.pinned(spark, options) as frame:
        assert frame.select("value.id").collect() == []


def test_a_registry_that_refuses_or_is_away_ends_load_without_its_secrets(spark, kafka, topic, registry):
    name = topic("refused", partitions=1)
    login = {"schema.registry.basic.auth.user.info": f"reader:{SECRET}", "schema.registry.timeout.ms": "1500"}
    path = f"/subjects/{name}-value/versions/latest"
    for answer, said in ((UNAUTHORIZED, "refuses to return"), (BROKEN, "HTTP 503"), (None, "does not have")):
        if answer is not None:
            registry.answers[path] = answer
        else:
            del registry.answers[path]
        with pytest.raises(Exception, match=said) as failed:
            loaded(spark, kafka, name, registry, **login)
        assert SECRET not in str(failed.value)
        assert base64.b64encode(f"reader:{SECRET}".encode()).decode() not in str(failed.value)


def test_a_stream_reads_new_ids_and_a_replay_has_the_columns_of_its_first_run(spark, kafka, topic, registry, tmp_path):
    name = topic("stream", partitions=1)
    registry.add(2, NOW, f"{name}-value")
    registry.add(5, SHOP, f"{name}-key")
    login = {"schema.registry.basic.auth.user.info": f"reader:{SECRET}", "startingOffsets": "earliest"}
    key = framed(5, SHOP, {"shop": 7})
    seen: dict[int, list[tuple[object, ...]]] = {}
    failing = False

    def keep(frame, number):
        seen[number] = [(*row.key, *row.value) for row in frame.orderBy("offset").collect()]
        if failing:
            raise RuntimeError("the sink is broken")

    def start():
        frame = stream(spark, kafka, name, **avro(registry, **login, key_format="avro"))
        return frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    write(kafka, name, framed(2, NOW, {"id": 1, "amount": 1.5}), key=key)
    with running(start()) as query:
        query.processAllAvailable()
        # A producer goes over to a newer schema: the running query resolves its values to the schema that it has.
        registry.add(3, NEWER, f"{name}-value")
        write(kafka, name, framed(3, NEWER, {"id": 2, "amount": 2.5, "currency": "CHF"}), key=key)
        query.processAllAvailable()
        failing = True
        registry.add(6, record("Shop", SHOP["fields"][0], CURRENCY), f"{name}-key")
        write(kafka, name, framed(3, NEWER, {"id": 3, "amount": 3.5, "currency": "CHF"}), key=key)
        with pytest.raises(Exception, match="the sink is broken"):
            query.processAllAvailable()
    assert seen == {0: [(7, 1, 1.5)], 1: [(7, 2, 2.5)], 2: [(7, 3, 3.5)]}
    assert '"schemas":{"value":2,"key":5}' in (tmp_path / "checkpoint" / "offsets" / "2").read_text().replace(" ", "")
    failing = False
    with running(start()) as query:
        query.processAllAvailable()
        write(kafka, name, framed(3, NEWER, {"id": 4, "amount": 4.5, "currency": "CHF"}), key=key)
        query.processAllAvailable()
    # The checkpoint's batch is resolved to the schema of its first run; the next one has the newer schema.
    assert seen[2] == [(7, "EUR", 3, 3.5, "EUR")]
    assert seen[3] == [(7, "EUR", 4, 4.5, "CHF")]
    everything = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in everything
    progress = json.dumps([one.json if hasattr(one, "json") else str(one) for one in query.recentProgress])
    assert SECRET not in progress


def test_a_query_ends_at_a_newer_schema_if_asked_to_and_has_its_columns_after_a_restart(
    spark, kafka, topic, kafkagroup_schema_registry, tmp_path
):
    name, registry = topic("restart", partitions=1), kafkagroup_schema_registry
    old = registry.register(f"{name}-value", NOW)
    seen: dict[int, list[object]] = {}

    def start():
        options = {"startingOffsets": "earliest", "avroSchemaEvolutionMode": "restart", **avro(registry)}
        frame = stream(spark, kafka, name, **options)
        writer = frame.writeStream.foreachBatch(lambda rows, number: seen.update({number: values(rows)}))
        return writer.option("checkpointLocation", str(tmp_path)).start()

    write(kafka, name, framed(old, NOW, {"id": 1, "amount": 1.5}))
    with running(start()) as query:
        query.processAllAvailable()
        new = registry.register(f"{name}-value", NEWER)
        write(kafka, name, framed(new, NEWER, {"id": 3, "amount": 3.5, "currency": "CHF"}))
        with pytest.raises(Exception, match=f"has schema {old}, and subject {name}-value has .* schema {new}"):
            query.processAllAvailable()
    with running(start()) as query:
        query.processAllAvailable()
    # The value that ended the query has its new field.
    assert [seen[number] for number in sorted(seen)] == [[(1, 1.5)], [(3, 3.5, "CHF")]]


def test_the_plan_does_not_show_the_registrys_secrets(spark, kafka, topic, registry, capsys):
    name = topic("plan", partitions=1)
    registry.add(2, NOW, f"{name}-value")
    login = {
        "schema.registry.basic.auth.user.info": f"reader:{SECRET}",
        "schema.registry.bearer.auth.logical.cluster": "c",
    }
    loaded(spark, kafka, name, registry, **login).explain(extended=True)
    assert SECRET not in capsys.readouterr().out


LINE = 'syntax = "proto3"; package shop; message Line { string item = 1; uint32 count = 2; }'
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "shop/line.proto";
import "google/protobuf/duration.proto";
message Note { string text = 1; }
message Order {
  int64 id = 1;
  repeated Line lines = 2;
  map<int32, string> names = 3;
  google.protobuf.Duration took = 4;
  optional double discount = 5;
}
"""


def test_protobuf_values_are_columns(spark, kafka, topic, kafkagroup_schema_registry):
    """Two schemas by turns, of which one refers to a third; tombstones, another message, damaged bytes; Avro keys."""
    name, registry = topic("protobuf", partitions=1), kafkagroup_schema_registry
    of_key = registry.register(f"{name}-key", SHOP)
    registry.register("line", LINE, kind="PROTOBUF")
    subject = f"{name}-value"
    before = registry.register(
        subject, 'syntax = "proto3"; package shop; message Order { int64 id = 1; }', kind="PROTOBUF"
    )
    of_line = [{"name": "shop/line.proto", "subject": "line", "version": 1}]
    now = registry.register(subject, ORDER_PROTO, kind="PROTOBUF", references=of_line)
    old = b"\0" + before.to_bytes(4, "big") + b"\0\x08\x07"
    head = b"\0" + now.to_bytes(4, "big")
    new = head + b"\x02\x02\x08\x08\x12\x05\x0a\x01x\x10\x02\x1a\x05\x08\x03\x12\x01y\x22\x02\x08\x05"
    bad = [head + b"\0\x0a\x01x", head + b"\x02\x02\x12\x05\x0a\x03ab"]
    key = framed(of_key, SHOP, {"shop": 7})
    write(kafka, name, *[old, new, None] * 20, *bad, key=key)
    write(kafka, name, old, key=key[:-1])
    options = {"value.format": "protobuf", "schema.registry.url": registry.url, "value.message.name": "shop.Order"}
    frame = reader(spark, kafka, name, **options, mode="PERMISSIVE", key_format="avro").load()
    assert frame.schema["key"].dataType.simpleString() == "struct<shop:int>"
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,lines:array<struct<item:string,count:bigint>>,names:map<int,string>,"
        "took:interval day to second,discount:double>"
    )
    rows = frame.orderBy("offset").collect()
    read: list[object] = [(7, [], {}, None, None), (8, [("x", 2)], {3: "y"}, timedelta(seconds=5), None), None]
    assert [row.value for row in rows] == [*read * 20, None, None, read[0]]
    assert [row.key for row in rows] == [(7,)] * 62 + [None]
    assert [row["_corrupt_record"] for row in rows[-4:]] == [None, *bad, None]
    assert [row["_corrupt_record_key"] for row in rows[-2:]] == [None, key[:-1]]
    with pytest.raises(Exception, match=rf"{name}-0 at offset 60.*schema id is {now}; the record is a message Note"):
        reader(spark, kafka, name, **options).schema("value struct<discount: double, id: bigint>").load().collect()


def test_values_of_a_json_schema_are_columns(spark, kafka, topic, kafkagroup_schema_registry):
    """Two schemas by turns, of which one refers to a third; tombstones, damaged JSON, an Avro value; plain keys."""
    name, registry = topic("json-schema", partitions=1), kafkagroup_schema_registry
    line = {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}
    order: dict[str, object] = {"id": {"type": "integer"}, "amount": {"type": ["number", "null"]}}
    registry.register(f"{name}-line", line, kind="JSON")
    before = registry.register(f"{name}-value", {"type": "object", "properties": order}, kind="JSON")
    order |= {
        "lines": {"type": "array", "items": {"$ref": "line.json"}},
        "at": {"type": "string", "format": "date-time"},
    }
    of_line = [{"name": "line.json", "subject": f"{name}-line", "version": 1}]
    schema = {"type": "object", "properties": order}
    now = registry.register(f"{name}-value", schema, kind="JSON", references=of_line)
    avro_id = registry.register(f"{name}-avro", NOW)

    def written(number, value):
        return b"\0" + number.to_bytes(4, "big") + value

    old = written(before, b'{"id": 7, "amount": null}')
    new = written(now, b'{"amount": 2.5, "id": 8, "lines": [{"item": "x"}], "at": "2026-11-26T10:20:30Z", "more": {}}')
    bad = [written(now, b'{"id": "8"}'), b'{"id": 8}', framed(avro_id, NOW, {"id": 5, "amount": 0.5})]
    write(kafka, name, *[old, new, None] * 20, *bad, key=b'{"shop": 7}')
    options = {
        "value.format": "json",
        "schema.registry.url": registry.url,
        "key.format": "json",
        "key.schema": "shop int",
    }
    frame = reader(spark, kafka, name, **options, mode="PERMISSIVE").load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,amount:double,lines:array<struct<item:string,count:bigint>>,at:timestamp>"
    )
    fields = ("value.id", "value.amount", "value.lines", "unix_seconds(value.at) AS at")
    rows = frame.orderBy("offset").selectExpr(*fields, "key.shop", "_corrupt_record").collect()
    read: list[tuple[object, ...]] = [(7, None, None, None), (8, 2.5, [("x", None)], 1_795_688_430), (None,) * 4]
    assert [tuple(row)[:4] for row in rows] == [*read * 20, *[(None,) * 4] * 3]
    assert {row.shop for row in rows} == {7}
    assert [row["_corrupt_record"] for row in rows[-3:]] == bad
    with pytest.raises(Exception, match=rf"{name}-0 at offset 60.*schema id is {now}; field id: not a number"):
        reader(spark, kafka, name, **options).schema("value struct<id: bigint>").load().collect()
    # The type may be given, and is then all that is needed of the registry.
    given = {"value.format": "json", "value.schema": "id bigint", "value.framing": "confluent", "mode": "DROPMALFORMED"}
    assert values(reader(spark, kafka, name, **given).load()) == [*[(7,), (8,), None] * 20]
    # Of a pinned id, and without a frame.
    pinned = {**options, "value.schema.id": before, "value.framing": "none", "mode": "DROPMALFORMED"}
    assert [row for row in values(reader(spark, kafka, name, **pinned).load()) if row] == [(8, None)]


def test_several_record_types_of_one_topic(spark, kafka, topic, kafkagroup_schema_registry):
    """Subjects by topic and record name: two of three types, one of them, one member; and a union of references."""
    name, registry = topic("types", partitions=1), kafkagroup_schema_registry
    order, note = (
        record("shop.Order", ID, AMOUNT),
        record("shop.Note", {"name": "text", "type": "string", "default": "-"}),
    )
    other = record("shop.Return", {"name": "reason", "type": "string"})
    schemas = {one["name"]: one for one in (order, note, other)}
    ids = {one: registry.register(f"{name}-{one}", schema) for one, schema in schemas.items()}

    def written(schema, value):
        return framed(ids[schema["name"]], schema, value)

    stranger = written(other, {"reason": "broken"})
    write(kafka, name, written(order, {"id": 1, "amount": 1.5}), written(note, {"text": "a"}), stranger, None)
    subjects = {"value.subject": f"{name}-shop.Order,{name}-shop.Note"}
    frame = loaded(spark, kafka, name, registry, **subjects, mode="PERMISSIVE")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<member0:struct<id:bigint,amount:double>,member1:struct<text:string>>"
    )
    rows = frame.orderBy("offset").collect()
    assert [row.value for row in rows] == [((1, 1.5), None), (None, ("a",)), None, None]
    assert [row["_corrupt_record"] for row in rows] == [None, None, stranger, None]
    with pytest.raises(Exception, match=rf"{name}-0 at offset 2.*the record is a Return, and the column Order or Note"):
        loaded(spark, kafka, name, registry, **subjects).collect()
    # One member, and one type, whose fields all have defaults.
    source = reader(spark, kafka, name, **avro(registry, **subjects), mode="DROPMALFORMED")
    notes = source.schema("value struct<member1: struct<text: string>>").load()
    assert [row.value and row.value.member1 for row in notes.collect()] == [None, ("a",), None]
    one = loaded(spark, kafka, name, registry, **{"value.subject": f"{name}-shop.Note"}, mode="DROPMALFORMED")
    assert values(one) == [("a",), None]
    # One schema that refers to the others, as Confluent advises.
    union = topic("union", partitions=1)
    references = [{"name": key, "subject": f"{name}-{key}", "version": 1} for key in ("shop.Order", "shop.Note")]
    number = registry.register(f"{union}-value", ["shop.Order", "shop.Note"], references=references)
    of_union = [framed(number, [order, note], value) for value in ({"id": 2, "amount": 2.5}, {"text": "b"})]
    write(kafka, union, *of_union, written(note, {"text": "c"}))
    found = [((2, 2.5), None), (None, ("b",)), (None, ("c",))]
    assert values(loaded(spark, kafka, union, registry)) == found


AWAY, PATIENCE = 600.0, 30.0


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_registry_that_is_away_for_ten_minutes(spark, kafka, topic, tmp_path):
    """Its process is stopped. Values of known ids are read on, and one of an unknown id waits, and is named."""
    steady, other = topic("steady", partitions=1), topic("other", partitions=1)
    subject = f"{steady}-value"
    seen: dict[str, list[int]] = {steady: [], other: []}
    rounds = 0
    with SchemaRegistry() as registry:
        old, now = (registry.register(subject, schema) for schema in (OLD, NOW))
        patience = {"schema.registry.timeout.ms": int(PATIENCE * 1000), "value.subject": subject}

        def start(name):
            def keep(rows, _):
                seen[name].extend(value.id for value in values(rows))

            frame = stream(spark, kafka, name, **avro(registry, **patience, startingOffsets="earliest"))
            return frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / name)).start()

        def write_known(name, number):
            write(kafka, name, framed(old, OLD, {"id": number}), framed(now, NOW, {"id": number, "amount": 0.5}))

        def is_read(count):
            return len(seen[steady]) == count or not going.isActive

        def go_on(seconds):
            """Write values of known ids each second, and see that they are read."""
            nonlocal rounds
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                rounds += 1
                write_known(steady, rounds)
                wait_until(partial(is_read, 2 * rounds), "values of known ids")
                assert going.isActive, going.exception()
                time.sleep(1)

        going, waiting = start(steady), start(other)
        try:
            write_known(other, 1)
            go_on(5)
            wait_until(lambda: len(seen[other]) == 2, "the values of the other topic")
            # Spark has a Python worker for each of its two cores: both meet the old schema.
            both = reader(spark, kafka, f"{steady},{other}", **avro(registry, **patience), min_records_per_task=1)
            assert both.load().where("value.id > 0").count() == 2 * rounds + 2
            new = registry.register(subject, NEWER)
            unknown = framed(new, NEWER, {"id": 0, "amount": 0.5, "currency": "CHF"})
            registry.pause()
            began = time.monotonic()
            write(kafka, other, unknown)
            go_on(PATIENCE / 2)
            assert waiting.isActive, waiting.exception()
            go_on(PATIENCE + 15)
            assert not waiting.isActive
            said = rf"asked to return the schema with id {new} and does not answer \(no answer within"
            with pytest.raises(Exception, match=said):
                waiting.processAllAvailable()
            go_on(AWAY - (time.monotonic() - began))
            # This one is answered in time.
            write(kafka, steady, unknown)
            time.sleep(5)
            assert going.isActive
            assert len(seen[steady]) == 2 * rounds
            registry.resume()
            assert time.monotonic() - began > AWAY
            wait_until(lambda: len(seen[steady]) > 2 * rounds, "the value of the new id")
            waiting = start(other)
            waiting.processAllAvailable()
        finally:
            going.stop()
            waiting.stop()
    assert seen == {steady: [*(number for n in range(rounds) for number in (n + 1, n + 1)), 0], other: [1, 1, 0]}
