"""Brokers, driver and executors on hosts of their own: closed ports, dead addresses, lost packets, hosts cut off.

KAFKAGROUP_HOSTS_MINUTES=20 spreads the cuts over so many minutes.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.read.sources import PEER
from kafkagroup.embedded import resolve
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
MINUTES = float(os.environ.get("KAFKAGROUP_HOSTS_MINUTES", "0"))
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
    """Queries of one application that copy a topic, which grows all the time, and readers of their outputs."""

    app: App
    load: Load
    outputs: Mapping[str, CommittedReader]

    def progress(self, seconds: float = 240) -> str:
        """Wait until each output has a record that was written after this call; return how long each one took."""
        began, first, took = time.monotonic(), str(self.load.count).encode(), dict[str, float]()

        def all_have() -> bool:
            assert self.app.process.poll() is None, self.app.log.read_text(errors="replace")[-3000:]
            for name in self.outputs.keys() - took:
                if any(record[3] == first for record in self.outputs[name].records[-20_000:]):
                    took[name] = time.monotonic() - began
            return len(took) == len(self.outputs)

        wait_until(all_have, f"the record {first!r}", seconds)
        return ", ".join(f"{name} {took[name]:.1f} s" for name in self.outputs)

    def check(self) -> None:
        """End the load, and compare what is in the outputs with it: exactly once in that of the exactly-once query."""
        self.load.close()
        everything = {str(number).encode() for number in range(self.load.count)}
        for output in self.outputs.values():
            wait_until(partial(has_all, output, everything), "all records")
            assert set(output.values) == everything
        print("  records:", *(f"{name} {len(output.records)}" for name, output in self.outputs.items()), flush=True)
        assert len(self.outputs["once"].records) == len(everything)
        self.app.stop()
        assert not any("failed" in line for line in self.app.lines())


@contextmanager
def copies(world: World, folder: Path, name: str, *kinds: str) -> Iterator[Copies]:
    """Copy with an exactly-once query, and with one that writes at least once of each connector in `kinds`."""
    servers = world.brokers.internal_bootstrap_servers
    source, *outputs = (world.brokers.create_topic(f"{name}-{topic}", PARTITIONS) for topic in ("in", "once", *kinds))
    options: list[dict[str, object]] = []
    for kind, output in zip(("once", *kinds), outputs, strict=True):
        reads: dict[str, object] = {"maxOffsetsPerTrigger": 1_000, **LIMITS}
        sink = {"kafka.bootstrap.servers": world.brokers.bootstrap_servers, "topic": output, **LIMITS}
        if kind == "kafka":
            reads |= {"format": kind}
            sink |= {"format": kind}
        else:
            reads |= {"kafka.group.id": output, "kafka.group.instance.id": output, "group.members": 2}
            reads |= {"kafka.session.timeout.ms": 6_000}
        if kind == "once":
            reads |= {"commit": "sink"}
            sink |= {"transactional": "true", "transactional.id.prefix": output, "commit.group": output}
        options += [world.source(source, **reads), sink]
    jars = {"spark.jars": ",".join(map(str, resolve(PEER)))} if "kafka" in kinds else {}
    with ExitStack() as stack:
        readers = {
            kind: stack.enter_context(CommittedReader(servers, output, PARTITIONS))
            for kind, output in zip(("once", *kinds), outputs, strict=True)
        }
        app = stack.enter_context(world.run("copying_app", folder, *options, **QUICK_TO_NOTICE, **jars))
        load = stack.enter_context(closing(Load(servers, source, 100)))
        yield Copies(app, load, readers)


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_each_host_is_cut_off_in_turn(world: World, tmp_path: Path) -> None:
    with copies(world, tmp_path, "cut", "kafkagroup", "kafka") as running:
        running.progress()
        began = time.monotonic()
        for number, host in enumerate((*RACKS, *WORKERS, "driver"), 1):
            world.hosts.set_link(host, Link(cut=True))
            if host == "driver":
                time.sleep(15)
            else:
                print(f"  without {host}: {running.progress()}", flush=True)
            world.hosts.set_link(host, Link())
            print(f"  {host} is back: {running.progress()}", flush=True)
            while time.monotonic() < began + MINUTES * 60 * number / 6:
                running.progress()
        running.check()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_links_lose_packets(world: World, tmp_path: Path) -> None:
    with copies(world, tmp_path, "loss", "kafkagroup") as running:
        running.progress()
        for host in world.hosts.addresses:
            world.hosts.set_link(host, Link(loss=0.05))
        for _ in range(5):
            running.progress()
        for host in world.hosts.addresses:
            world.hosts.set_link(host, Link())
        running.check()
