"""A declarative pipeline (`spark-pipelines run`) reads with a consumer group, and writes to a topic."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.streaming import DataStreamReader

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, send, write_records

pipelines: ModuleType | None
try:
    from pyspark import pipelines
except ImportError:
    pipelines = None

COMMAND = Path(sys.executable).with_name("spark-pipelines")

DEFINITION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    return spark.readStream.format("kafkagroup").options(**SOURCE).load()


dp.create_sink("copies", "kafkagroup", SINK)


@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("orders").select("value")
"""

# As on the page docs/guides/stream.md.
CHANGES = """
from pyspark.sql.functions import col, expr, from_json

ROW = "STRUCT<id INT, name STRING>"
CHANGE = f"before {ROW}, after {ROW}, op STRING, source STRUCT<lsn BIGINT>"


@dp.table
def customer_changes():
    records = spark.readStream.format("kafkagroup").options(**CUSTOMERS).load()
    # A delete is followed by a record without a value, for the compaction of the topic.
    change = records.where("value IS NOT NULL").select(from_json(col("value").cast("string"), CHANGE).alias("change"))
    row = "coalesce(change.after, change.before) AS row"
    return change.selectExpr(row, "change.op", "change.source.lsn").select("row.*", "op", "lsn")


@dp.materialized_view
def customers():
    last = expr("max_by(struct(op, name), lsn)").alias("last")
    rows = spark.read.table("customer_changes").groupBy("id").agg(last)
    return rows.where("last.op <> 'd'").select("id", "last.name")
"""
AUTO_CDC = """
dp.create_streaming_table("customers_of_auto_cdc")
dp.create_auto_cdc_flow(
    target="customers_of_auto_cdc",
    source="customer_changes",
    keys=["id"],
    sequence_by="lsn",
    apply_as_deletes="op = 'd'",
    except_column_list=["op", "lsn"],
)
"""


def run(folder: Path, definitions: str) -> subprocess.CompletedProcess[str]:
    """Run a pipeline in a folder."""
    libraries = [{"glob": {"include": "definitions/**"}}]
    specification = {"name": "orders", "storage": f"file://{folder}/storage", "libraries": libraries}
    (folder / "spark-pipeline.yml").write_text(json.dumps(specification))
    (folder / "definitions").mkdir()
    (folder / "definitions" / "orders.py").write_text(definitions)
    return subprocess.run(
        [COMMAND, "run", "--spec", "spark-pipeline.yml"],
        cwd=folder,
        # Spark takes the first python3 of the PATH for the one that runs the pipeline.
        env={**os.environ, "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )


def change_customers(kafka: EmbeddedKafka, topic: str) -> None:
    """Write changes as Debezium does for a table with three rows, of which one is renamed and one deleted."""
    ann, bob, eve = ({"id": number, "name": name} for number, name in enumerate(("ann", "bob", "eve")))
    changes = [("c", None, ann), ("c", None, bob), ("r", None, eve), ("u", ann, {"id": 0, "name": "anna"})]
    records = []
    for lsn, (operation, before, after) in enumerate([*changes, ("d", bob, None)]):
        change = {"before": before, "after": after, "op": operation, "source": {"lsn": lsn}}
        records.append({"key": str((after or bob)["id"]), "value": json.dumps(change)})
    write_records(kafka.bootstrap_servers, topic, [*records, {"key": str(bob["id"]), "value": None}])


@pytest.mark.skipif(not COMMAND.exists(), reason="pipelines came with Spark 4.1")
@pytest.mark.timeout(300)
def test_a_pipeline_reads_a_group_into_a_table_and_a_topic(kafka: EmbeddedKafka, topic: Topic, tmp_path: Path) -> None:
    orders, copies, customers = (topic(name, partitions=1) for name in ("orders", "copies", "customers"))
    servers, group = kafka.bootstrap_servers, f"{orders}-group"
    source = {"startingOffsets": "earliest", "kafka.bootstrap.servers": servers}
    given = {
        "SOURCE": {**source, "subscribe": orders, "kafka.group.id": group},
        "SINK": {"topic": copies, "kafka.bootstrap.servers": servers},
        "CUSTOMERS": {**source, "subscribe": customers},
    }
    send(kafka, orders, range(10), 0)
    change_customers(kafka, customers)
    done = run(tmp_path, "".join(f"{name} = {value}\n" for name, value in given.items()) + DEFINITION + CHANGES)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    written = pa.table(arrow.read(copies, {"bootstrap.servers": servers}))
    assert [int(value) for value in written["value"].to_pylist()] == [*range(10)]
    rows = parquet.read_table(tmp_path / "spark-warehouse" / "customers").to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(0, "anna"), (2, "eve")]
    # Before 4.2, Spark commits the offsets of a pipeline's last micro-batch when the next run begins.
    committed = 10 if hasattr(DataStreamReader, "name") else 0
    assert Groups(Settings({"bootstrap.servers": servers})).committed(group) == {TopicPartition(orders, 0): committed}


@pytest.mark.long
@pytest.mark.skipif(not hasattr(pipelines, "create_auto_cdc_flow"), reason="Auto CDC came with Spark 4.2")
@pytest.mark.timeout(300)
def test_auto_cdc_takes_the_changes_and_needs_a_table_with_merge(
    kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    customers = topic("customers", partitions=1)
    change_customers(kafka, customers)
    given = {"subscribe": customers, "startingOffsets": "earliest", "kafka.bootstrap.servers": kafka.bootstrap_servers}
    start = DEFINITION.split("@dp.table")[0]
    done = run(tmp_path, f"CUSTOMERS = {given}\n{start}{CHANGES}{AUTO_CDC}")
    # Iceberg and Delta have no jar for this Spark yet, so the test sees the refusal of Spark's own table, and no more.
    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in done.stdout + done.stderr
