"""A Spark application that streams topics into Parquet files until it is stopped or killed.

    python -m tests.apps.streaming_app FOLDER MASTER '{"kafka.bootstrap.servers": …, "subscribe": …}' …

Each set of options is a query of its own, which writes to `out`, `out-2` and so on. It prints `started`, then a line
for each micro-batch that wrote rows, and stops cleanly when its input closes, or its groups are stopped.
"""

import json
import os
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkagroup import StopListener


def session(master: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    host = os.environ.get("DRIVER_HOST", "127.0.0.1")
    builder = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", host)
        .config("spark.driver.bindAddress", host)
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


def main(folder: str, master: str, *options: str) -> None:
    spark = session(master)
    spark.streams.addListener(StopListener(spark))
    tell(*(_start(spark, folder, json.loads(one), n) for n, one in enumerate(options, 1)))
    spark.stop()
    print("stopped", flush=True)


def _start(spark: SparkSession, folder: str, options: dict[str, str], number: int) -> StreamingQuery:
    frame = spark.readStream.format("kafkagroup").options(**options).load()
    writer, suffix = frame.writeStream.format("parquet"), "" if number == 1 else f"-{number}"
    return (
        writer.option("checkpointLocation", f"{folder}/checkpoint{suffix}")
        .option("path", f"{folder}/out{suffix}")
        .start()
    )


def tell(*queries: StreamingQuery) -> None:
    """Say what queries do until one fails or the program's input closes, then stop them."""
    print("started", flush=True)
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    told = dict.fromkeys(queries, -1)
    while all(query.isActive for query in queries) and not closed.wait(0.1):
        for query in queries:
            progress = query.lastProgress
            if progress and progress["batchId"] > told[query] and progress["numInputRows"]:
                told[query] = progress["batchId"]
                print(f"batch {told[query]} {progress['numInputRows']}", flush=True)
    for query in queries:
        if query.exception() is not None:
            print(f"failed {query.exception()}", flush=True)
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
