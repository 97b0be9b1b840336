"""A topic is created again at each request of a micro-batch: nothing of the wrong one is read or committed."""

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
from kafka_source.pinned_read import pinned_ranges
from kafka_source.source.read_task import read_bundle
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
            wait_until(lambda: set(READ) <= values().keys(), "the first records")
            proxy.on_request = hold
            produce(servers, name, len(UNREAD), first=UNREAD.start)
            produced.set()
            queries[0].wants_restart = True
            wait_until(held.is_set, f"a request of the kind {case.held}")
            wait_until(lambda: is_committed() and set(NEW) <= values().keys(), "the new records")
        finally:
            proxy.on_request = pass_on
            stop.set()
        for one in reading:
            one.result()
    if case.version > "3":
        # Brokers before 3.1 fetch by name: what is planned of one topic may be read of the next one, too.
        assert {value: count for value, count in values().items() if count > 1} == {}
