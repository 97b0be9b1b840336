"""Avro values read as columns, beside raw bytes, ready-made columns, and the JVM's connector with `from_avro`.

The same rows as Protobuf, and as JSON beside the JVM's connector with `from_json`. Then columns written as Avro,
Protobuf and JSON values, beside the JVM's connector with `to_avro` and `to_json`, and beside the floor, a Python sink
that drops Spark's rows.

    ./run bench values [--records 4000000] [--rounds 5] [--only reading|writing]

Ten fields and about 100 bytes a value (230 as JSON), one schema id or two in turns. `from_avro` takes one schema, so
the JVM reads the topic with one id only. spark-protobuf was not available, and the newest spark-avro is 4.1.1: with
another pyspark, Avro is measured without the JVM. To measure the JVM too, install that version beside the environment:

    pip install --target FOLDER --no-deps pyspark==4.1.1
    PYTHONPATH=FOLDER ./run bench values
"""

import io
import json
import random
import struct
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial

import fastavro
import pyspark
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, from_json, to_json

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Comparison, Figures, in_turns
from benchmarks.read.topics import PARTITIONS, produce
from kafkagroup.embedded import EmbeddedKafka, SchemaRegistry

PEERS_SPARK = "4.1.1"
PEERS_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PEERS_SPARK}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{PEERS_SPARK}",
    f"org.apache.spark:spark-avro_2.13:{PEERS_SPARK}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)

AVRO, MIXED, FEWER, RAW, READY, JVM, JVM_TUNED = (
    *("avro", "avro, two ids", "avro, 3 of 10 fields", "raw bytes", "ready-made"),
    *("from_avro", "from_avro, tuned"),
)
PROTOBUF, JSON, FROM_JSON = "protobuf", "json", "from_json"
WRITE, JVM_WRITE, DROP = "write avro", "to_avro", "drop"
WRITE_PROTOBUF, WRITE_JSON, TO_JSON = "write protobuf", "write json", "to_json"
FIELDS = {
    "id": "long",
    "customer": "string",
    "amount": "double",
    "currency": "string",
    "quantity": "int",
    "placed_at": {"type": "long", "logicalType": "timestamp-millis"},
    "paid": "boolean",
    "note": ["null", "string"],
    "country": "string",
    "weight": "float",
}
# The same fields in Protobuf, numbered from 1.
PROTOBUF_FIELDS = {
    **dict.fromkeys(FIELDS, "string"),
    **{"id": "int64", "amount": "double", "quantity": "int32", "placed_at": "google.protobuf.Timestamp"},
    **{"paid": "bool", "weight": "float"},
}
# The columns in Spark's notation.
COLUMNS = (
    "id bigint, customer string, amount double, currency string, quantity int, placed_at timestamp, paid boolean, "
    "note string, country string, weight float"
)
# Rows to write, of about the same size.
MADE = (
    "id AS id, format_string('customer-%012d', id) AS customer, id * 0.37D AS amount, "
    "element_at(array('EUR', 'CHF', 'USD'), CAST(id % 3 + 1 AS int)) AS currency, CAST(id % 100 AS int) AS quantity, "
    "timestamp_millis(1700000000000 + id) AS placed_at, id % 3 = 0 AS paid, "
    "IF(id % 2 = 0, 'leave it at the door, please', NULL) AS note, 'Switzerland' AS country, "
    "CAST(id * 0.1D AS float) AS weight"
)
FEW_COLUMNS = "id bigint, amount double, country string"


def schema(*, extra: bool) -> dict[str, object]:
    fields: list[dict[str, object]] = [{"name": name, "type": kind} for name, kind in FIELDS.items()]
    if extra:
        fields.insert(3, {"name": "channel", "type": "string", "default": ""})
    return {"type": "record", "name": "Order", "fields": fields}


def proto() -> str:
    fields = (f"optional {kind} {name} = {number};" for number, (name, kind) in enumerate(PROTOBUF_FIELDS.items(), 1))
    return f'syntax = "proto2"; import "google/protobuf/timestamp.proto"; message Order {{ {" ".join(fields)} }}'


