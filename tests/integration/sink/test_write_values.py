"""Structs written as Avro, Protobuf and JSON: a real topic, Spark and registry, and one that answers as told."""

import io
import json
import struct
from urllib.request import Request, urlopen

import fastavro
import pytest
from pyspark.sql.functions import struct as struct_of

from tests.support.avro import record
from tests.support.native import kernel
from tests.support.records import reader

kernel()

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
AMOUNT = {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}}
ORDER = record("Order", ID, NOTE, AMOUNT)
LINE_AT = {"name": "line.json", "subject": "line", "version": 1}
LINE = {"type": "object", "properties": {"count": {"type": "integer"}}}
ORDER_AS_JSON = {"type": "object", "properties": {"lines": {"type": "array", "items": {"$ref": "line.json"}}}}
VALUE = "named_struct('amount', CAST(id / 4 AS decimal(9,2)), 'id', id)"
SECRET = "hunter2hunter2"


def rows(spark, kafka, name):
    """The values of a topic as Spark's own bytes, in the order of their keys."""
    found = reader(spark, kafka, name, **{"kafka.isolation.level": "read_committed"}).load().orderBy("key").collect()
    return [None if row.value is None else bytes(row.value) for row in found]


def datum(data):
    """An order as fastavro reads it."""
    told = fastavro.schemaless_reader(data, fastavro.parse_schema(ORDER))
    assert isinstance(told, dict)
    return told


def framed(value):
    """The schema id of a value, and its datum as fastavro reads it."""
    magic, number = struct.unpack(">bI", value[:5])
    assert magic == 0
    return number, io.BytesIO(value[5:])


def writer(frame, kafka, url, name, **options):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "value.format": "avro", **options}
    if url:
        given["schema.registry.url"] = url
    return frame.write.format("kafkagroup").mode("append").options(**given)


def orders(spark, count=3, value=VALUE):
    return spark.range(count).selectExpr("CAST(id AS string) AS key", f"{value} AS value")


def test_a_struct_is_written_with_the_newest_schema_of_the_topics_subject(spark, kafka, topic, registry):
    name = topic("newest", partitions=1)
    registry.add(7, ORDER, f"{name}-value")
    # A null is a tombstone.
    frame = orders(spark, 4, f"IF(id = 2, NULL, {VALUE})")
    writer(frame, kafka, registry.url, name).save()
    values = rows(spark, kafka, name)
    assert values[2] is None
    number, data = framed(values[3])
    told = datum(data)
    # What the column does not have is the schema's default.
    assert (number, told["id"], str(told["amount"]), told["note"]) == (7, 3, "0.75", None)
    # The tasks ask nobody.
    assert registry.asked == [f"/subjects/{name}-value/versions/latest"]
    read = reader(spark, kafka, name, **{"value.format": "avro", "schema.registry.url": registry.url}).load()
    assert [row.value and row.value.id for row in read.orderBy("key").collect()] == [0, 1, None, 3]


