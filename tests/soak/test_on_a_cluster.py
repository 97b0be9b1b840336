"""Three queries on a Spark cluster beside three brokers, for 45 minutes, while everything fails at random.

    ./run test -m long tests/soak -s

One query copies exactly once, with speculation; two share their groups with Java consumers. One of these prefers
another strategy at each start, and reads a topic besides that grows, is created again and loses records. It prints its
seed and each fault. KAFKAGROUP_SEED=… chooses the same faults again, KAFKAGROUP_SOAK_MINUTES=… another duration.
KAFKAGROUP_TEST_BROKERS=… has it use brokers that run already, without faults of brokers and of the network.
KAFKAGROUP_HISTORY=FILE has it write the history of the copy, for a checker that is not ours.
"""

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import TcpProxy
from testbed import processes
from testbed.load import Load
from testbed.spark_cluster import SparkCluster
from tests.soak.faults import Faults
from tests.soak.measure import Curves, rising
from tests.soak.queries import INPUT, PARTITIONS, JavaConsumer, Output, Place, Query, Shared, wait_started
from tests.soak.side_topic import SIDE, SideTopic
from tests.support.history import History
from tests.support.other_brokers import other_brokers
from tests.support.records import CommittedReader
from tests.support.waiting import wait_until

MINUTES = float(os.environ.get("KAFKAGROUP_SOAK_MINUTES", "45"))
RECORDS_PER_SECOND = 100
# 60 in 45 minutes, at least.
LEAST_FAULTS = int(MINUTES * 60 / 45)
# Memory is level from this part of the time on: ten minutes of 45.
SETTLED_AFTER = MINUTES * 60 * 10 / 45
SAMPLE_SECONDS = 10.0
# Two executors of one core, so that a slow attempt of a task gets another one beside it.
SPECULATION = {
    "spark.cores.max": 2,
    "spark.executor.cores": 1,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": 0.3,
    "spark.speculation.multiplier": 1.01,
}


@contextmanager
def brokers() -> Iterator[tuple[EmbeddedKafka, Mapping[int, TcpProxy]]]:
    """Run three brokers, each behind a proxy; or use others, without a proxy."""
    if (others := other_brokers()) is not None:
        yield others, {}
        return
    config = {"default.replication.factor": 3, "min.insync.replicas": 2}
    with ExitStack() as stack:
        proxies = {node: stack.enter_context(TcpProxy()) for node in (1, 2, 3)}
        ports = {node: proxy.port for node, proxy in proxies.items()}
        kafka = EmbeddedKafka(nodes=3, config=config, advertised_ports=ports)
        stack.enter_context(kafka)
        for node, proxy in proxies.items():
            proxy.connect_to(kafka.port(node))
        yield kafka, proxies


@dataclass
class Running:
    """Everything that runs."""

    kafka: EmbeddedKafka
    workers: SparkCluster
    source: CommittedReader
    copy: Output
    shared: list[Shared]
    side: SideTopic

    @property
    def queries(self) -> list[Query]:
        return [self.copy.query, *(shared.query for shared in self.shared)]

    def start(self) -> None:
        """Have everything run, what has ended by itself too."""
        for query in self.queries:
            query.start()
        for shared in self.shared:
            shared.java.start()

    def kill(self) -> None:
        for query in self.queries:
            query.kill()
        for shared in self.shared:
            if shared.java.app is not None:
                shared.java.app.kill()

    def sample(self, curves: Curves, at: float) -> None:
        # Not the drivers that are killed: their memory begins again.
        steady = self.shared[-1].query
        curves.sample(at, {steady.name: steady.pids(), "cluster": self.workers.pids()})


class PlaceOf(Mapping[bytes, Place]):
    """The place of each value in the input, as far as its reader has seen it."""

    def __init__(self, reader: CommittedReader) -> None:
        self._reader = reader
        self._places: dict[bytes, Place] = {}
        self._read = 0

    def __getitem__(self, value: bytes) -> Place:
        if value not in self._places:
            fresh = self._reader.records[self._read :]
            self._read += len(fresh)
            self._places.update((text, (partition, offset)) for partition, offset, _, text in fresh)
        return self._places[value]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@contextmanager
def everything(folder: Path) -> Iterator[tuple[Running, Mapping[int, TcpProxy]]]:
    """Run brokers, Spark and the queries; at the end nothing of them runs."""
    with ExitStack() as stack:
        kafka, proxies = stack.enter_context(brokers())
        for topic in (INPUT, "soak-once", "soak-least"):
            kafka.create_topic(topic, PARTITIONS, 3)
        (folder / "spark").mkdir()
        workers = stack.enter_context(SparkCluster(folder / "spark", cores=2, memory="1400m"))
        servers = kafka.internal_bootstrap_servers
        source, once, least = (
            stack.enter_context(CommittedReader(servers, topic, PARTITIONS))
            for topic in (INPUT, "soak-once", "soak-least")
        )
        place_of = PlaceOf(source)

        def query(name: str, topic: str | None, **more: object) -> Query:
            return Query(name, folder / name, workers.master, kafka, topic, **more)  # type: ignore[arg-type]

        def shared(of: Query, copies: CommittedReader | None) -> Shared:
            return Shared(of, JavaConsumer(of, folder / f"{of.name}-java"), copies, place_of)

        copy = Output(query("once", "soak-once", exactly_once=True, conf=SPECULATION), once)
        # Both are eager, as is Java's: a group must not change to another kind of rebalance at once.
        files = shared(query("files", None, preferred=("roundrobin", "sticky"), lossy=(SIDE,)), None)
        again = shared(query("least", "soak-least", strategy="cooperative-sticky"), least)
        running = Running(kafka, workers, source, copy, [files, again], SideTopic(kafka))
        try:
            yield running, proxies
        finally:
            running.kill()


