"""Leaders move, brokers restart or freeze and connections break while a range is read: every record comes once."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from kafka_source.client_config import Settings
from kafka_source.fetch import protocol
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.model.stream_offset import Range
from kafka_source.schema import Column
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy, pass_on

ENGINES = ("native", "librdkafka")
RECORDS = 30_000
VALUE = b"x" * 100
COLUMNS = (Column("partition"), Column("offset"), Column("value"))


def fill(kafka: EmbeddedKafka, topic: str) -> tuple[Range, ...]:
    """Some megabytes in two partitions; the values are numbers that ascend within a partition."""
    producer = Producer(
        {"bootstrap.servers": kafka.internal_bootstrap_servers, "batch.size": 10_000, "enable.idempotence": True}
    )
    for number in range(RECORDS):
        producer.produce(topic, b"%08d" % number + VALUE, partition=number % 2, on_delivery=_delivered)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return tuple(Range(topic, n, 0, RECORDS // 2) for n in range(2))


def _delivered(error: object, _: object) -> None:
    assert error is None, error


def read(
    servers: str, engine: str, ranges: tuple[Range, ...], trouble: Callable[[], None] | None = None, **settings: object
) -> None:
    """Read all, with `trouble` after the first batch, and see that every record has come once and in order.

    The fetch size is small, so that much is left to be fetched then, and requests are on their way.
    """
    config = {"bootstrap.servers": servers, "max.partition.fetch.bytes": 100_000}
    if engine == "librdkafka":
        config["queued.max.messages.kbytes"] = 100
    small = Settings({name: str(value) for name, value in {**config, **settings}.items()})
    request = FetchRequest(ranges, COLUMNS, 500, 1 << 20, 60_000, read_committed=False, fail_on_data_loss=True)
    batches = engine_for(engine, small).read(request)
    rows = next(batches).to_pylist()
    if trouble is not None:
        trouble()
    for batch in batches:
        rows += batch.to_pylist()
    assert len(rows) == RECORDS
    for whole in ranges:
        seen = [(row["offset"], row["value"]) for row in rows if row["partition"] == whole.partition]
        assert seen == [(n, b"%08d" % (2 * n + whole.partition) + VALUE) for n in range(RECORDS // 2)]


class Proxied:
    """A cluster of three whose brokers are each behind a proxy that sees frames."""

    def __init__(self) -> None:
        self.proxies = {node: TcpProxy() for node in (1, 2, 3)}
        self.kafka = EmbeddedKafka(nodes=3, advertised_ports={node: p.port for node, p in self.proxies.items()})

    def on_response(self, hook: Callable[[Frame], Iterable[bytes]]) -> None:
        for proxy in self.proxies.values():
            proxy.on_response = hook

    def reset(self) -> None:
        for proxy in self.proxies.values():
            proxy.on_request = proxy.on_response = pass_on


@pytest.fixture(scope="module")
def proxied_cluster() -> Iterator[Proxied]:
    proxied = Proxied()
    with ExitStack() as stack:
        for proxy in proxied.proxies.values():
            stack.enter_context(proxy)
        stack.enter_context(proxied.kafka)
        for node, proxy in proxied.proxies.items():
            proxy.connect_to(proxied.kafka.port(node))
        yield proxied


@pytest.fixture
def proxied(proxied_cluster: Proxied) -> Iterator[Proxied]:
    yield proxied_cluster
    proxied_cluster.reset()


@pytest.fixture
def cluster(proxied: Proxied) -> EmbeddedKafka:
    return proxied.kafka


def leader_of(kafka: EmbeddedKafka, topic: str, partition: int = 0) -> int:
    admin = kafka.admin()
    leader: int = admin.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader
    return leader


@pytest.mark.parametrize(
    ("end", "engine"),
    [
        ("killed", "native"),
        ("restarted", "librdkafka"),
        pytest.param("killed", "librdkafka", marks=pytest.mark.long),
        pytest.param("restarted", "native", marks=pytest.mark.long),
    ],
)
def test_the_leader_goes(cluster, engine, end):
    topic = cluster.create_topic(f"leader-{end}-{engine}", 2, replication_factor=3)
    ranges = fill(cluster, topic)
    leader = leader_of(cluster, topic)
    try:
        read(cluster.bootstrap_servers, engine, ranges, lambda: getattr(cluster, GOES[end])(leader))
    finally:
        if not cluster.is_running(leader):
            cluster.restart(leader)


GOES = {"killed": "kill", "restarted": "restart"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_time_that_a_slow_reader_takes_is_not_the_brokers(proxied, engine):
    ranges = fill(proxied.kafka, proxied.kafka.create_topic(f"slow-reader-{engine}", 2))[:1]
    limit_ms, go_on = 3000, threading.Event()
    with_records: list[int] = []

    def after_the_first(frame: Frame) -> Iterable[bytes]:
        if frame.api_key == protocol.API_KEY and len(frame.payload) > 5_000:
            with_records.append(len(frame.payload))
            assert len(with_records) == 1 or go_on.wait(60)
        return [frame.payload]

    proxied.on_response(after_the_first)
    settings = {"bootstrap.servers": proxied.kafka.bootstrap_servers, "max.partition.fetch.bytes": "20000"}
    request = FetchRequest(ranges, COLUMNS, 10, 1 << 20, limit_ms, read_committed=False, fail_on_data_loss=True)
    batches = engine_for(engine, Settings(settings)).read(request)
    try:
        rows = next(batches).num_rows
        time.sleep(limit_ms / 1000 + 0.5)
        # While this is waited for the engine has nothing to read.
        threading.Timer(1.0, go_on.set).start()
        rows += sum(batch.num_rows for batch in batches)
    finally:
        go_on.set()
    assert rows == RECORDS // 2


@pytest.mark.parametrize("engine", ["native", pytest.param("librdkafka", marks=pytest.mark.long)])
def test_a_connection_ends_in_the_middle_of_an_answer(engine):
    with TcpProxy(frames=False) as proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        ranges = fill(kafka, kafka.create_topic("cut", 2))
        cuts, done = 0, threading.Event()

        def now_and_then() -> None:
            nonlocal cuts
            while cuts < 4 and not done.wait(0.4):
                cuts += proxy.connections > 0
                proxy.cut()

        def trouble() -> None:
            # Slow enough that there is always an answer on its way.
            proxy.delay = 0.03
            threading.Thread(target=now_and_then, daemon=True).start()

        try:
            read(kafka.bootstrap_servers, engine, ranges, trouble)
        finally:
            done.set()
        assert cuts >= 2
