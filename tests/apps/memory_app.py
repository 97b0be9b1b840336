"""A Spark application that writes and reads records from 1 kB to 15 MB, as bytes and as JSON, and copies records.

    python -m tests.apps.memory_app FOLDER MASTER '{"kafka.bootstrap.servers": …}'

Its topics exist: `copies`, and `bytes-` with each size. It prints a line for each step.
"""

import json
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tests.apps.streaming_app import session

# The bytes of a record, and the number of records.
SIZES = {1_000: 400_000, 100_000: 4_000, 1_000_000: 400, 15_000_000: 24}


def main(folder: str, master: str, source: str) -> None:
    spark, options = session(master), json.loads(source)
    for size, count in SIZES.items():
        topic = f"bytes-{size}"
        limit_batches(spark, size)
        write(spark, options, topic, size, count)
        reader = spark.read.format("kafkagroup").options(**options, subscribe=topic)
        print("read", topic, reader.load().selectExpr("sum(length(value))").collect()[0][0], flush=True)
        fields = reader.option("value.format", "json").option("value.schema", "text string").load()
        print("json", topic, fields.selectExpr("sum(length(value.text))").collect()[0][0], flush=True)
    limit_batches(spark, min(SIZES))
    copy(spark, options, folder)
    spark.stop()
    print("stopped", flush=True)


def limit_batches(spark: SparkSession, size: int) -> None:
    """Let a batch of rows of this size have at most 8 MB, as docs/tuning.md says."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", max(1, 8_000_000 // size))


def write(spark: SparkSession, options: Mapping[str, str], topic: str, size: int, count: int) -> None:
    """Write values of JSON with one text, which hardly compresses."""
    digits = f"concat_ws('', transform(sequence(1, {size // 32}), n -> md5(concat(id, '-', n))))"
    values = spark.range(count).repartition(4).selectExpr(f"""concat('{{"text": "', {digits}, '"}}') AS value""")
    sink = {**options, "topic": topic, "transactional": "true", "transactional.id.prefix": topic}
    values.write.format("kafkagroup").options(**sink).mode("append").save()
    print("wrote", topic, flush=True)


def copy(spark: SparkSession, options: Mapping[str, str], folder: str) -> None:
    """Copy records of 1 kB exactly once, with the offsets in the sink's transactions."""
    source = {"subscribe": "bytes-1000", "startingOffsets": "earliest", "kafka.group.id": "copy", "commit": "sink"}
    sink = {"topic": "copies", "transactional": "true", "transactional.id.prefix": "copy", "commit.group": "copy"}
    records = spark.readStream.format("kafkagroup").options(**options, **source, maxOffsetsPerTrigger=100_000).load()
    writer = records.select("value").writeStream.format("kafkagroup").options(**options, **sink)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    copies = spark.read.format("kafkagroup").options(**options, subscribe="copies").load()
    print("copied", copies.where("value IS NOT NULL").count(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