def wait_for_progress(reader: CommittedReader, seconds: float) -> None:
    """Wait until the reader sees something new, or so long: most faults shall meet a query at work."""
    before, end = len(reader.records), time.monotonic() + seconds
    while len(reader.records) == before and time.monotonic() < end:
        time.sleep(0.1)


def check_whole(running: Running, count: int) -> None:
    """Wait until the output equals the input, and the committed offsets are its end."""
    ends: dict[int, int] = defaultdict(int)
    for partition, offset, *_ in running.source.records:
        ends[partition] = max(ends[partition], offset + 1)
    places = {(partition, offset) for partition, offset, *_ in running.source.records}
    assert len(places) == count

    def ready(done: bool) -> bool:
        running.start()
        return done

    def shared_is_whole(shared: Shared) -> bool:
        return ready(shared.durable() == places)

    def has_committed(query: Query) -> bool:
        return query.committed() == dict(ends)

    copied = running.copy.reader
    wait_until(lambda: ready(len(copied.records) >= count), f"{count} copies; {len(copied.records)}", 900)
    for shared in running.shared:
        wait_until(partial(shared_is_whole, shared), f"all records of {shared.query.name}", 900)
    for query in running.queries:
        wait_until(partial(has_committed, query), f"{query.name} to commit {dict(ends)}", 120)


def check_side(running: Running, last: set[int]) -> None:
    """Wait until the records after the last loss are read; what was lost may have been read or not."""
    (reads,) = (query for query in running.queries if query.lossy)

    def done() -> bool:
        running.start()
        return last <= reads.written_numbers(SIDE)

    wait_until(done, f"{len(last)} records of {SIDE}", 300)
    assert reads.written_numbers(SIDE) <= running.side.written


def check_same(source: CommittedReader, copy: CommittedReader) -> None:
    """Every record once, in its partition and in its order."""
    sides = []
    for reader in (source, copy):
        values = defaultdict(list)
        for partition, _, key, value in reader.records:
            values[partition].append((key, value))
        sides.append(values)
    assert sides[0] == sides[1]


def history_of(source: CommittedReader, copy: CommittedReader) -> History:
    """Return the history of the input's writer, and of a reader of the input's copies."""
    history, offsets = History(), {value: offset for _, offset, _, value in source.records}
    for first in range(0, len(source.records), 100):
        written = source.records[first : first + 100]
        history.send([(partition, (offset, int(value))) for partition, offset, _, value in written])
    history.read([(partition, (offsets[value], int(value))) for partition, _, _, value in copy.records])
    return history


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 3600)
def test_what_comes_in_comes_out_whatever_fails(tmp_path: Path) -> None:
    seed = int(os.environ.get("KAFKAGROUP_SEED", random.randrange(1 << 30)))
    print(f"\nseed {seed}, {MINUTES:g} minutes", flush=True)
    rng = random.Random(seed)
    threads, descriptors = threading.active_count(), processes.descriptors()
    with everything(tmp_path) as (running, proxies):
        load = Load(running.kafka.internal_bootstrap_servers, INPUT, RECORDS_PER_SECOND)
        running.start()
        for query in running.queries:
            wait_started(query)
        faults = Faults(rng, running.kafka, proxies, running.workers, running.copy, running.shared, running.side)
        curves, began, sampled = Curves(), time.monotonic(), 0.0
        while (elapsed := time.monotonic() - began) < MINUTES * 60 or faults.done.total() < LEAST_FAULTS:
            running.start()
            if elapsed - sampled >= SAMPLE_SECONDS:
                sampled = elapsed
                running.sample(curves, elapsed)
            wait_for_progress(running.copy.reader, 20)
            time.sleep(rng.uniform(0, 12))
            name = faults.one()
            print(f"  {elapsed:5.0f} s, {faults.done.total()}: {name}", flush=True)
        load.close()
        running.source.wait_for(load.count, 120)
        last = running.side.write()
        check_whole(running, load.count)
        check_side(running, last)
        for query in running.queries:
            query.stop()
            again = f"{query.starts} starts, {len(query.ended_by_itself)} of them after an end of its own"
            print(f"  {query.name}: {again}", *query.ended_by_itself, sep="\n    ", flush=True)
        for shared in running.shared:
            shared.java.stop()
            shared.check_offsets()
        running.copy.finish_and_compare()
        wait_until(lambda: not running.workers.executors(), "the end of all executors", 60)
        with CommittedReader(running.kafka.internal_bootstrap_servers, "soak-once", PARTITIONS) as after:
            after.wait_for(load.count)
            if path := os.environ.get("KAFKAGROUP_HISTORY"):
                history_of(running.source, after).write(Path(path))
            check_same(running.source, after)
            assert sorted(after.records) == sorted(running.copy.reader.records)
        for reader in (running.copy.reader, running.source):
            reader.check_order()
        compared = running.copy.compared, *(shared.compared for shared in running.shared)
        print(f"  {load.count} records, offsets compared {compared}, {dict(faults.done)}", flush=True)
        growth = curves.growth(SETTLED_AFTER)
        print(*(f"  {name}: {before} -> {after}" for name, (before, after) in growth.items()), sep="\n", flush=True)
    assert faults.done.total() >= LEAST_FAULTS
    assert rising(growth) == []
    # What confluent-kafka's clients and proxies had.
    wait_until(lambda: threading.active_count() <= threads + 2, f"the end of threads: {threading.enumerate()}", 30)
    assert processes.descriptors() <= descriptors + 8
