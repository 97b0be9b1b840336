"""The compared sources, and a Spark session that has the JVM connector's jars."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import DataFrame, SparkSession

from benchmarks.read.floor import FloorSource
from kafka_source.embedded import resolve

PEER = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
JVM, NATIVE, LIBRDKAFKA, FLOOR = "jvm", "native", "librdkafka", "floor"


def session(cores: int = 2) -> SparkSession:
    """Return a local Spark session in which all sources can be used."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("kafkagroup-benchmarks")
        .config("spark.jars", ",".join(map(str, resolve(PEER))))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", mkdtemp(prefix="kafkagroup-warehouse-"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FloorSource)
    return spark


def frame(
    spark: SparkSession, source: str, servers: str, topic: str, *, value_only: bool = False, stream: bool = False,
    **options: object,
) -> DataFrame:  # fmt: skip
    """Return a DataFrame that reads a topic with one of the sources; `_` in an option's name stands for a dot."""
    reader = spark.readStream if stream else spark.read
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    reader = reader.option("kafka.bootstrap.servers", servers).option("subscribe", topic).options(**given)
    if stream:
        reader = reader.option("startingOffsets", "earliest")
    if source == JVM:
        whole = reader.format("kafka").load()
        return whole.select("value") if value_only else whole
    if value_only:
        # A Python source gets no column pruning from Spark; its users select columns with a schema.
        reader = reader.schema("value binary")
    if source == FLOOR:
        return reader.format("floor").load()
    return reader.format("kafkagroup").option("engine", source).load()
