"""Each alert of the rules, by a real situation.

Their waits are a thirtieth of the rules' own: `promtool` tests those, on figures that nothing measured, and
`./run bench lag` those of a slow query.
"""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.lag import RULES, Prometheus
from kafkagroup import Settings, metrics
from kafkagroup.embedded import EmbeddedKafka, TcpProxy
from kafkagroup.embedded.tcp_proxy import CutConnection, Frame
from testbed.load import Load
from tests.support.two_phase import SIGKILL, in_a_process
from tests.support.waiting import wait_until

FASTER = 30
PER_SECOND = 100
OFFSET_COMMIT = 8
# Where the driver of a sink dies.
OF_SINKS = {"sink-prepared": "TransactionOpenForLong", "sink-decided": "DecisionUnfinished"}

# What the queries' sinks do after they have read a micro-batch, by its number.
Then = Callable[[int], object]
closing = threading.Event()


def fail(_batch: int) -> None:
    raise RuntimeError("the sink is full")


def stand_still(batch: int) -> None:
    if batch:
        closing.wait()


# The options of each query, what its sink does, and the alerts.
QUERIES: dict[str, tuple[dict[str, str], Then, set[str]]] = {
    "late": (
        {"kafka.max.poll.interval.ms": "3000", "kafka.partition.assignment.strategy": "range"},
        lambda _: time.sleep(5),
        {"SlotsLost", "RebalancesOften", "RebalancesSlowly", "TriggersAreLong"},
    ),
    "cut": ({"commit.transactional": "false"}, lambda _: time.sleep(1), {"CommitsFail"}),
    "slow": ({}, stand_still, {"NoProgress", "RecordsAreOld", "LagGrows"}),
    "bad": (
        {"value.format": "json", "value.schema": "id int", "mode": "PERMISSIVE"},
        lambda _: time.sleep(5),
        {"BadRecords"},
    ),
    "failing": ({}, fail, {"QueryFailed"}),
    "quota": ({"quota.records.per.second": f"{PER_SECOND // 2}"}, lambda _: time.sleep(1), {"OutOfQuota"}),
    # A query measures the brokers' throttling only if it has a quota.
    "brokers": (
        {"quota.records.per.second": "1000", "maxOffsetsPerTrigger": "100", "kafka.client.id": "brokers"},
        lambda _: time.sleep(1),
        {"BrokersThrottle"},
    ),
}


def faster_rules() -> str:
    text = re.sub(r"for: (\d+)m", lambda found: f"for: {int(found[1]) * 60 // FASTER}s", RULES.read_text())
    text = re.sub(r"(rate|deriv)(\(\w+(?:{.*?})?)\[15m]", rf"\1\2[{15 * 60 // FASTER}s]", text)
    text, count = re.subn(r"([<>]) (\d{2,})$", lambda found: f"{found[1]} {int(found[2]) // FASTER}", text, flags=re.M)
    assert count == 7
    return text


def sink(then: Then) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch: int) -> None:
        frame.write.format("noop").mode("append").save()
        then(batch)

    return write


def without_commits(frame: Frame) -> Iterable[bytes]:
    if frame.api_key == OFFSET_COMMIT:
        raise CutConnection
    return [frame.payload]


def await_start(query: StreamingQuery) -> None:
    """Wait for the first micro-batch: a busy machine does not start many queries at one time."""
    wait_until(lambda: query.lastProgress or not query.isActive, query.name)


@contextmanager
def members_that_poll_rarely(servers: str, topic: str) -> Iterator[None]:
    """Have two more members in the group, of which one is replaced every 10 s."""
    config = {"bootstrap.servers": servers, "group.id": "late"}

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
def test_each_alert_fires(spark: SparkSession, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(faster_rules())
    closing.clear()
    with ExitStack() as stack:
        proxy = stack.enter_context(TcpProxy())
        kafka = stack.enter_context(EmbeddedKafka(advertised_ports={1: proxy.port}))
        proxy.connect_to(kafka.port(1))
        servers = kafka.internal_bootstrap_servers
        for name in ("alerts", *OF_SINKS):
            kafka.create_topic(name, 4)
        for moment in OF_SINKS:
            assert in_a_process(moment, servers, moment, "q", moment, batches=(0,)) == SIGKILL
        command = [sys.executable, "-m", "kafkagroup.cli", "quota", "brokers", "-b", servers, "--yes"]
        subprocess.run([*command, "--client-id", "brokers", "--consumer-bytes", "1000"], check=True)
        settings = Settings({"bootstrap.servers": servers})
        figures = stack.enter_context(
            metrics.start(spark, prometheus="127.0.0.1:0", settings=settings, transactions=[*OF_SINKS])
        )
        without = stack.enter_context(metrics.start(spark, prometheus="127.0.0.1:0"))
        targets = {"": figures.prometheus_address, ", no settings": without.prometheus_address}
        watcher = Prometheus(Path("prometheus"), tmp_path, targets, rules)
        stack.callback(watcher.close)
        stack.callback(Load(servers, "alerts", PER_SECOND).close)
        for query, (options, then, _) in QUERIES.items():
            options = {"kafka.bootstrap.servers": kafka.bootstrap_servers if query == "cut" else servers, **options}
            options = {"subscribe": "alerts", "kafka.group.id": query, "group.members": "1", **options}
            frame = spark.readStream.format("kafkagroup").options(**options).load()
            writer = frame.writeStream.queryName(query).foreachBatch(sink(then))
            running = writer.option("checkpointLocation", str(tmp_path / query)).start()
            stack.callback(running.stop)
            stack.callback(closing.set)
            await_start(running)
        proxy.on_request = without_commits
        stack.enter_context(members_that_poll_rarely(servers, "alerts"))
        missing = {(alert, query) for query, (*_, alerts) in QUERIES.items() for alert in alerts}
        missing |= {(alert, "") for alert in OF_SINKS.values()} | {("LagIsOld", "slow, no settings")}
        assert {alert for alert, _ in missing} == set(re.findall("alert: Kafkagroup(.*)", RULES.read_text()))

        def all_fired() -> bool:
            time.sleep(5)
            missing.difference_update((alert, query) for alert, query, *_ in watcher.fired())
            return not missing

        wait_until(all_fired, missing, 900)
