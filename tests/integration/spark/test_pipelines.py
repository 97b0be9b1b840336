"""A declarative pipeline (`spark-pipelines run`) reads with a consumer group, and writes to a topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.parity.topics import send

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


@pytest.mark.skipif(not COMMAND.exists(), reason="pipelines came with Spark 4.1")
@pytest.mark.timeout(300)
def test_a_pipeline_reads_a_group_into_a_table_and_a_topic(
    kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    orders, copies = topic("orders", partitions=1), topic("copies", partitions=1)
    servers, group = kafka.bootstrap_servers, f"{orders}-group"
    source = {"subscribe": orders, "startingOffsets": "earliest", "kafka.group.id": group}
    texts = [json.dumps({"kafka.bootstrap.servers": servers, **one}) for one in (source, {"topic": copies})]
    libraries = [{"glob": {"include": "definitions/**"}}]
    specification = {"name": "orders", "storage": f"file://{tmp_path}/storage", "libraries": libraries}
    (tmp_path / "spark-pipeline.yml").write_text(json.dumps(specification))
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "orders.py").write_text("SOURCE = {}\nSINK = {}\n".format(*texts) + DEFINITION)
    send(kafka, orders, range(10), 0)
    done = subprocess.run(
        [COMMAND, "run", "--spec", "spark-pipeline.yml"],
        cwd=tmp_path,
        # Spark takes the first python3 of the PATH for the one that runs the pipeline.
        env={**os.environ, "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    written = pa.table(arrow.read(copies, {"bootstrap.servers": servers}))
    assert [int(value) for value in written["value"].to_pylist()] == [*range(10)]
    assert Groups(Settings({"bootstrap.servers": servers})).committed(group) == {TopicPartition(orders, 0): 10}
