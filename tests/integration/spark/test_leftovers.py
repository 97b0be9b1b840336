"""A driver that reads many times keeps neither connections nor processes of the reads that are over."""

import contextlib
import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import produce
from tests.support.waiting import wait_until

TOPIC = "read-many-times"
READS = 12
# A worker keeps two for its next task: its client's, and its fetcher's to the only broker. On a busy machine three were
# seen once. One that stays for each read would be six.
KEPT = 3

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc tells what is left over")


def connections_to(port: int) -> Counter[int]:
    """How many established connections to a port of this machine each other process has."""
    tables = [path for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if path.exists()]
    lines = [line.split() for path in tables for line in path.read_text().splitlines()[1:]]
    established = [fields for fields in lines if fields[3] == "01"]
    sockets = {f"socket:[{fields[9]}]" for fields in established if int(fields[2].rsplit(":", 1)[1], 16) == port}
    found: Counter[int] = Counter()
    for pid in set(processes()) - {os.getpid()}:
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            found[pid] = sum(str(descriptor.readlink()) in sockets for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    return found


def processes() -> list[int]:
    """All processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> str:
    kafka.create_topic(TOPIC, 2)
    produce(kafka.bootstrap_servers, TOPIC, 2)
    return TOPIC


def read(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: str) -> int:
    reader = spark.read.format("kafkagroup").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load().count()


def test_batch_reads_keep_no_connections(spark: SparkSession, kafka: EmbeddedKafka, topic: str) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    # Workers live on, and keep what earlier tests asked for with other settings.
    before = connections_to(port)
    for _ in range(READS):
        assert read(spark, kafka, topic) == 2
    assert sum(connections_to(port).values())

    grown: dict[int, tuple[int, int]] = {}

    def closed() -> bool:
        grown.clear()
        after = connections_to(port)
        grown.update({pid: (before[pid], count) for pid, count in after.items() if count > before[pid] + KEPT})
        return not grown

    wait_until(closed, grown, 20)
