"""Structs written as Avro: a real topic, a real Spark, a real registry, and one that answers as the test says."""

from __future__ import annotations

import io
import json
import struct
from urllib.request import Request, urlopen

import fastavro
import pytest

from tests.support.avro import record
from tests.support.native import kernel
from tests.support.records import reader
from tests.support.registry_server import RegistryServer

kernel()

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
AMOUNT = {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}}
ORDER = record("Order", ID, NOTE, AMOUNT)
VALUE = "named_struct('amount', CAST(id / 4 AS decimal(9,2)), 'id', id)"
SECRET = "hunter2hunter2"


@pytest.fixture
def registry():
    with RegistryServer() as server:
        yield server


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
    registry.answers[path] = 401, {}, b"{}"
    with pytest.raises(Exception, match=r"refuses to return .*HTTP 401") as failed:
        writer(orders(spark), kafka, registry.url, name, **login).save()
    assert SECRET not in str(failed.value)
    registry.answers[f"/subjects/{name}-value"] = 404, {}, b'{"error_code":40403,"message":"Schema not found"}'
    with pytest.raises(Exception, match=r"value\.schema among the versions of subject .*: register it, or set auto"):
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
