"""Damaged, late and missing responses to each kind of request: right, retried, or an error with a category, in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import KafkaGroupError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.group.requests import commit_offsets, fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import Range
from kafka_source.produce.records import Records
from kafka_source.schema import Column
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafka_source.transactions.open_transaction import initialise
from kafkagroup.embedded import EmbeddedKafka
from tests.support.fault_proxy import FAULTS, FaultProxy
from tests.support.memberships import Memberships
from tests.support.native import kernel
from tests.support.records import produce

kernel()

from kafka_source.produce.native import at_least_once  # noqa: E402

READ, WRITE, COUNT = "read", "write", 20
TIME_OUT = {
    "request.timeout.ms": "1000",
    "socket.connection.setup.timeout.ms": "1000",
    "default.api.timeout.ms": "3000",
    "delivery.timeout.ms": "3000",
    "linger.ms": "0",
}
SECONDS = 3.0
# For any of the calls below, which make several attempts of a second each, on a busy machine.
LONGEST = 20.0


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    made = FaultProxy(0.2)
    with closing(made), EmbeddedKafka(advertised_ports={1: made.port}) as kafka:
        kafka.create_topic(READ, 1)
        kafka.create_topic(WRITE, 1)
        produce(kafka.internal_bootstrap_servers, READ, COUNT)
        made.connect_to(kafka.port(1))
        yield made


class Seed:
    """The calls of one seed, and what came of them."""

    def __init__(self, proxy: FaultProxy, number: int) -> None:
        self.proxy, self.number, self.name = proxy, number, f"seed-{number}"
        servers = f"127.0.0.1:{proxy.port}"
        self.settings = Settings({"bootstrap.servers": servers, "client.id": self.name, **TIME_OUT})
        self.tp = TopicPartition(READ, 0)
        self.credentials = SlotCredentials(self.name, -1, "", None)
        self.errors: list[KafkaGroupError] = []

    def run(self) -> Seed:
        self.client = KafkaClient(self.settings)
        with closing(self.client):
            for call in (self.topics, self.offsets, self.commit, self.transaction, self.read, self.write, self.join):
                self.attempt(call)
            # Whatever has happened, all of it works over the same client when the faults have ended.
            self.proxy.healed.add(self.number)
            time_left = Deadline(LONGEST)
            assert READ in self.client.run(self.client.metadata([READ], time_left)).topics
            self.client.run(commit_offsets(self.client, self.credentials, {self.tp: 3}, time_left))
            found = self.client.run(fetch_committed(self.client, self.name, [self.tp], time_left))
            assert found == {self.tp: 3}
        return self

    def attempt(self, call: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            call()
        except KafkaGroupError as error:
            self.errors.append(error)
        took = time.monotonic() - began
        assert took < LONGEST, f"{self.name}: {call.__name__} took {took:.1f} s"

    def topics(self) -> None:
        assert READ in self.client.run(self.client.metadata([READ], Deadline(SECONDS))).topics

    def offsets(self) -> None:
        with closing(Cluster(self.settings, timeout_ms=1000, retries=1)) as cluster:
            assert cluster.latest([self.tp], read_committed=True) == {self.tp: COUNT}

    def commit(self) -> None:
        self.client.run(commit_offsets(self.client, self.credentials, {self.tp: 1}, Deadline(SECONDS)))
        found = self.client.run(fetch_committed(self.client, self.name, [self.tp], Deadline(SECONDS)))
        assert found == {self.tp: 1}

    def transaction(self) -> None:
        async def commit() -> None:
            taken = await initialise(self.client, self.name, 10_000, Deadline(SECONDS))
            offsets = [GroupOffsets(self.credentials, {self.tp: CommitOffset(2)})]
            await commit_in(self.client, taken, offsets, Deadline(SECONDS))

        self.client.run(commit())
        found = self.client.run(fetch_committed(self.client, self.name, [self.tp], Deadline(SECONDS)))
        assert found == {self.tp: 2}

    def read(self) -> None:
        request = FetchRequest(
            (Range(READ, 0, 0, COUNT),),
            (Column("offset"),),
            batch_rows=COUNT,
            batch_bytes=1 << 20,
            timeout_ms=3000,
            read_committed=False,
            fail_on_data_loss=True,
        )
        batches = list(engine_for("native", self.settings).read(request))
        assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == list(range(COUNT))

    def write(self) -> None:
        delivery = at_least_once(self.settings)
        try:
            delivery.send(Records(pa.array([self.name.encode()], pa.binary()), None, WRITE, None))
            delivery.flush()
        except BaseException:
            delivery.drop()
            raise
        delivery.keep()

    def join(self) -> None:
        members = Memberships(self.settings, f"{self.name}-members")
        try:
            membership = members.make(READ, slots=1)
            membership.join(SECONDS)
            assert [slot.partitions for slot in membership.assignment.slots] == [(self.tp,)]
        finally:
            members.close()


def play(proxy: FaultProxy, seeds: range) -> None:
    proxy.made.clear()
    with ThreadPoolExecutor(16) as pool:
        played = list(pool.map(lambda number: Seed(proxy, number).run(), seeds))
    assert set(proxy.made) == set(FAULTS)
    # Some calls failed, and most did not: else this would test one half only.
    errors = sum(len(seed.errors) for seed in played)
    assert 0 < errors < 7 * len(seeds) / 2, errors


def test_fifty_seeds(proxy: FaultProxy) -> None:
    play(proxy, range(50))


@pytest.mark.long
def test_a_thousand_seeds(proxy: FaultProxy) -> None:
    play(proxy, range(50, 1050))
