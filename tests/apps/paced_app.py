"""A Spark application that streams a topic to nowhere, once its JVM has planned many micro-batches.

    python -m tests.apps.paced_app FOLDER MASTER WARM_UP '{"kafka.bootstrap.servers": …, "subscribe": …}'

WARM_UP is a topic that is read in micro-batches of a few records first: what Spark does between two of them takes three
times as long in a JVM that has just started. Otherwise as `streaming_app`.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.apps.streaming_app import session, tell

PACED = ("quota.", "kafka.client.id")


def main(folder: str, master: str, warm_up: str, options: str) -> None:
    spark = session(master)
    given = json.loads(options)
    unpaced = {name: value for name, value in given.items() if not name.startswith(PACED)}
    group = {"kafka.group.id": f"{warm_up}-group"} if "kafka.group.id" in given else {}
    few = {**unpaced, **group, "subscribe": warm_up, "maxOffsetsPerTrigger": "8", "min.records.per.task": "1"}
    stream(spark, few, f"{folder}/warm-up").trigger(availableNow=True).start().awaitTermination()
    tell(stream(spark, given, f"{folder}/checkpoint").start())
    spark.stop()
    print("stopped", flush=True)


def stream(spark: SparkSession, options: dict[str, str], checkpoint: str) -> DataStreamWriter:
    frame = spark.readStream.format("kafkagroup").options(**options).load()
    return frame.writeStream.format("noop").option("checkpointLocation", checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
