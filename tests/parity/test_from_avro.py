"""Random Avro values in Spark: read as Java's Avro reads them, and as `from_avro` does where spark-avro can be had."""

import json
import struct
from collections import Counter
from itertools import count, islice

import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from benchmarks.values import PEERS_SPARK
from kafka_source.values.record_types import other_record
from tests.differential.avro_pairs import Node
from tests.differential.java_avro import Pair, Tally, compare, java, pair, plain
from tests.support.native import kernel
from tests.support.records import reader
from tests.support.registry_server import RegistryServer

kernel()

PAIRS = 300


def is_recursive(node: Node, opened: tuple[Node, ...] = ()) -> bool:
    """Whether a type contains itself: `load()` refuses it, and so does `from_avro`."""
    inside = (*opened, node) if node.kind == "record" else opened
    return node in opened or any(
        is_recursive(part, inside) for part in (*node.parts, *(one.type for one in node.fields))
    )


def by_row(frame, first: int, rows: int) -> list[object]:
    """The values of a frame with the columns `offset` and `value`, as `plain` has them."""
    values: list[object] = [None] * rows
    # Without the cast of `toArrow`, which refuses a null struct whose fields cannot be null.
    for batch in frame._collect_as_arrow():
        for offset, value in zip(batch.column("offset").to_pylist(), plain(batch.column("value")), strict=True):
            values[offset - first] = value
    return values


def of_from_avro(spark, one: Pair) -> list[object] | None:
    """The values as `from_avro` reads them, null where it cannot; None: it does not take the schemas."""
    from pyspark.sql.avro.functions import from_avro

    given = [(row, bytearray(value)) for row, value in enumerate(one.values)]
    rows = spark.createDataFrame(given, "offset bigint, value binary")
    options = {"avroSchema": one.reader, "mode": "PERMISSIVE"}
    try:
        return by_row(rows.select("offset", from_avro("value", one.writer, options).alias("value")), 0, len(given))
    except PySparkException:
        return None


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_three_hundred_pairs_of_schemas(spark, kafka, topic):
    name = topic("pairs", partitions=1)
    drawn = (pair(number) for number in count())
    # Records of other names are refused, which Java does not do.
    some = (one for one in drawn if not is_recursive(one.node) and other_record(one.writer, one.reader) is None)
    pairs = list(islice(some, PAIRS))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    ours, theirs = Tally(), Counter[str]()
    with RegistryServer() as registry:
        for number, one in enumerate(pairs):
            registry.add(2 * number + 1, one.writer)
            registry.add(2 * number + 2, one.reader)
            for value in one.values:
                producer.produce(name, struct.pack(">bI", 0, 2 * number + 1) + value)
        assert producer.flush(60) == 0
        first = 0
        for number, (one, answers) in enumerate(zip(pairs, java(pairs), strict=True)):
            ends = {
                side: json.dumps({name: {"0": offset}})
                for side, offset in (("startingOffsets", first), ("endingOffsets", first + len(one.values)))
            }
            options = {"value.format": "avro", "schema.registry.url": registry.url, "value.schema.id": 2 * number + 2}
            frame = reader(spark, kafka, name, **options, **ends, mode="PERMISSIVE").load()
            rows = by_row(frame.select("offset", "value"), first, len(one.values))
            corrupt = frame.where("_corrupt_record IS NOT NULL").select("offset").collect()
            bad = {row.offset - first: "bad" for row in corrupt}
            first += len(one.values)
            compare(one, answers, rows, bad, ours)
            if pyspark.__version__ != PEERS_SPARK:
                continue
            told = of_from_avro(spark, one)
            for row, its in enumerate(told or [None] * len(rows)):
                kind = "not read" if told is None else "null" if its is None else "bad here" if row in bad else "equal"
                # Ours is Java's, as `compare` has seen.
                theirs[kind if kind != "equal" or its == rows[row] else "not as Java's"] += 1
    print(f"{len(pairs)} pairs: {ours}; from_avro: {dict(theirs)}")
    assert ours.equal > 2 * PAIRS
    assert theirs["equal"] > PAIRS or pyspark.__version__ != PEERS_SPARK
