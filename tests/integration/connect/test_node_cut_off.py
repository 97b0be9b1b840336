"""One node of three is cut off from the others and from the controllers, and clients still reach it.

It answers as if nothing had changed: that it leads its partitions, and coordinates its groups and transactions.
"""

import contextlib
import itertools
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import GROUP, TRANSACTION, Deadline, cached_client
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.transactions.offset_committer import transactional_id_of
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.server_config import CLIENT, CONTROLLER, INTERNAL, LOOPBACK, NodePorts, server_config
from kafkagroup.embedded.tcp_proxy import CutConnection, Frame, Hook, TcpProxy, pass_on
from tests.support.queries import Job, Pipe
from tests.support.records import produce
from tests.support.waiting import wait_until, wait_until_committed

NODES = (1, 2, 3)
PARTITIONS = 6
COUNT = 60
AGE_MS = 2_000
# The client ids of brokers and controllers: `3`, `broker-3-fetcher-0`, `raft-client-3`.
_used: set[int] = set()
_NODE = re.compile(r"(?:broker-|raft-client-)?(\d+)\b")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Place:
    """Three nodes that reach each other by proxies only; clients reach them directly."""

    def __init__(self, kafka: EmbeddedKafka, proxies: Mapping[tuple[str, int], TcpProxy]) -> None:
        self.kafka = kafka
        self._proxies = proxies

    def servers(self, node: int) -> str:
        return f"{LOOPBACK}:{self.kafka.port(node)}"

    @contextlib.contextmanager
    def cut_off(self, node: int) -> Iterator[str]:
        """Cut a node off until the end; the address of another one, when those have leaders of their own."""
        other = self.servers(next(n for n in NODES if n != node))
        for (_, target), proxy in self._proxies.items():
            proxy.on_request = _without(node, target)
        try:
            wait_until(lambda: node not in _leaders(other), f"the others to leave node {node}")
            yield other
        finally:
            for proxy in self._proxies.values():
                proxy.on_request = pass_on
            self.kafka.wait_ready()


def _without(node: int, target: int) -> Hook:
    def hook(frame: Frame) -> list[bytes]:
        (size,) = struct.unpack_from(">h", frame.payload, 8)
        sender = _NODE.match(frame.payload[10 : 10 + max(0, size)].decode())
        if sender is not None and (int(sender[1]) == node) != (target == node):
            raise CutConnection
        return [frame.payload]

    return hook


def _leaders(servers: str) -> set[int]:
    """All leaders as this node knows them."""
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
    return {one.leader for topic in topics.values() for one in topic.partitions.values()}


def write(servers: str, topic: str, first: int = 0) -> None:
    """Each record once, also where elections delay the answers."""
    produce(servers, topic, COUNT, first=first, config={"enable.idempotence": True})


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with contextlib.ExitStack() as opened:
        proxies = {(name, n): opened.enter_context(TcpProxy()) for name in (INTERNAL, CONTROLLER) for n in NODES}

        def through_proxies(node: int, ports: NodePorts, _: object, log_dir: Path, *more: object) -> dict[str, str]:
            # StorageTool gets the settings of no node, without a folder.
            if log_dir.parts:
                proxies[INTERNAL, node].connect_to(ports.internal)
                proxies[CONTROLLER, node].connect_to(ports.controller)
            controllers = {n: proxies[CONTROLLER, n].port for n in NODES}
            config = server_config(node, ports, controllers, log_dir, *more)  # type: ignore[arg-type]
            advertised = {
                CLIENT: ports.client,
                INTERNAL: proxies[INTERNAL, node].port,
                CONTROLLER: proxies[CONTROLLER, node].port,
            }
            addresses = (f"{name}://{LOOPBACK}:{port}" for name, port in advertised.items())
            return {**config, "advertised.listeners": ",".join(addresses)}

        patched = opened.enter_context(pytest.MonkeyPatch.context())
        patched.setattr("kafkagroup.embedded.cluster.server_config", through_proxies)
        yield Place(opened.enter_context(EmbeddedKafka(nodes=3)), proxies)


@pytest.fixture
def group(place: Place) -> str:
    """A group whose coordinator coordinates the transactions of its commits, too."""
    client, deadline = cached_client(Settings({"bootstrap.servers": place.kafka.bootstrap_servers})), Deadline(60)

    def node(kind: int, key: str) -> int:
        return client.run(client.coordinator(key, deadline, kind)).node_id

    for number in itertools.count():
        name = f"group-{number}"
        transactional_id = transactional_id_of(name, [TopicPartition(f"{name}-in", 0)])
        if number not in _used and node(GROUP, name) == node(TRANSACTION, transactional_id):
            _used.add(number)
            return name
    raise AssertionError


