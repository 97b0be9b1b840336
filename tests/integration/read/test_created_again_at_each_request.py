"""A topic is created again at each request of a micro-batch: nothing of the wrong one is read or committed."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from itertools import combinations, product

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.group.requests import fetch_all_committed
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.commits import OffsetNote
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
from tests.support.queries import Pipe
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


@dataclass(frozen=True)
class Case:
    """Queries of one group, and the request that is held while their topic is created again."""

    version: str
    commit: str
    transactional: bool
    protocol: str
    queries: int
    held: str

    @property
    def possible(self) -> bool:
        """Whether there are such queries: epochs rise while tasks run, and a sink lists transactions (Kafka 3.0)."""
        is_consumer, by_sink = self.protocol == "consumer", self.commit == "sink"
        return not (is_consumer and (self.version < "4" or self.commit == "task")) and not (
            by_sink and (self.version < "3" or not self.transactional)
        )

    @property
    def api_keys(self) -> tuple[int, ...]:
        return {
            "look": (METADATA,),
            "ends": (2,),
            "records": (1,),
            "offsets": (9,),
            "heartbeat": (HEARTBEAT, 68),
            "join": (11, 68),
            "commit": (OFFSET_COMMIT, TXN_OFFSET_COMMIT),
            "end of the commit": (END_TXN, OFFSET_COMMIT),
        }[self.held]


def _covering() -> list[Case]:
    """Return cases in which commit, queries and held request meet, and each two of the other values, if they can."""
    every = [
        case
        for values in product(
            ("2.8.2", "3.9.1", "4.3.1", "4.4.0"),
            ("batch", "task", "sink"),
            (True, False),
            ("classic", "consumer"),
            (1, 2),
            ("look", "ends", "records", "offsets", "heartbeat", "join", "commit", "end of the commit"),
        )
        if (case := Case(*values)).possible
    ]
    pairs = {
        case: {*combinations(enumerate(astuple(case)), 2), ((case.commit,), (case.queries,), (case.held,))}
        for case in every
    }
    left, chosen = set().union(*pairs.values()), []
    while left:
        chosen.append(max(every, key=lambda case: len(pairs[case] & left)))
        left -= pairs[chosen[-1]]
    return chosen


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[str], tuple[TcpProxy, EmbeddedKafka]]]:
    """Brokers of a version behind a proxy; those of one version at a time."""
    with ExitStack() as stack:
        known: dict[str, tuple[TcpProxy, EmbeddedKafka]] = {}

        def cluster(version: str) -> tuple[TcpProxy, EmbeddedKafka]:
            if version not in known:
                stack.pop_all().close()
                known.clear()
                made = stack.enter_context(TcpProxy())
                kafka = stack.enter_context(EmbeddedKafka(advertised_ports={1: made.port}, version=version))
                made.connect_to(kafka.port(1))
                known[version] = made, kafka
            return known[version]

        yield cluster


class Reads:
    """One query, as Spark runs it: a trigger that fails is a restart, which runs the batch again.

    Attributes:
        values: What its batches have read.
    """

    def __init__(self, case: Case, servers: str, name: str, number: int) -> None:
        given = {
            "kafka_heartbeat_interval_ms": "200",
            "kafka_metadata_max_age_ms": "300",
            "kafka_group_protocol": case.protocol,
            "group_members": "1",
            "data_loss_patience_ms": "1000",
            "failOnDataLoss": "false",
            "commit": case.commit,
            "commit_transactional": str(case.transactional).lower(),
        }
        if case.protocol == "consumer":
            del given["kafka_heartbeat_interval_ms"]
        self._make = lambda offsets: Pipe(servers, name, f"{name}-out", name, f"{name}-{number}", offsets, **given)
        self._commit = case.commit
        self._pipe: Pipe = self._make(None)
        self._has_unfinished = False
        self.values: list[int] = []
        self.wants_restart = False

    def trigger(self) -> None:
        try:
            if self.wants_restart:
                self._pipe.close()
                self._pipe = self._make(self._pipe.offsets)
                self.wants_restart = False
            self._batch()
        except KafkaGroupError as error:
            print(f"restarts after {type(error).__name__}: {error}")
            self.wants_restart = True

    def _batch(self) -> None:
        pipe = self._pipe
        if not self._has_unfinished:
            end = pipe.stream.next(pipe.offsets[-1], limited=True)
            if end is pipe.offsets[-1]:
                return
            pipe.offsets.append(end)
            self._has_unfinished = True
        # What tasks commit as soon as they have read it does not come again.
        read = self.values if self._commit == "task" else []
        if self._commit == "sink":
            pipe.replay()
            pipe.decide()
            read = pipe.read
        else:
            for bundle in pipe.stream.tasks(*pipe.offsets[-2:]):
                for records in read_bundle(bundle, pipe.reading):
                    read += map(int, records["value"].to_pylist())
        self._has_unfinished = False
        if self._commit != "task":
            self.values += read
        if self._commit != "sink":
            pipe.stream.finished(pipe.offsets[-1])

    def close(self) -> None:
        self._pipe.close()


_CASES = _covering()


@pytest.mark.requires_native
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(map(str, astuple(case))), marks=[] if number % 5 == 0 else [pytest.mark.long])
        for number, case in enumerate(sorted(_CASES, key=astuple))
    ],
)
def test_nothing_is_skipped_doubled_or_set_back(
    clusters: Callable[[str], tuple[TcpProxy, EmbeddedKafka]], case: Case, request: pytest.FixtureRequest
) -> None:
    proxy, kafka = clusters(case.version)
    servers = kafka.internal_bootstrap_servers
    name = f"again-{zlib.crc32(request.node.callspec.id.encode()):08x}"
    kafka.create_topic(name, 2)
    kafka.create_topic(f"{name}-out", 1)
    client = cached_client(Settings({"bootstrap.servers": servers}))
    queries = [Reads(case, f"127.0.0.1:{proxy.port}", name, number) for number in range(case.queries)]
    first, produced = threading.Lock(), threading.Event()
    held, stop, reached = threading.Event(), threading.Event(), dict[TopicPartition, int]()

    def hold(frame: Frame) -> Iterable[bytes]:
        if frame.api_key in case.api_keys and first.acquire(blocking=False):
            assert produced.wait(60)
            kafka.delete_topic(name)
            create_again(kafka, name, 2)
            produce(servers, name, len(NEW), first=NEW.start)
            held.set()
        return [frame.payload]

    def read(query: Reads) -> None:
        with closing(query):
            while not stop.is_set():
                query.trigger()
                stop.wait(0.05)

    def values() -> Counter[int]:
        return Counter(value for query in queries for value in query.values)

    def is_committed() -> bool:
        described = client.run(client.metadata([name], Deadline(30))).topics[name]
        for tp, entry in client.run(fetch_all_committed(client, name, Deadline(30))).items():
            if OffsetNote.parse(entry.metadata).topic == described.id_text:
                assert entry.offset >= reached.get(tp, 0), f"{tp} goes back from {reached[tp]} to {entry.offset}"
                reached[tp] = entry.offset
        return sum(reached.values()) == len(NEW)

    with ThreadPoolExecutor(len(queries)) as pool:
        reading = [pool.submit(read, query) for query in queries]
        try:
            produce(servers, name, len(READ))
            wait_until(lambda: set(READ) <= values().keys(), "the first records", 60)
            proxy.on_request = hold
            produce(servers, name, len(UNREAD), first=UNREAD.start)
            produced.set()
            queries[0].wants_restart = True
            wait_until(held.is_set, f"a request of the kind {case.held}", 60)
            wait_until(lambda: is_committed() and set(NEW) <= values().keys(), "the new records", 90)
        finally:
            proxy.on_request = pass_on
            stop.set()
        for one in reading:
            one.result()
    if case.version > "3":
        # Brokers before 3.1 fetch by name: what is planned of one topic may be read of the next one, too.
        assert {value: count for value, count in values().items() if count > 1} == {}
