"""A topic is created again at each request of a micro-batch: nothing of the wrong one is read or committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.pinned_read import pinned_ranges
from kafka_source.schema import source_schema
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query, read_bundle
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy, pass_on
from tests.support.records import create_again, produce
from tests.support.waiting import wait_until

METADATA, OFFSET_COMMIT, HEARTBEAT, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 3, 8, 12, 25, 26, 28
READ, UNREAD, NEW = range(10), range(10, 15), range(100, 120)


@pytest.fixture(scope="module")
def proxy() -> Iterator[tuple[TcpProxy, EmbeddedKafka]]:
    with TcpProxy() as made, EmbeddedKafka(advertised_ports={1: made.port}, version="4.4.0") as kafka:
        made.connect_to(kafka.port(1))
        yield made, kafka


class Incarnations:
    """A topic that is created again while one request is held, and a stream that reads it.

    Args:
        proxy: Between stream and broker.
        kafka: The broker.
        held: The API key of the request that is held, and which of them, from 0; None: nothing is held.
        commit: Who commits: `batch`, the driver, or `task`.
        transactional: Whether offsets are committed in transactions, which name topics by id from Kafka 4.4 on.

    Attributes:
        is_held: Whether there was such a request.
        seen: The API keys of all requests but heartbeats, which come at any time.
        values: What was read.
    """

    def __init__(
        self, proxy: TcpProxy, kafka: EmbeddedKafka, held: tuple[int, int] | None, commit: str, *, transactional: bool
    ) -> None:
        self.api_key, self.left = (-1, 0) if held is None else held
        self.proxy, self.kafka = proxy, kafka
        self.name = f"incarnations-{self.api_key}-{self.left}-{commit}-{transactional}"
        self.tp = TopicPartition(self.name, 0)
        self.is_held = False
        self.seen: set[int] = set()
        self.values: list[int] = []
        self.groups = Groups(Settings({"bootstrap.servers": kafka.internal_bootstrap_servers}))
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "subscribe": self.name,
            "startingOffsets": "earliest",
            "kafka.group.id": self.name,
            "group.members": "1",
            "kafka.heartbeat.interval.ms": "200",
            "kafka.metadata.max.age.ms": "300",
            "data.loss.patience.ms": "1000",
            "failOnDataLoss": "false",
            "commit": commit,
            "commit.transactional": str(transactional).lower(),
        }
        kafka.create_topic(self.name, 1)
        produce(kafka.internal_bootstrap_servers, self.name, len(READ))
        self.query = Query.of(options, source_schema(headers=False), Where.STREAM)
        self.stream = MicroBatches(self.query)
        self.at = StreamOffset()

    @property
    def committed(self) -> int | None:
        return self.groups.committed(self.name).get(self.tp)

    def batch(self) -> None:
        """Do what Spark does in a trigger."""
        end = self.stream.next(self.at, limited=True)
        if end == self.at:
            return
        for bundle in self.stream.tasks(self.at, end):
            for records in read_bundle(bundle, self.query):
                self.values += map(int, records["value"].to_pylist())
        self.at = end
        self.stream.finished(end)

    def hold(self, frame: Frame) -> Iterable[bytes]:
        """Create the topic again while the request is on its way."""
        if frame.api_key != HEARTBEAT:
            self.seen.add(frame.api_key)
        if frame.api_key == self.api_key and not self.is_held:
            self.left -= 1
            if self.left < 0:
                self.is_held = True
                self.kafka.delete_topic(self.name)
                wait_until(lambda: self.committed is None, "the old topic's offset to be deleted")
                create_again(self.kafka, self.name, 1)
                produce(self.kafka.internal_bootstrap_servers, self.name, len(NEW), first=NEW.start)
        return [frame.payload]

    def play(self) -> None:
        with closing(self.stream):
            wait_until(lambda: self.batch() or self.committed == len(READ), "the first batch to be committed")
            produce(self.kafka.internal_bootstrap_servers, self.name, len(UNREAD), first=UNREAD.start)
            self.proxy.on_request = self.hold
            try:
                wait_until(self.is_done, "all records to be read", 60)
            finally:
                self.proxy.on_request = pass_on
        old = [value for value in self.values if value < NEW.start]
        assert old == [*READ, *UNREAD][: len(old)]
        if self.is_held:
            assert self.values[len(old) :] == [*NEW]

    def is_done(self) -> bool:
        self.batch()
        committed = self.committed
        if not self.is_held:
            return committed == UNREAD.stop
        assert committed in (None, 0, len(NEW)), f"{committed} of the old topic is committed for the new one"
        return committed == len(NEW)


@pytest.mark.long
@pytest.mark.requires_native
@pytest.mark.timeout(900)
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("commit", ["batch", "task"])
def test_no_record_of_another_incarnation_is_read_or_committed(
    proxy: tuple[TcpProxy, EmbeddedKafka], commit: str, transactional: bool
) -> None:
    plain = Incarnations(*proxy, None, commit, transactional=transactional)
    plain.play()
    held: Counter[int] = Counter()
    for api_key in sorted(plain.seen):
        while True:
            made = Incarnations(*proxy, (api_key, held[api_key]), commit, transactional=transactional)
            made.play()
            if not made.is_held:
                break
            held[api_key] += 1
    print(held)
    commits = {26, 28} if transactional else {8}
    assert {1, 2, 3} | commits <= held.keys(), "Fetch, ListOffsets, Metadata and the requests of a commit"


@contextmanager
def consumed(brokers: str, name: str) -> Iterator[None]:
    """Read a topic as `arrow.consume` does; the end commits."""
    settings = {"bootstrap.servers": brokers, "group.id": name}
    with arrow.consume(name, settings, max_wait=0, fail_on_data_loss=False) as stream:
        assert sum(batch.num_rows for batch in stream) == len(READ)
        yield
        stream.commit()


def pinned(transactional: str) -> Callable[[str, str], AbstractContextManager[None]]:
    """Return a function that reads a topic as `pinned` does; the end commits."""

    @contextmanager
    def read(brokers: str, name: str) -> Iterator[None]:
        options = {
            "kafka.bootstrap.servers": brokers,
            "subscribe": name,
            "kafka.group.id": name,
            "commit.transactional": transactional,
            "failOnDataLoss": "false",
        }
        with pinned_ranges(options) as ranges:
            assert sum(r.size for r in ranges) == len(READ)
            yield

    return read


@pytest.mark.long
@pytest.mark.requires_native
@pytest.mark.parametrize(
    ("read", "requests"),
    [
        pytest.param(consumed, [OFFSET_COMMIT], id="arrow.consume"),
        pytest.param(pinned("false"), [OFFSET_COMMIT], id="pinned"),
        pytest.param(pinned("true"), [TXN_OFFSET_COMMIT, END_TXN], id="pinned in a transaction"),
    ],
)
def test_a_commit_names_the_topic_by_its_id_and_looks_at_nothing(
    proxy: tuple[TcpProxy, EmbeddedKafka],
    read: Callable[[str, str], AbstractContextManager[None]],
    requests: list[int],
    request: pytest.FixtureRequest,
) -> None:
    made, kafka = proxy
    groups = Groups(Settings({"bootstrap.servers": kafka.internal_bootstrap_servers}))

    def commit(name: str, held: int | None) -> list[int]:
        """Commit, and create the topic again while one of the requests is on its way; return their API keys."""
        seen: list[int] = []

        def hold(frame: Frame) -> Iterable[bytes]:
            # A client that opens its first connection asks for the brokers, and for no topic.
            looks = frame.api_key == METADATA and name.encode() in frame.payload
            if looks or frame.api_key in (OFFSET_COMMIT, ADD_OFFSETS, TXN_OFFSET_COMMIT, END_TXN):
                seen.append(frame.api_key)
                if len(seen) - 1 == held:
                    kafka.delete_topic(name)
                    create_again(kafka, name, 1)
            return [frame.payload]

        kafka.create_topic(name, 1)
        produce(kafka.internal_bootstrap_servers, name, len(READ))
        try:
            with read(f"127.0.0.1:{made.port}", name):
                made.on_request = hold
        finally:
            made.on_request = pass_on
        return seen

    def has_no_offset(name: str) -> bool:
        return groups.committed(name).get(TopicPartition(name, 0)) is None

    name = f"commit-{request.node.callspec.id.replace(' ', '-')}"
    tp = TopicPartition(name, 0)
    assert commit(name, None) == requests
    wait_until(lambda: groups.committed(name).get(tp) == len(READ), "the commit")
    for held in range(len(requests)):
        again = f"{name}-{held}"
        seen = commit(again, held)
        assert METADATA in seen or requests[held] == END_TXN, "whoever is refused looks"
        wait_until(partial(has_no_offset, again), "no offset of the deleted topic")
