"""Reads in batch and as a stream with a good and with a bad login, and prints all that a program may print of it.

python -m tests.apps.telling_app FOLDER GOOD BAD, the options as JSON
"""

import json
import sys
import traceback

from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafka_source.source.stream import StreamReader
from tests.apps.streaming_app import session

SCHEMA = source_schema(headers=False)


def main(folder: str, good: str, bad: str) -> None:
    spark = session("local[2]")
    for name, options in (("good", json.loads(good)), ("bad", json.loads(bad))):
        try:
            frame = spark.read.format("kafkagroup").options(**options, commit="task").load()
            frame.explain(True)
            print(f"{name} batch {frame.count()}", flush=True)
        except Exception:
            traceback.print_exc()
        options = {**options, "kafka.group.id": options["kafka.group.id"] + "-stream"}
        stream = spark.readStream.format("kafkagroup").options(**options, startingOffsets="earliest").load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/{name}")
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
            rows = sum(progress["numInputRows"] for progress in query.recentProgress)
            print(f"{name} stream {rows}", *query.recentProgress, query.status, flush=True)
        except Exception:
            traceback.print_exc()
        print("exception", query.exception())
        everything = {**options, "kafka.group.id": options["kafka.group.id"] + "-tasks"}
        for reader in (BatchReader(everything, SCHEMA), StreamReader(everything, SCHEMA)):
            print(repr(reader), vars(reader), flush=True)
        if name == "good":
            print("tasks", BatchReader(everything, SCHEMA).partitions(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