@pytest.fixture
def coordinator(place: Place, group: str) -> int:
    """The node that coordinates the group."""
    admin = place.kafka.admin()

    def found() -> int | None:
        with contextlib.suppress(Exception):
            return int(admin.describe_consumer_groups([group])[group].result(timeout=10).coordinator.id)
        return None

    return wait_until(found, "the coordinator")


@pytest.fixture
def name(place: Place, group: str) -> str:
    made = place.kafka.create_topic(f"{group}-in", PARTITIONS, 3)
    write(place.kafka.bootstrap_servers, made)
    return made


class Reading:
    """A query without Spark, with all values that it has read."""

    def __init__(self, place: Place, node: int, group: str, topic: str, **options: object) -> None:
        servers = {"kafka_bootstrap_servers": place.servers(node), "kafka_metadata_max_age_ms": AGE_MS}
        self.job = Job(place.kafka, group, subscribe=topic, **servers, **options)
        self._seen: list[int] = []

    def next(self, planner: MicroBatches) -> list[int]:
        """Read a micro-batch if there is one; return all values so far."""
        end = planner.next(self.job.offsets[-1], limited=True)
        if end is not self.job.offsets[-1]:
            self.job.offsets.append(end)
            self._seen.extend(self.job.read(planner, *self.job.offsets[-2:]))
        return sorted(self._seen)


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_stream_reads_what_the_new_leaders_have(
    place: Place, group: str, name: str, coordinator: int, engine: str
) -> None:
    reading = Reading(place, coordinator, group, name, engine=engine, group_membership="false")
    with contextlib.closing(reading.job.planner()) as planner:
        assert reading.next(planner) == [*range(COUNT)]
        with place.cut_off(coordinator) as other:
            write(other, name, first=COUNT)
            wait_until(lambda: reading.next(planner) == [*range(2 * COUNT)], "the new records")
            write(other, name, first=2 * COUNT)
            # Another driver, which knows nothing of the new leaders but what the checkpoint has.
            with contextlib.closing(reading.job.planner(kafka_client_id=f"{group}-again")) as restarted:
                wait_until(lambda: reading.next(restarted) == [*range(3 * COUNT)], "records after a restart")


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_a_member_goes_on_at_the_new_coordinator(
    place: Place, group: str, name: str, coordinator: int, transactional: str
) -> None:
    reading = Reading(place, coordinator, group, name, commit="batch", commit_transactional=transactional)
    with contextlib.closing(reading.job.planner()) as planner:
        assert reading.next(planner) == [*range(COUNT)]
        with place.cut_off(coordinator) as other:
            write(other, name, first=COUNT)
            groups = Groups(Settings({"bootstrap.servers": other}))

            def committed() -> bool:
                found = reading.next(planner)
                return found == [*range(2 * COUNT)] and sum(groups.committed(group).values()) == 2 * COUNT

            wait_until(committed, "the new records, and their commit", 120)


def test_a_sink_that_commits_for_its_source_goes_on_at_the_new_coordinators(
    place: Place, group: str, name: str, coordinator: int
) -> None:
    out = place.kafka.create_topic(f"{group}-out", PARTITIONS, 3)
    pipe = Pipe(place.servers(coordinator), name, out, group, f"{group}-copy", kafka_metadata_max_age_ms=AGE_MS)
    decided = pipe.whole_batch()
    with place.cut_off(coordinator) as other:
        write(other, name, first=COUNT)

        def written() -> bool:
            nonlocal pipe, decided
            try:
                if len(pipe.offsets) - 2 > decided:
                    pipe.replay()
                    pipe.decide()
                else:
                    pipe.whole_batch()
                decided = len(pipe.offsets) - 2
            except KafkaGroupError:
                # Spark ends the query, which somebody starts again: its last micro-batch comes first.
                pipe.close()
                pipe = pipe.restarted(kafka_metadata_max_age_ms=AGE_MS)
                return False
            output = arrow.read(out, {"bootstrap.servers": other, "isolation.level": "read_committed"})
            return sorted(int(value.as_py()) for value in pa.table(output)["value"]) == [*range(2 * COUNT)]

        wait_until(written, "the new records in the output", 240)
        wait_until_committed(Groups(Settings({"bootstrap.servers": other})), group, 2 * COUNT)
        pipe.close()
