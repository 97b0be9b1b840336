"""Brokers, driver and executors on hosts of their own: closed ports, dead addresses, lost packets, hosts cut off."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.host_brokers import HostBrokers
from testbed.hosts import Hosts, Link, Place, reason_against_hosts
from testbed.load import Load
from testbed.spark_cluster import SparkCluster
from tests.apps.process import ROOT, App, spark_app
from tests.support.records import CommittedReader, produce, written_rows
from tests.support.two_phase import TASKS, Sink, whole
from tests.support.waiting import wait_until

RACKS = {"kafka1": "a", "kafka2": "b", "kafka3": "c"}
WORKERS = {"worker1": "a", "worker2": "b"}
PARTITIONS = 3
DRIVER_PORT, BLOCKS_PORT = 7001, 7002
CONF = {
    "spark.driver.port": DRIVER_PORT,
    "spark.driver.blockManager.port": BLOCKS_PORT,
    "spark.executor.memory": "512m",
}
# By default a lost executor is noticed after two minutes, and each process waits half a minute for a silent broker.
LIMITS: dict[str, object] = {"kafka.request.timeout.ms": 5_000, "kafka.socket.connection.setup.timeout.ms": 2_000}
QUICK_TO_NOTICE = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "4s",
    "spark.executor.heartbeatInterval": "4s",
    "spark.task.maxFailures": "8",
}


@dataclass(frozen=True)
class World:
    hosts: Hosts
    brokers: HostBrokers
    spark: SparkCluster

    def run(self, program: str, folder: Path, *options: dict[str, object], **conf: object) -> App:
        place = in_rack(replace(self.hosts.place("driver"), folder=ROOT), "a")
        return spark_app(program, folder, self.spark.master, *options, conf={**CONF, **conf}, place=place)

    def source(self, topic: str, **more: object) -> dict[str, object]:
        servers = {"kafka.bootstrap.servers": self.brokers.bootstrap_servers}
        return {**servers, "subscribe": topic, "startingOffsets": "earliest", **more}


def in_rack(place: Place, rack: str) -> Place:
    return replace(place, prefix=[*place.prefix, "env", f"RACK={rack}"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def hosts(folder: Path) -> Iterator[Hosts]:
    if reason := reason_against_hosts(folder):
        pytest.skip(reason)
    with Hosts(folder, [*RACKS, "driver", *WORKERS]) as made:
        yield made


@pytest.fixture(scope="module")
def brokers(folder: Path, hosts: Hosts) -> Iterator[HostBrokers]:
    with HostBrokers(folder, hosts, RACKS) as running:
        yield running


@pytest.fixture(scope="module")
def world(folder: Path, hosts: Hosts, brokers: HostBrokers) -> Iterator[World]:
    places = [hosts.place("driver"), *(in_rack(hosts.place(name), rack) for name, rack in WORKERS.items())]
    (folder / "spark").mkdir()
    with SparkCluster(folder / "spark", len(WORKERS), cores=2, places=places) as spark:
        yield World(hosts, brokers, spark)


@pytest.mark.timeout(300)
def test_an_exactly_once_sink_writes_where_brokers_are_milliseconds_apart(hosts: Hosts, brokers: HostBrokers) -> None:
    topic, servers = brokers.create_topic("far", PARTITIONS), brokers.internal_bootstrap_servers
    for broker in RACKS:
        hosts.set_link(broker, Link(delay=0.005))
    sink = Sink(servers, topic)
    sink.run(0)
    # What failed is fenced.
    failed = sink.begin()
    sink.tasks(failed, 1)
    assert len(sink.abort(failed)) == TASKS
    sink.run(1)
    for broker in RACKS:
        hosts.set_link(broker, Link())
    with CommittedReader(servers, topic, PARTITIONS) as output:
        output.wait_for(2 * len(whole(0)))
    assert output.values == whole(0, 1)


def offsets(checkpoint: Path) -> list[dict[str, Any]]:
    """The end offsets of a query's batches."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def has_rows(folder: Path, count: int) -> bool:
    return len(written_rows(folder, "offset")) == count


def sizes(ends: list[dict[str, Any]]) -> list[int]:
    return [sum(end - start for start, end, *_ in of.values()) for one in ends for of in one["partitions"].values()]


