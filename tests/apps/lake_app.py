"""A Spark application that streams a topic into a table of Delta or Iceberg, as docs/guides/delta-and-iceberg.md does.

    python -m tests.apps.lake_app KIND FOLDER '{"kafka.bootstrap.servers": …}' [VERSION [COLUMN …]]

KIND is delta, delta-foreach, delta-merge, iceberg or iceberg-merge, VERSION names the checkpoint, and a COLUMN is one
more of the source. When everything is read, it ends and prints the number of rows, of distinct records (after a merge:
of rows that are the newest of their customer), and of the values in each COLUMN.
"""

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
        # Spark has no second start else, if a kill leaves the first file of the checkpoint unfinished.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
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


#: Ten customers of each partition: most micro-batches have several records of each.
CUSTOMER = "CONCAT(partition, '-', offset % 10) AS customer"
NEWEST = "SELECT customer, max_by(value, offset) AS value, max(offset) AS offset FROM changes GROUP BY customer"
MERGE = f"""
    MERGE INTO TABLE_NAME AS t USING ({NEWEST}) AS s ON t.customer = s.customer
    WHEN MATCHED AND s.offset > t.offset THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
"""


def main(kind: str, folder: str, options: str, version: str = "1", *columns: str) -> None:
    lake, _, way = kind.partition("-")
    spark, source = session(lake, folder), json.loads(options)
    records = spark.readStream.format("kafkagroup").options(**source).load()
    place = [CUSTOMER, "offset"] if way == "merge" else ["topic", "partition", "offset"]
    fields = ["CAST(value AS STRING) AS value", *place, *columns]
    writer = records.selectExpr(*fields).writeStream.option("checkpointLocation", f"{folder}/checkpoint-{version}")
    name = "lake.orders" if lake == "iceberg" else f"delta.`{folder}/orders`"
    print("started", flush=True)
    if way == "merge":
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} (customer STRING, value STRING, offset BIGINT) USING {lake}")

        def merge(batch: DataFrame, _: int) -> None:
            batch.createOrReplaceTempView("changes")
            batch.sparkSession.sql(MERGE.replace("TABLE_NAME", name))

        query = writer.foreachBatch(merge).start()
    elif way == "foreach":

        def save(batch: DataFrame, batch_id: int) -> None:
            once = batch.write.format("delta").mode("append").option("mergeSchema", "true")
            once.option("txnAppId", f"orders-{version}").option("txnVersion", batch_id).save(f"{folder}/orders")

        query = writer.foreachBatch(save).start()
    elif lake == "delta":
        query = writer.format("delta").option("mergeSchema", "true").start(f"{folder}/orders")
    else:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name} (value STRING, topic STRING, partition INT, offset BIGINT) "
            "USING iceberg TBLPROPERTIES ('write.spark.accept-any-schema'='true')"
        )
        appending = writer.format("iceberg").outputMode("append").option("mergeSchema", "true")
        query = appending.option("fanout-enabled", "true").toTable(name)
    # Not availableNow: in Spark 4.1 a run of a Python source with it is one micro-batch.
    query.processAllAvailable()
    query.stop()
    if lake == "iceberg":
        # A query has a catalog of its own, and that of this session caches a table for half a minute.
        spark.catalog.refreshTable(name)
    table = spark.table(name)
    if way == "merge":
        batch = {key: source[key] for key in ("kafka.bootstrap.servers", "subscribe")}
        everything = spark.read.format("kafkagroup").options(**batch).load()
        everything.selectExpr(*fields).createOrReplaceTempView("changes")
        right = table.intersect(spark.sql(NEWEST))
    else:
        right = table.dropDuplicates(["topic", "partition", "offset"])
    counts = {"rows": table.count(), "records": right.count()}
    counts |= {column: table.where(f"{column} IS NOT NULL").count() for column in columns}
    print(*(f"{what} {count}" for what, count in counts.items()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
