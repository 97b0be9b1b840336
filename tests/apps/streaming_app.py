"""A Spark application that streams a topic into Parquet files until it is stopped or killed.

    python -m tests.apps.streaming_app FOLDER MASTER '{"kafka.bootstrap.servers": …, "subscribe": …}'

It prints `started`, then a line for each micro-batch that wrote rows, and stops cleanly when its input closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery


def session(master: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
        .config("spark.executorEnv.PYTHONPATH", os.environ.get("EXECUTOR_PYTHONPATH", os.environ.get("PYTHONPATH", "")))
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(folder: str, master: str, options: str) -> None:
    spark = session(master)
    query = (
        spark.readStream.format("kafkagroup")
        .options(**json.loads(options))
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .option("path", f"{folder}/out")
        .start()
    )
    tell(query)
    spark.stop()
    print("stopped", flush=True)


def tell(query: StreamingQuery) -> None:
    """Say what a query does until it fails or the program's input closes, then stop it."""
    print("started", flush=True)
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    told = -1
    while query.isActive and not closed.wait(0.1):
        progress = query.lastProgress
        if progress and progress["batchId"] > told and progress["numInputRows"]:
            told = progress["batchId"]
            print(f"batch {told} {progress['numInputRows']}", flush=True)
    if query.exception() is not None:
        print(f"failed {query.exception()}", flush=True)
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