@pytest.mark.timeout(300)
def test_a_driver_with_only_sparks_ports_open_and_a_name_with_a_dead_address(world: World, tmp_path: Path) -> None:
    topic, count = world.brokers.create_topic("closed", PARTITIONS), 60
    # Its first address is that of no host.
    world.hosts.set_names({"kafka": [world.hosts.unused_address(), *map(world.hosts.addresses.__getitem__, RACKS)]})
    produce(world.brokers.internal_bootstrap_servers, topic, count)
    limits: dict[str, dict[str, object]] = {
        "out": {"quota.records.per.second": 1000},
        "out-2": {"targetTriggerDuration": "2s"},
        "out-3": {"maxBytesPerTrigger": "1m"},
        "out-4": {"mode": "PERMISSIVE", "value.format": "json", "value.schema": "boolean"},
    }
    spark = frozenset({DRIVER_PORT, BLOCKS_PORT, int(world.spark.master.rpartition(":")[2])})
    world.hosts.set_link("driver", Link(open_ports=spark))
    sources = [world.source(topic, **limit, **{"kafka.bootstrap.servers": "kafka:9092"}) for limit in limits.values()]
    with world.run("streaming_app", tmp_path, *sources) as app:
        for out, limit in limits.items():
            wait_until(partial(has_rows, tmp_path / out, count), f"all rows with {limit}")
        app.stop()
    world.hosts.set_link("driver", Link())
    assert not any("failed" in line for line in app.lines())
    assert world.hosts.refused
    quota, target, size, bad = (offsets(tmp_path / out.replace("out", "checkpoint")) for out in limits)
    # No task has told anything: neither rates, nor the size of records, nor that all of them are bad.
    assert [one["quota"]["slots"] for one in quota] == [{}] * len(quota)
    assert [one["metrics"]["maxOffsets"] for one in target][:1] == [1000]
    assert max(sizes(size)) <= (1 << 20) // 65_536 + PARTITIONS
    assert not any("badRecords" in one["metrics"] for one in bad)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_executors_read_from_the_brokers_of_their_rack(world: World, tmp_path: Path) -> None:
    topic, copy, count = (
        world.brokers.create_topic("named", PARTITIONS),
        world.brokers.create_topic("copy", PARTITIONS),
        20_000,
    )
    servers = world.brokers.internal_bootstrap_servers
    produce(servers, topic, count)
    group = {"kafka.group.id": "named", "group.members": 2, "commit": "sink", "kafka.client.rack": "env:RACK"}
    sink = {
        "kafka.bootstrap.servers": world.brokers.bootstrap_servers,
        "topic": copy,
        "transactional": True,
        "transactional.id.prefix": "named",
        "commit.group": "named",
    }
    before = world.hosts.bytes.copy()
    with (
        CommittedReader(servers, copy, PARTITIONS) as output,
        world.run("copying_app", tmp_path, world.source(topic, **group), sink) as app,
    ):
        output.wait_for(count, 180)
        app.stop()
    assert sorted(map(int, output.values)) == [*range(count)]
    passed = world.hosts.bytes - before
    for worker, rack in WORKERS.items():
        near = sum(passed[broker, worker] for broker in RACKS if RACKS[broker] == rack)
        assert near > 5 * (sum(passed[broker, worker] for broker in RACKS) - near), passed


def has_all(output: CommittedReader, values: set[bytes]) -> bool:
    return set(output.values) >= values


@dataclass(frozen=True)
class Copies:
    """Two queries of one application that copy a topic, which grows all the time, and readers of their output."""

    app: App
    load: Load
    outputs: tuple[CommittedReader, CommittedReader]

    def progress(self, seconds: float = 240) -> float:
        """Wait until both outputs have records that were written after this call; return how long it took."""
        began, first = time.monotonic(), str(self.load.count).encode()
        for output in self.outputs:
            wait_until(partial(self._has, output, first), f"the record {first!r}", seconds)
        return time.monotonic() - began

    def _has(self, output: CommittedReader, value: bytes) -> bool:
        assert self.app.process.poll() is None, self.app.log.read_text(errors="replace")[-3000:]
        return any(record[3] == value for record in output.records[-20_000:])

    def check(self) -> None:
        """End the load, and compare what is in both outputs with it: exactly once in the first."""
        self.load.close()
        everything = {str(number).encode() for number in range(self.load.count)}
        for output in self.outputs:
            wait_until(partial(has_all, output, everything), "all records")
        assert set(self.outputs[1].values) == everything
        assert len(self.outputs[0].records) == len(everything)
        self.app.stop()
        assert not any("failed" in line for line in self.app.lines())


@contextmanager
def copies(world: World, folder: Path, name: str) -> Iterator[Copies]:
    servers = world.brokers.internal_bootstrap_servers
    source, *outputs = (world.brokers.create_topic(f"{name}-{topic}", PARTITIONS) for topic in ("in", "once", "least"))
    options: list[dict[str, object]] = []
    for output in outputs:
        group: dict[str, object] = {
            "kafka.group.id": output,
            "kafka.group.instance.id": output,
            "group.members": 2,
            "kafka.session.timeout.ms": 6_000,
            "maxOffsetsPerTrigger": 1_000,
            **LIMITS,
        }
        sink = {"kafka.bootstrap.servers": world.brokers.bootstrap_servers, "topic": output, **LIMITS}
        if output.endswith("once"):
            group |= {"commit": "sink"}
            sink |= {"transactional": "true", "transactional.id.prefix": output, "commit.group": output}
        options += [world.source(source, **group), sink]
    with (
        CommittedReader(servers, outputs[0], PARTITIONS) as once,
        CommittedReader(servers, outputs[1], PARTITIONS) as least,
        world.run("copying_app", folder, *options, **QUICK_TO_NOTICE) as app,
    ):
        load = Load(servers, source, 100)
        try:
            yield Copies(app, load, (once, least))
        finally:
            load.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_host_is_cut_off_in_turn(world: World, tmp_path: Path) -> None:
    with copies(world, tmp_path, "cut") as running:
        running.progress()
        for host in (*RACKS, *WORKERS):
            world.hosts.set_link(host, Link(cut=True))
            without = running.progress()
            world.hosts.set_link(host, Link())
            print(f"  {host}: {without:.1f} s without it, {running.progress():.1f} s after that", flush=True)
        world.hosts.set_link("driver", Link(cut=True))
        time.sleep(15)
        world.hosts.set_link("driver", Link())
        print(f"  driver: {running.progress():.1f} s after 15 s", flush=True)
        running.check()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_links_lose_packets(world: World, tmp_path: Path) -> None:
    with copies(world, tmp_path, "loss") as running:
        running.progress()
        for host in world.hosts.addresses:
            world.hosts.set_link(host, Link(loss=0.05))
        for _ in range(5):
            running.progress()
        for host in world.hosts.addresses:
            world.hosts.set_link(host, Link())
        running.check()
