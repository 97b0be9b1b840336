"""Alerts of groups and sinks, each by a real situation; `./run bench lag` has those of a slow query.

Their waits are a thirtieth of the rules' own: `promtool` tests those, on figures that nothing measured.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.lag import RULES, Prometheus
from kafkagroup import Settings, metrics
from kafkagroup.embedded import EmbeddedKafka
from testbed.load import Load
from tests.support.records import Topic, stream
from tests.support.two_phase import SIGKILL, in_a_process
from tests.support.waiting import wait_until

FASTER = 30
OF_GROUP = {"SlotsLost", "RebalancesOften", "RebalancesSlowly"}
# Where the driver of a sink dies.
OF_SINKS = {"sink-prepared": "TransactionOpenForLong", "sink-decided": "DecisionUnfinished"}


def faster_rules() -> str:
    text = re.sub(r"for: (\d+)m", lambda found: f"for: {int(found[1]) * 60 // FASTER}s", RULES.read_text())
    text, count = re.subn(r"> (60|900)$", lambda found: f"> {int(found[1]) // FASTER}", text, flags=re.MULTILINE)
    assert count == 2
    return text


def write_for_5_s(frame: DataFrame, _batch: int) -> None:
    frame.write.format("noop").mode("append").save()
    time.sleep(5)


@contextmanager
def members_that_poll_rarely(kafka: EmbeddedKafka, topic: str) -> Iterator[None]:
    """Have two more members in the group, of which one is replaced every 10 s."""
    closing = threading.Event()
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "late"}

    def run() -> None:
        members: list[Consumer] = []
        while not closing.wait(10):
            members.append(Consumer({**config, "partition.assignment.strategy": "range"}))
            members[-1].subscribe([topic])
            for member in members:
                member.poll(0)
            if len(members) > 2:
                members.pop(0).close()
        for member in members:
            member.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_each_alert_fires(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path) -> None:
    name, servers = topic("alerts", partitions=4), kafka.bootstrap_servers
    rules = tmp_path / "rules.yml"
    rules.write_text(faster_rules())
    for moment in OF_SINKS:
        assert in_a_process(moment, servers, topic(moment), "q", moment, batches=(0,)) == SIGKILL
    settings = Settings({"bootstrap.servers": servers})
    with ExitStack() as stack:
        figures = stack.enter_context(
            metrics.start(spark, prometheus="127.0.0.1:0", settings=settings, transactions=[*OF_SINKS])
        )
        watcher = Prometheus(Path("prometheus"), tmp_path, {"": figures.prometheus_address}, rules)
        stack.callback(watcher.close)
        stack.callback(Load(servers, name, 100).close)
        options = {"kafka_max_poll_interval_ms": 3_000, "kafka_partition_assignment_strategy": "range"}
        frame = stream(spark, kafka, name, kafka_group_id="late", **options)
        writer = frame.writeStream.queryName("late").foreachBatch(write_for_5_s)
        stack.callback(writer.option("checkpointLocation", str(tmp_path / "late")).start().stop)
        stack.enter_context(members_that_poll_rarely(kafka, name))
        missing = {(alert, "late") for alert in OF_GROUP} | {(alert, "") for alert in OF_SINKS.values()}

        def all_fired() -> bool:
            time.sleep(5)
            missing.difference_update((alert, query) for alert, query, *_ in watcher.fired())
            return not missing

        wait_until(all_fired, missing, 900)
