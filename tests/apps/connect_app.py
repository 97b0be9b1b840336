"""A batch and a stream through Spark Connect in local mode: prints how many rows each had.

python -m tests.apps.connect_app FOLDER SERVERS TOPIC
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def main(folder: str, servers: str, topic: str) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Makes Spark bind a free port instead of 15002, and the client find it.
    os.environ["SPARK_TESTING"] = "1"
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.group.id": f"{topic}-group"}
    batch = spark.read.format("kafkagroup").options(**options).load().count()
    frame = spark.readStream.format("kafkagroup").options(startingOffsets="earliest", **options).load()
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    print(f"batch {batch} stream {spark.read.parquet(f'{folder}/out').count()}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
