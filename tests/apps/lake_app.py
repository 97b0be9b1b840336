"""A Spark application that streams a topic into a table of Delta or Iceberg, as docs/guides/delta-and-iceberg.md does.

    python -m tests.apps.lake_app delta|delta-foreach|iceberg FOLDER '{"kafka.bootstrap.servers": …}' [VERSION]

It ends when everything is read, and prints the number of rows and of distinct records. VERSION names the checkpoint.
"""

from __future__ import annotations

import json
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

import kafkagroup
from kafkagroup.embedded import jars

#: For Spark 4.1, the newest one for which Maven Central has both.
JARS = {
    "delta": ("io.delta:delta-spark_4.1_2.13:4.2.0", "io.delta:delta-storage:4.2.0"),
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",),
}


def session(lake: str, folder: str) -> SparkSession:
    """A local session with the settings that the format's own pages name."""
    paths = [str(path) for jar in JARS[lake] for path in jars.resolve([jar])]
    settings = {
        "spark.jars": ",".join(paths),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.local.dir": tempfile.gettempdir(),
    }
    if lake == "delta":
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    else:
        settings["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        settings["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
        settings["spark.sql.catalog.lake.type"] = "hadoop"
        settings["spark.sql.catalog.lake.warehouse"] = f"{folder}/lake"
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kafkagroup.register(spark)
    return spark


def main(kind: str, folder: str, options: str, version: str = "1") -> None:
    spark = session(kind.split("-")[0], folder)
    rows = (
        spark.readStream.format("kafkagroup")
        .options(**json.loads(options))
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset")
    )
    writer = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint-{version}")
    print("started", flush=True)
    if kind == "delta":
        query = writer.format("delta").start(f"{folder}/orders")
    elif kind == "delta-foreach":

        def save(batch: DataFrame, batch_id: int) -> None:
            once = batch.write.format("delta").mode("append").option("mergeSchema", "true")
            once.option("txnAppId", f"orders-{version}").option("txnVersion", batch_id).save(f"{folder}/orders")

        query = writer.foreachBatch(save).start()
    else:
        spark.sql(
            "CREATE TABLE IF NOT EXISTS lake.orders (value STRING, topic STRING, partition INT, offset BIGINT) "
            "USING iceberg"
        )
        query = writer.format("iceberg").outputMode("append").option("fanout-enabled", "true").toTable("lake.orders")
    # Not availableNow: in Spark 4.1 a run of a Python source with it is one micro-batch.
    query.processAllAvailable()
    query.stop()
    table = spark.table("lake.orders") if kind == "iceberg" else spark.read.format("delta").load(f"{folder}/orders")
    print(f"rows {table.count()} records {table.dropDuplicates(['topic', 'partition', 'offset']).count()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
