"""A Spark application that copies topics into others, each record into the partition of its number.

    python -m tests.apps.copying_app FOLDER MASTER '{"subscribe": …}' '{"topic": …}'

Each pair of source and sink is a query of its own. It prints what `streaming_app` prints.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.apps.streaming_app import session, tell


def main(folder: str, master: str, *pairs: str) -> None:
    spark = session(master)
    names = ["checkpoint", *(f"checkpoint-{number}" for number in range(2, len(pairs) // 2 + 1))]
    tell(
        *(
            copy(spark, json.loads(source), json.loads(sink), f"{folder}/{name}")
            for source, sink, name in zip(pairs[::2], pairs[1::2], names, strict=True)
        )
    )
    spark.stop()
    print("stopped", flush=True)


def copy(spark: SparkSession, source: dict[str, str], sink: dict[str, str], checkpoint: str) -> StreamingQuery:
    """Start a query that copies one source to one sink, by the connectors of their option `format`, or kafkagroup.

    `WARM_UP` lets a batch read start the workers earlier.
    """
    reading, writing = (options.pop("format", "kafkagroup") for options in (source, sink))
    if "WARM_UP" in os.environ:
        warm_up(spark, source)
    records = spark.readStream.format(reading).options(**source).load().select("key", "value", "partition")
    writer = records.writeStream.format(writing).options(**sink)
    return writer.option("checkpointLocation", checkpoint).start()


def warm_up(spark: SparkSession, source: dict[str, str]) -> None:
    """Read some records as no member of the group: else the first micro-batch starts the workers."""
    plain = {name: source[name] for name in ("kafka.bootstrap.servers", "subscribe")}
    records = spark.read.format("kafkagroup").options(**plain).load().select("key", "value", "partition")
    records.limit(1000).write.format("noop").mode("append").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
