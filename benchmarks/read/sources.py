"""The compared sources, and a Spark session that has the JVM connector's jars."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from benchmarks.read.floor import FloorSource
from kafkagroup.embedded import resolve

PEER = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
JVM, TUNED, NATIVE, LIBRDKAFKA, FLOOR = "jvm", "jvm-tuned", "native", "librdkafka", "floor"

# By default the JVM connector requests positions after each poll of 500 records, and fetches 1 MB of a partition.
_TUNING = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(8 << 20),
}
FORMATS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    JVM: ("kafka", {}),
    TUNED: ("kafka", _TUNING),
    NATIVE: ("kafkagroup", {"engine": NATIVE}),
    LIBRDKAFKA: ("kafkagroup", {"engine": LIBRDKAFKA}),
    FLOOR: (FloorSource.name(), {}),
}
"""The format of each source, with its options."""


def session(
    cores: int = 2, *, master: str | None = None, conf: Mapping[str, str] | None = None, jars: Sequence[str] = PEER
) -> SparkSession:
    """Return a Spark session in which all sources can be used.

    Args:
        cores: The number of cores.
        master: A cluster that has these cores; None: this machine.
        conf: Settings of Spark in addition to those of all benchmarks.
        jars: The artifacts of the JVM connector.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    builder = (
        SparkSession.builder.master(master or f"local[{cores}]")
        .appName("kafkagroup-benchmarks")
        .config("spark.jars", ",".join(map(str, resolve(jars))))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", mkdtemp(prefix="kafkagroup-warehouse-"))
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    )
    spark = builder.config(map=dict(conf or {})).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FloorSource)
    return spark


def new_group(slots: int) -> dict[str, Any]:
    """Return the options of `frame` for a query in a new group with this number of slots."""
    return {"kafka_group_id": f"bench-{uuid4().hex}", "group_members": slots}


def frame(
    spark: SparkSession, source: str, servers: str, topic: str, *, value_only: bool = False, stream: bool = False,
    settings: Mapping[str, str] = {}, **options: object,
) -> DataFrame:  # fmt: skip
    """Return a DataFrame that reads a topic with one of the sources.

    `settings` and `options` are options of the source; in the names of `options`, `_` stands for a dot.
    """
    reader = spark.readStream if stream else spark.read
    given = {**settings, **{name.replace("_", "."): str(value) for name, value in options.items()}}
    name, own = FORMATS[source]
    reader = reader.format(name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    if stream:
        reader = reader.option("startingOffsets", "earliest")
    reader = reader.options(**own).options(**given)
    if value_only and name != "kafka":
        # Spark prunes no columns of a Python source, whose users select columns by a schema.
        return reader.schema("value binary").load()
    return reader.load().select("value") if value_only else reader.load()
