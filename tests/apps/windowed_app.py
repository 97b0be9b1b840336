"""A Spark application that counts records in windows, with state and a watermark, until it is stopped or killed.

    python -m tests.apps.windowed_app FOLDER JARS FORMAT '{"kafka.bootstrap.servers": …, "subscribe": …}'

Counts go to Parquet files when the watermark closes a window. What it prints is what `streaming_app` prints.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, sum, window

from tests.apps.streaming_app import tell


def main(folder: str, jars: str, source: str, options: str) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    records = spark.readStream.format(source).options(**json.loads(options)).load()
    records = records.selectExpr("timestamp", "partition", "CAST(CAST(value AS STRING) AS BIGINT) AS value")
    windows = records.withWatermark("timestamp", "5 seconds").groupBy(window("timestamp", "10 seconds"), "partition")
    counts = windows.agg(count("*").alias("count"), sum("value").alias("sum")).select(
        "window.start", "partition", "count", "sum"
    )
    query = (
        counts.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .option("path", f"{folder}/out")
        .start()
    )
    tell(query)
    spark.stop()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
