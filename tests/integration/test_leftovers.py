"""A driver that reads many times keeps neither connections nor processes of the reads that are over."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkagroup.embedded import EmbeddedKafka
from tests.support import produce

TOPIC = "read-many-times"
READS = 12


def connections_to(port: int) -> int:
    """The established connections of this machine to a port of 127.0.0.1, or of ::ffff:127.0.0.1."""
    tables = [path for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if path.exists()]
    lines = [line.split() for path in tables for line in path.read_text().splitlines()[1:]]
    return sum(fields[3] == "01" and int(fields[2].rsplit(":", 1)[1], 16) == port for fields in lines)


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> str:
    kafka.create_topic(TOPIC, 2)
    produce(kafka.bootstrap_servers, TOPIC, 2)
    return TOPIC


def read(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: str) -> int:
    reader = spark.read.format("kafkagroup").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load().count()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="connections are counted in /proc")
def test_batch_reads_keep_no_connections(spark: SparkSession, kafka: EmbeddedKafka, topic: str) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    for _ in range(3):
        read(spark, kafka, topic)
    before = connections_to(port)
    for _ in range(READS):
        assert read(spark, kafka, topic) == 2
    # Workers keep the connections of their fetchers for the next task, so the number may differ by a few.
    assert connections_to(port) < before + READS / 2


def test_batch_reads_with_a_quota_share_one_server_process(
    spark: SparkSession, kafka: EmbeddedKafka, topic: str
) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    directory = Path(tempfile.gettempdir()) / f"kafkagroup-{os.getuid()}"
    pattern = f"quota-{jvm.java.lang.ProcessHandle.current().pid()}-*.json"
    before = set(directory.glob(pattern))
    for _ in range(3):
        assert read(spark, kafka, topic, **{"quota.bytes.per.second": "123456789"}) == 2
    assert len(set(directory.glob(pattern)) - before) == 1