def orders() -> list[dict[str, object]]:
    rng = random.Random(7)
    return [
        {
            "id": number,
            "customer": f"customer-{rng.randrange(10**9):012d}",
            "amount": rng.random() * 1000,
            "currency": rng.choice(("EUR", "CHF", "USD")),
            "quantity": rng.randrange(1, 100),
            "placed_at": 1_700_000_000_000 + number,
            "paid": number % 3 == 0,
            "note": None if number % 2 else "leave it at the door, please",
            "country": rng.choice(("Switzerland", "Germany", "France")),
            "weight": rng.random(),
            "channel": "web",
        }
        for number in range(20_000)
    ]


def encoded(numbers: tuple[int, ...]) -> list[bytes]:
    """Return values whose schema ids take turns; the second schema has one more field between the others."""
    parsed = [fastavro.parse_schema(schema(extra=index == 1)) for index in range(len(numbers))]
    values = []
    for number, value in enumerate(orders()):
        turn = number % len(numbers)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed[turn], value)
        values.append(struct.pack(">bI", 0, numbers[turn]) + out.getvalue())
    return values


def as_protobuf(number: int) -> list[bytes]:
    """Return values of the first message of the schema with this id."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", dependency=[timestamp_pb2.DESCRIPTOR.name])
    message = file.message_type.add(name="Order")
    for position, (name, kind) in enumerate(PROTOBUF_FIELDS.items(), 1):
        field = message.field.add(name=name, number=position, label=1)
        if "." in kind:
            field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".{kind}"
        else:
            field.type = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    values = []
    for value in orders():
        made = order(**{name: value[name] for name in FIELDS if name != "placed_at" and value[name] is not None})
        made.placed_at.FromMilliseconds(value["placed_at"])
        values.append(struct.pack(">bI", 0, number) + b"\0" + made.SerializeToString())
    return values


def as_json() -> list[bytes]:
    values = []
    for value in orders():
        seconds = int(str(value["placed_at"])) / 1000
        at = datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
        values.append(json.dumps({name: value[name] for name in FIELDS} | {"placed_at": at}).encode())
    return values


def fill(kafka: EmbeddedKafka, topic: str, values: list[bytes], records: int) -> None:
    kafka.create_topic(topic, PARTITIONS)
    rows = (
        {"value": values[number % len(values)], "partition": number // 100 % PARTITIONS} for number in range(records)
    )
    produce(kafka.internal_bootstrap_servers, topic, rows, {"linger.ms": 20})


def seconds(frame: Callable[[], DataFrame]) -> float:
    started = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def writing(
    spark: SparkSession, servers: str, registry: str, ids: dict[str, int], records: int, *, with_jvm: bool
) -> dict[str, Callable[[], float]]:
    """Return the writes of the same rows by kafkagroup and by the JVM's sink; `ids` are the schemas' ids, by format."""
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(f"struct({MADE}) AS value").cache()
    rows.count()

    def written(frame: DataFrame, name: str, options: dict[str, str]) -> float:
        started = time.perf_counter()
        writer = frame.write.format(name).mode("append").options(**options).option("topic", f"written-{name}")
        writer.option("kafka.bootstrap.servers", servers).save()
        return time.perf_counter() - started

    def ours(value_format: str) -> Callable[[], float]:
        options = {"value.format": value_format}
        if value_format in ids:
            options |= {"schema.registry.url": registry, "value.schema.id": str(ids[value_format])}
        return partial(written, rows, "kafkagroup", options)

    contestants = {WRITE: ours("avro"), WRITE_PROTOBUF: ours("protobuf"), WRITE_JSON: ours("json")}
    contestants[DROP] = partial(written, rows, sources.FORMATS[sources.FLOOR][0], {})
    contestants[TO_JSON] = partial(written, rows.select(to_json("value").alias("value")), "kafka", {})
    if with_jvm:
        from pyspark.sql.avro.functions import to_avro
        from pyspark.sql.functions import concat, unhex
        from pyspark.sql.functions import lit as literal

        head = unhex(literal(f"00{ids['avro']:08x}"))
        framed = concat(head, to_avro("value", json.dumps(schema(extra=False)))).alias("value")
        contestants[JVM_WRITE] = partial(written, rows.select(framed), "kafka", {})
    return contestants


def compare_reads(
    spark: SparkSession, servers: str, registry: str, schema_id: int, rounds: int, *, with_jvm: bool
) -> None:
    def ours(topic: str, columns: str, name: str = "kafkagroup") -> DataFrame:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        if columns != "value binary":
            reader = reader.option("value.format", "avro").option("schema.registry.url", registry)
            reader = reader.option("value.schema.id", schema_id)
        return reader.schema(columns).load()

    def others(value_format: str, options: dict[str, str]) -> DataFrame:
        reader = spark.read.format("kafkagroup").option("kafka.bootstrap.servers", servers)
        return reader.options(**{"value.format": value_format, **options}).schema(every).load()

    def parsed() -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "json")
        return reader.load().select(from_json(col("value").cast("string"), COLUMNS).alias("value"))

    def jvms(options: dict[str, str]) -> DataFrame:
        from pyspark.sql.avro.functions import from_avro

        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "one")
        value = from_avro(expr("substring(value, 6)"), json.dumps(schema(extra=False)))
        return reader.options(**options).load().select(value.alias("value"))

    every = f"value struct<{COLUMNS}>"
    frames: dict[str, Callable[[], DataFrame]] = {
        AVRO: partial(ours, "one", every),
        MIXED: partial(ours, "two", every),
        FEWER: partial(ours, "one", f"value struct<{FEW_COLUMNS}>"),
        RAW: partial(ours, "one", "value binary"),
        READY: partial(ours, "one", every, sources.FORMATS[sources.FLOOR][0]),
    }
    of_registry = {"schema.registry.url": registry, "subscribe": "protobuf"}
    frames |= {
        PROTOBUF: partial(others, "protobuf", of_registry),
        JSON: partial(others, "json", {"value.schema": COLUMNS, "subscribe": "json"}),
        FROM_JSON: parsed,
    }
    assert frames[PROTOBUF]().exceptAll(frames[AVRO]()).isEmpty(), "the values differ from those of Avro"
    assert frames[JSON]().exceptAll(frames[FROM_JSON]()).isEmpty(), "the values differ from those of from_json"
    if with_jvm:
        frames |= {JVM: partial(jvms, {}), JVM_TUNED: partial(jvms, dict(sources.FORMATS[sources.TUNED][1]))}
        assert frames[JVM]().exceptAll(frames[AVRO]()).isEmpty(), "the values differ from those of from_avro"
    figures = Figures(
        "values",
        comparisons=(
            *(Comparison(AVRO, peer, 4.0) for peer in (JVM, JVM_TUNED)),
            *(Comparison(MIXED, peer, 4.0) for peer in (JVM, JVM_TUNED)),
            Comparison(AVRO, READY, 1 / 1.15),
            Comparison(AVRO, RAW),
            Comparison(PROTOBUF, AVRO),
            Comparison(JSON, FROM_JSON, 2.0),
            Comparison(FEWER, RAW, 1 / 0.9),
        ),
    )
    in_turns(figures, {name: partial(seconds, frame) for name, frame in frames.items()}, rounds)


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--only", choices=("reading", "writing"))
    given = begin(parser, HEAD)
    with_jvm = pyspark.__version__ == PEERS_SPARK
    spark = sources.session(jars=PEERS_JARS if with_jvm else sources.PEER)
    with EmbeddedKafka() as kafka, SchemaRegistry() as registry:
        servers = kafka.bootstrap_servers
        one = registry.register("one-value", schema(extra=False))
        as_message = registry.register("protobuf-value", proto(), kind="PROTOBUF")
        if given.only != "writing":
            two = registry.register("two-value", schema(extra=True))
            fill(kafka, "one", encoded((one,)), given.records)
            fill(kafka, "two", encoded((one, two)), given.records)
            fill(kafka, "protobuf", as_protobuf(as_message), given.records)
            fill(kafka, "json", as_json(), given.records)
            compare_reads(spark, servers, registry.url, one, given.rounds, with_jvm=with_jvm)
        if given.only != "reading":
            for name in ("kafkagroup", "kafka"):
                kafka.create_topic(f"written-{name}", PARTITIONS)
            ids = {"avro": one, "protobuf": as_message}
            writes = writing(spark, servers, registry.url, ids, given.records, with_jvm=with_jvm)
            comparisons = (
                Comparison(WRITE, JVM_WRITE, 2.0),
                Comparison(DROP, JVM_WRITE),
                Comparison(WRITE, DROP),
                Comparison(WRITE_PROTOBUF, WRITE),
                Comparison(WRITE_JSON, TO_JSON),
            )
            in_turns(Figures("values, written", comparisons=comparisons), writes, given.rounds)


if __name__ == "__main__":
    main()