def test_a_stream_writes_each_row_once_and_registers_the_columns_schema(
    spark, kafka, topic, kafkagroup_schema_registry, tmp_path
):
    registry, name = kafkagroup_schema_registry, topic("stream-values", partitions=2)
    folder = tmp_path / "rows"
    spark.range(10).selectExpr("id", "CAST(id AS string) AS note").write.json(str(folder))
    source = spark.readStream.schema("id bigint, note string").json(str(folder))
    stream = source.selectExpr("note AS key", "struct(id, note) AS value").writeStream.format("kafkagroup")
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "transactional": "true",
        "transactional.id.prefix": name,
        "value.format": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.basic.auth.user.info": f"writer:{SECRET}",
        "auto.register.schemas": "true",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    for _ in range(2):
        stream.options(**options).trigger(availableNow=True).start().awaitTermination()
        spark.range(10, 12).selectExpr("id", "CAST(id AS string) AS note").write.mode("append").json(str(folder))
    read = reader(spark, kafka, name, **{"value.format": "avro", "schema.registry.url": registry.url}).load()
    assert read.schema["value"].dataType.simpleString() == "struct<id:bigint,note:string>"
    assert sorted(row.value.id for row in read.collect()) == list(range(12))
    kept = "".join(path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert SECRET not in kept
    # A column that the registry does not accept for this subject: its own words, before any record.
    body = json.dumps({"compatibility": "FULL"}).encode()
    kind = {"Content-Type": "application/json"}
    urlopen(Request(f"{registry.url}/config/{name}-value", body, kind, method="PUT"), timeout=30).close()
    wrong = orders(spark, 1, "struct(CAST(id AS string) AS id, map('a', 1) AS more)")
    with pytest.raises(Exception, match=f"refuses to register .* subject {name}-value .HTTP 409.*It says: ") as failed:
        writer(wrong, kafka, registry.url, name, **{"auto.register.schemas": "true"}).save()
    assert "Task" not in str(failed.value) and len(rows(spark, kafka, name)) == 12


def test_what_does_not_fit_ends_the_write_before_the_first_record(spark, kafka, topic, registry, capsys):
    name = topic("refused-values", partitions=1)
    login = {"schema.registry.basic.auth.user.info": f"writer:{SECRET}"}
    path = f"/subjects/{name}-value/versions/latest"
    missing = rf"does not have the newest schema of subject {name}-value: register one, set auto\.register\.schemas"
    registry.answers[path] = 404, {}, b'{"error_code":40401,"message":"no subject"}'
    with pytest.raises(Exception, match=missing):
        writer(orders(spark), kafka, registry.url, name, **login).save()
    registry.add(7, ORDER, f"{name}-value")
    wrong = orders(spark, 3, "named_struct('id', id, 'amount', 'much')")
    with pytest.raises(Exception, match=r"schema 7: field amount: the column has string, .* bytes .decimal\(6,2\)"):
        writer(wrong, kafka, registry.url, name, **login).save()
    registry.add(8, ORDER_AS_JSON, f"{name}-value", schemaType="JSON", references=[LINE_AT])
    registry.answers["/subjects/line/versions/1"] = 200, {}, json.dumps({"schema": json.dumps(LINE)}).encode()
    wrong = orders(spark, 3, "named_struct('id', id, 'lines', array(named_struct('count', 'many')))")
    unfit = r"schema 8: field lines\[\]\.count: the column has string, and the schema allows integer\. Change the"
    with pytest.raises(Exception, match=unfit):
        writer(wrong, kafka, registry.url, name, **login, **{"value.format": "json"}).save()
    given = {"value.format": "json", "value.schema": json.dumps({"required": ["at"]}), "auto.register.schemas": "true"}
    with pytest.raises(Exception, match=r"value\.format=json: field at: the column does not have it, and the schema"):
        writer(wrong, kafka, registry.url, name, **login, **given).save()
    assert registry.posted == []
    registry.answers[path] = 401, {}, b"{}"
    with pytest.raises(Exception, match=r"refuses to return .*HTTP 401") as failed:
        writer(orders(spark), kafka, registry.url, name, **login).save()
    assert SECRET not in str(failed.value)
    registry.answers[f"/subjects/{name}-value"] = 404, {}, b'{"error_code":40403,"message":"Schema not found"}'
    with pytest.raises(Exception, match=r"the given schema among the versions of subject .*: register it, or set auto"):
        writer(orders(spark), kafka, registry.url, name, **{"value.schema": json.dumps(ORDER)}).save()
    assert rows(spark, kafka, name) == []


def test_a_value_that_does_not_fit_names_topic_and_path_and_is_not_shown(spark, kafka, topic):
    name = topic("unfit-values", partitions=1)
    options = {"value.schema": json.dumps(ORDER), "value.framing": "none"}
    large = orders(spark, 3, "named_struct('id', id, 'amount', CAST(123456.78 AS decimal(9,2)))")
    with pytest.raises(
        Exception, match=rf"topic {name} .* field amount: the decimal has more than the 6 digits"
    ) as failed:
        writer(large, kafka, "", name, **options).save()
    assert "123456" not in str(failed.value)
    writer(orders(spark, 1), kafka, "", name, **options).save()
    (value,) = rows(spark, kafka, name)
    assert datum(io.BytesIO(value))["id"] == 0


PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Refund { int64 id = 1; }
message Order { int64 id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; optional string note = 4;
  message Line { string item = 1; uint32 count = 2; } }"""
LINES = (
    "named_struct('ID', CAST(id AS int), 'at', timestamp_millis(1500 + id), 'note', IF(id = 1, NULL, 'n'), "
    "'lines', array(named_struct('count', id, 'item', 'x')))"
)


def test_a_struct_is_written_as_protobuf_and_its_key_as_avro_and_read_back(
    spark, kafka, topic, kafkagroup_schema_registry
):
    registry, name = kafkagroup_schema_registry, topic("protobuf-values", partitions=1)
    options = {"value.format": "protobuf", "value.message.name": "shop.Order", "key.format": "avro"}
    frame = orders(spark, 4, f"IF(id = 2, NULL, {LINES})").withColumn("key", struct_of("key"))
    given = {**options, "value.schema": PROTO}
    with pytest.raises(Exception, match=r"does not have .* subject .*: register it, or set auto\.register\.schemas"):
        writer(frame, kafka, registry.url, name, **given).save()
    writer(frame, kafka, registry.url, name, **given, **{"auto.register.schemas": "true"}).save()
    # Now the subject has it.
    writer(frame.limit(1), kafka, registry.url, name, **options).save()
    values = rows(spark, kafka, name)
    # After the id come the indexes of the message, which is the second one of the file.
    assert [value and value[5:7] for value in values] == [b"\2\2", b"\2\2", b"\2\2", None, b"\2\2"]
    read = reader(spark, kafka, name, **options, **{"schema.registry.url": registry.url}).load()
    found = (
        read.orderBy("key")
        .selectExpr("key.key AS k", "value.*")
        .selectExpr("k", "id", "lines", "unix_micros(at)", "note")
    )
    assert [tuple(row) for row in found.collect()[1:]] == [
        ("0", 0, [("x", 0)], 1_500_000, "n"),
        ("1", 1, [("x", 1)], 1_501_000, None),
        ("2", None, None, None, None),
        ("3", 3, [("x", 3)], 1_503_000, "n"),
    ]
    wrong = orders(spark, 1, "named_struct('id', id, 'lines', array(named_struct('price', 1)))")
    with pytest.raises(Exception, match=r"column key cannot be written with schema \d+: the column has string, which"):
        writer(orders(spark, 1, LINES), kafka, registry.url, name, **options).save()
    options["key.format"] = "string"
    with pytest.raises(Exception, match=r"schema \d+: field lines\[\]\.price: message shop\.Order\.Line has no field"):
        writer(wrong, kafka, registry.url, name, **options).save()


def test_a_struct_is_written_as_json_with_the_id_of_its_schema_or_without(spark, kafka, topic, registry):
    plain, framed_name = topic("json-values", partitions=1), topic("json-schema-values", partitions=1)
    frame = orders(spark, 3, f"IF(id = 2, NULL, {LINES})")
    writer(frame, kafka, "", plain, **{"value.format": "json"}).save()
    texts = [row.text and row.text.encode() for row in frame.selectExpr("to_json(value) AS text").collect()]
    assert rows(spark, kafka, plain) == texts
    schema = "id bigint, at timestamp, note string, lines array<struct<count: bigint, item: string>>"
    read = reader(spark, kafka, plain, **{"value.format": "json", "value.schema": schema}).load().orderBy("key")
    assert [row.value and row.value.lines for row in read.collect()] == [[(0, "x")], [(1, "x")], None]
    registry.answers[f"/subjects/{framed_name}-value/versions"] = 200, {}, b'{"id": 9}'
    registry.add(9, {"type": "object"}, schemaType="JSON")
    options = {"value.format": "json", "auto.register.schemas": "true"}
    writer(frame, kafka, registry.url, framed_name, **options).save()
    (posted,) = registry.posted
    assert (posted["schemaType"], list(json.loads(posted["schema"])["properties"])) == (
        "JSON",
        ["ID", "at", "note", "lines"],
    )
    values = rows(spark, kafka, framed_name)
    assert [value and value[:5] for value in values] == [b"\0\0\0\0\x09", b"\0\0\0\0\x09", None]
    assert [value and value[5:] for value in values] == texts
    text = orders(spark, 1, "to_json(named_struct('id', id))")
    with pytest.raises(Exception, match="the column has string, but JSON needs a struct, an array or a map"):
        writer(text, kafka, "", plain, **{"value.format": "json"}).save()
