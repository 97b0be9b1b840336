"""A Python function in the read task, beside the same function behind kafkagroup's source and the JVM's connector.

    ./run bench function [--records 4000000] [--rounds 5]

Two functions over values of 100 B: (length of the value, offset), and three columns of JSON, parsed by orjson. The CPU
time of Spark's JVM and of its Python workers is measured.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, pandas_udf, xxhash64
from pyspark.sql.functions import sum as sum_

import kafkagroup
from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.cpu import cpu_by_kind, used_since
from benchmarks.read.figures import Comparison, Figures, in_turns
from benchmarks.read.topics import Load
from benchmarks.read.topics import fill as fill_with_text
from benchmarks.values import fill
from kafkagroup.embedded import EmbeddedKafka

INSIDE, OURS, OURS_SELECTED = "in the read task", "kafkagroup, mapInArrow", "kafkagroup, two columns, mapInArrow"
KAFKA, KAFKA_SELECTED = "kafka, mapInArrow", "kafka, two columns, mapInArrow"
KAFKA_UDF, FROM_JSON = "kafka, pandas UDF", "kafka, from_json"
BOTH = ("Spark's JVM", "Spark's Python")
LENGTHS, ORDERS = "size int, offset bigint", "id bigint, customer string, amount double"
Run = Callable[[], DataFrame]


def lengths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"size": pc.binary_length(batch["value"]), "offset": batch["offset"]})


def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
    for batch in batches:
        rows = [orjson.loads(value) for value in batch["value"].to_pylist()]
        yield pa.RecordBatch.from_arrays(
            [pa.array([row[field.name] for row in rows], field.type) for field in schema], schema=schema
        )


# Each function becomes a UDF as soon as there is a session.
def length_udf(values: pd.Series) -> pd.Series:
    return values.map(len)


def parse_udf(values: pd.Series) -> pd.DataFrame:
    return pd.DataFrame([orjson.loads(value) for value in values], columns=["id", "customer", "amount"])


def orders() -> list[bytes]:
    chance = random.Random(7)
    values = (
        {"id": number, "customer": f"customer-{chance.randrange(10**9):09d}", "amount": round(chance.random(), 3)}
        for number in range(1_000_000, 1_020_000)
    )
    return [json.dumps(value | {"note": "leave it at the d"}).encode() for value in values]


def contestants(spark: SparkSession, servers: str, topics: dict[str, str]) -> dict[str, dict[str, Run]]:
    """Return the contestants, by the name of the function."""

    def inside(topic: str, f: Callable[..., Iterator[pa.RecordBatch]], schema: str, columns: list[str]) -> DataFrame:
        reading = spark.read.option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return kafkagroup.map_in_arrow(reading, f, schema, columns=columns)

    def read(name: str, topic: str, columns: str = "") -> DataFrame:
        reading = spark.read.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        return (reading.schema(columns) if columns else reading).load()

    # The overloads of `pandas_udf` accept no named function over `pandas.Series`.
    udf: Callable[..., Callable[[str], Column]] = pandas_udf
    text, documents = topics["text"], topics["json"]
    parsed = from_json(col("value").cast("string"), ORDERS).alias("order")
    return {
        "length of the value, offset": {
            INSIDE: partial(inside, text, lengths, LENGTHS, ["value", "offset"]),
            OURS: lambda: read("kafkagroup", text).mapInArrow(lengths, LENGTHS),
            OURS_SELECTED: lambda: read("kafkagroup", text, "value binary, offset bigint").mapInArrow(lengths, LENGTHS),
            KAFKA: lambda: read("kafka", text).mapInArrow(lengths, LENGTHS),
            KAFKA_SELECTED: lambda: read("kafka", text).select("value", "offset").mapInArrow(lengths, LENGTHS),
            KAFKA_UDF: lambda: read("kafka", text).select(udf(length_udf, "int")("value").alias("size"), "offset"),
        },
        "JSON by orjson": {
            INSIDE: partial(inside, documents, parse, ORDERS, ["value"]),
            OURS: lambda: read("kafkagroup", documents, "value binary").mapInArrow(parse, ORDERS),
            KAFKA: lambda: read("kafka", documents).select("value").mapInArrow(parse, ORDERS),
            KAFKA_UDF: lambda: (
                read("kafka", documents).select(udf(parse_udf, ORDERS)("value").alias("order")).select("order.*")
            ),
            FROM_JSON: lambda: read("kafka", documents).select(parsed).select("order.*"),
        },
    }


def digest(frame: DataFrame) -> tuple[object, ...]:
    """Return the number of rows and the sum of their hashes."""
    hashes = frame.select(xxhash64(*frame.columns).cast("decimal(20)").alias("hash"))
    return tuple(hashes.agg(count("*"), sum_("hash")).collect()[0])


def measured(run: Run, walls: list[float]) -> float:
    """Run a contestant into a noop sink, record its time, and return the CPU seconds of Spark."""
    before, started = cpu_by_kind(), time.perf_counter()
    run().write.format("noop").mode("overwrite").save()
    walls.append(time.perf_counter() - started)
    used = used_since(before)
    if any(seconds < 0 for seconds in used.values()):
        raise RuntimeError(
            "a worker that was idle for a minute has ended, with its CPU seconds: the machine is too busy"
        )
    return sum(used.get(kind, 0.0) for kind in BOTH)


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--records", type=int, default=4_000_000)
    given = begin(parser)
    spark = sources.session()
    with EmbeddedKafka() as kafka:
        load = Load(100, given.records)
        fill_with_text(kafka, load)
        fill(kafka, "json", orders(), given.records)
        runs = contestants(spark, kafka.bootstrap_servers, {"text": load.topic, "json": "json"})
        for case, of_case in runs.items():
            assert len({digest(run()) for run in of_case.values()}) == 1, "the rows differ"
            walls: dict[str, list[float]] = {name: [] for name in of_case}
            comparisons = (
                Comparison(INSIDE, OURS, 4.0 if FROM_JSON not in of_case else None),
                Comparison(INSIDE, OURS_SELECTED),
                Comparison(INSIDE, KAFKA, 1 / 0.16 if FROM_JSON not in of_case else None),
                Comparison(INSIDE, KAFKA_SELECTED),
                Comparison(INSIDE, KAFKA_UDF),
                Comparison(INSIDE, FROM_JSON, 1 / 0.33),
            )
            print("\n| case | what | CPU seconds of JVM and workers | the first one's / its (min to max) | bar |")
            print("| --- | --- | --- | --- | --- |")
            timed = {name: partial(measured, run, walls[name]) for name, run in of_case.items()}
            figures = in_turns(Figures(case, comparisons=comparisons), timed, given.rounds)
            for name, seconds in walls.items():
                rates = [given.records / 1e6 / used for used in figures.seconds[name]]
                rate = sorted(rates)[len(rates) // 2]
                print(f"  {name}: {sorted(seconds[1:])[len(rates) // 2]:.2f} s of time, {rate:.2f} M records/s a core")


if __name__ == "__main__":
    main()
