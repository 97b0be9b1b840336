"""The simulated coordinators are Kafka's: a real broker gives the same answers to the same requests.

A sequence is a list of requests of up to three members of one group and of one transactional id, with wrong generations
and identities among them. The requests are sent to the simulated and to a real broker, one after another. The answers
are compared, except for member ids and producer ids.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Collection, Coroutine
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.kafka_client import GROUP, TRANSACTION, Connection, Deadline, KafkaClient
from kafka_source.kafka_client.messages import Request
from kafka_source.kafka_client.messages.codec import NO_UUID
from kafka_source.kafka_client.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from kafkagroup.embedded import EmbeddedKafka
from tests.support.native import kernel

# The simulated world has the native producer.
kernel()

from tests.simulation.brokers import group_coordinator  # noqa: E402
from tests.simulation.brokers.cluster import Cluster  # noqa: E402
from tests.simulation.brokers.group_coordinator import GroupCoordinators  # noqa: E402
from tests.simulation.brokers.transaction_coordinator import TransactionCoordinators  # noqa: E402
from tests.simulation.world import World  # noqa: E402
from tests.support.record_messages import ProduceRequest  # noqa: E402
from tests.support.records import Topic  # noqa: E402

_R = TypeVar("_R")

# The number of sequences that run side by side, and the number of requests in each sequence.
SEQUENCES, STEPS = 200, 24
TOPIC, PARTITIONS = "compared", 2
# Seconds to wait for an answer; a request without an answer then is held back. Sequences that differ run again, because
# the machine may have been busy: first with fewer sequences at a time, then also with more seconds.
_SETTLE = (0.25, 0.25, 1.0, 2.0)
_SECONDS = 60.0


@dataclass
class Actor:
    """A member as its client knows it."""

    name: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    others: tuple[str, ...] = ()
    joins: Connection | None = None
    parked: asyncio.Task[Any] | None = None


@dataclass
class Sequence:
    """One sequence against one cluster, and the answers."""

    client: KafkaClient
    group: str
    topic: str
    seed: int
    settle: float
    told: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    producer: tuple[int, int] = (-1, -1)
    topic_id: uuid.UUID = NO_UUID
    waiting: dict[asyncio.Task[Any], str] = field(default_factory=dict)

    async def run(self) -> list[str]:
        """Send all requests; return the answers, with the answers of one step in one line."""
        rng = random.Random(f"sequence {self.seed}")
        actors = [Actor("A", None), Actor("B", f"{self.group}-b" if rng.random() < 0.5 else None), Actor("C", None)]
        described = await self.client.metadata((self.topic,), Deadline(_SECONDS))
        self.topic_id = described.topics[self.topic].topic_id or NO_UUID
        shared = await self._open(GROUP, self.group)
        transactions = await self._open(TRANSACTION, f"{self.group}-id")
        while (await shared.send(self._fetch_request(), _SECONDS, 7)).error_code:
            # The broker loads the group's partition.
            await asyncio.sleep(self.settle)
        other = InitProducerIdRequest(transactional_id=f"{self.group}-id", transaction_timeout_ms=1)
        while (await transactions.send(other, _SECONDS, 4)).error_code:
            await asyncio.sleep(self.settle)
        for number in range(STEPS):
            actor, kind = rng.choice(actors[: rng.choice((1, 2, 3))]), rng.random()
            what = f"{number}"
            if kind < 0.35:
                await self._join_or_sync(actor, rng, what)
            elif kind < 0.5:
                await self._send(shared, self._heartbeat(actor, rng), f"{what} heartbeat {actor.name}")
            elif kind < 0.57:
                waiting = sum(one.parked is not None and not one.parked.done() for one in actors)
                if not actor.leads or (len(actor.others) < 3 and not waiting):
                    # The choice of the next leader among several members depends on Java's hashes of their ids.
                    await self._leave(shared, actor, what)
            elif kind < 0.7:
                await self._send(shared, self._commit(actor, rng), f"{what} commit {actor.name}", max_version=9)
            elif kind < 0.78:
                fetch = self._fetch_request(of_all=rng.random() < 0.5)
                await self._send(shared, fetch, f"{what} fetch", max_version=7)
            else:
                await self._transaction(transactions, shared, actor, rng, what)
            await self._settle(number)
        for task in self.waiting:
            task.cancel()
        return self.told

    # ---- requests

    async def _open(self, kind: int, key: str) -> Connection:
        deadline = Deadline(_SECONDS)
        return await self.client.dedicated(await self.client.coordinator(key, deadline, kind), deadline)

    async def _join_or_sync(self, actor: Actor, rng: random.Random, what: str) -> None:
        metadata = rng.choice((b"one", b"one", b"two"))
        syncs = actor.generation >= 0 and rng.random() < 0.6
        if actor.parked is not None and not actor.parked.done():
            return
        if actor.joins is None:
            actor.joins = await self._open(GROUP, self.group)
        if syncs:
            states = {member: b"of " + self._name(member).encode() for member in actor.others} if actor.leads else {}
            request = SyncGroupRequest(
                group_id=self.group,
                generation_id=actor.generation - (rng.random() < 0.1),
                member_id=actor.member_id,
                group_instance_id=actor.instance_id,
                protocol_type="consumer",
                protocol_name="p",
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=state)
                    for member, state in states.items()
                ],
            )
            actor.parked = self._begin(actor.joins.send(request, _SECONDS), f"{what} sync {actor.name}")
            return
        join = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=50_000,
            rebalance_timeout_ms=50_000,
            member_id=actor.member_id,
            group_instance_id=actor.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=metadata)],
        )
        actor.parked = self._begin(self._joined(actor, join), f"{what} join {actor.name}")

    async def _joined(self, actor: Actor, request: JoinGroupRequest) -> JoinGroupResponse:
        assert actor.joins is not None
        answer = await actor.joins.send(request, _SECONDS)
        if answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            actor.member_id = answer.member_id
            self.names.setdefault(answer.member_id, f"{actor.name}{len(self.names)}")
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            actor.member_id, actor.generation = "", -1
        if not answer.error_code:
            actor.generation, actor.leads = answer.generation_id, answer.leader == answer.member_id
            actor.others = tuple(one.member_id for one in answer.members)
        return answer

    def _heartbeat(self, actor: Actor, rng: random.Random) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=actor.generation + rng.choice((0, 0, 0, 1, -1)),
            member_id=actor.member_id,
            group_instance_id=actor.instance_id,
        )

    async def _leave(self, shared: Connection, actor: Actor, what: str) -> None:
        request = LeaveGroupRequest(
            group_id=self.group,
            members=[LeaveGroupRequest.MemberIdentity(member_id=actor.member_id, group_instance_id=actor.instance_id)],
        )
        await self._send(shared, request, f"{what} leave {actor.name}")

    def _commit(self, actor: Actor, rng: random.Random) -> OffsetCommitRequest:
        is_nobody = rng.random() < 0.2
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=-1 if is_nobody else actor.generation - rng.choice((0, 0, 0, 1)),
            member_id="" if is_nobody else actor.member_id,
            group_instance_id=None if is_nobody else actor.instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                            partition_index=rng.randrange(PARTITIONS),
                            committed_offset=rng.randrange(100),
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )

    def _fetch_request(self, *, of_all: bool = False) -> OffsetFetchRequest:
        """Request the offsets of the topic's partitions, or of all partitions that have an offset."""
        of_topic = OffsetFetchRequest.OffsetFetchRequestTopic(self.topic, list(range(PARTITIONS)))
        return OffsetFetchRequest(group_id=self.group, topics=None if of_all else [of_topic], require_stable=True)

    async def _transaction(
        self, transactions: Connection, shared: Connection, actor: Actor, rng: random.Random, what: str
    ) -> None:
        kind = rng.choice(
            (
                "init",
                "add",
                "partitions",
                "commit",
                "describe",
                "end",
                "end",
                "second commit",
                "second end",
                "second end",
                "write",
                "second write",
            )
        )
        name = f"{self.group}-id"
        producer_id, epoch = self.producer
        epoch += rng.choice((0, 0, 0, 0, 1, -1))
        if kind == "init":
            known = rng.random() < 0.5 and producer_id >= 0
            request = InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=50_000,
                producer_id=producer_id if known else -1,
                producer_epoch=max(0, epoch) if known else -1,
            )
            answer = await transactions.send(request, _SECONDS, 4)
            for _ in range(100):
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                # The abort of the previous transaction is under way.
                await asyncio.sleep(0.05)
                answer = await transactions.send(request, _SECONDS, 4)
            if not answer.error_code:
                self.producer = answer.producer_id, answer.producer_epoch
            self.told.append(f"{what} init: {answer.error_code} epoch {answer.producer_epoch}")
            return
        if producer_id < 0:
            return
        epoch = max(0, epoch)
        if kind == "add":
            await self._send(transactions, self._add(name, producer_id, epoch), f"{what} add", max_version=3)
        elif kind == "partitions":
            add = self._add_partitions(name, producer_id, epoch, rng)
            await self._send(transactions, add, f"{what} partitions", max_version=3)
        elif kind == "describe":
            describe = DescribeTransactionsRequest(transactional_ids=[name, f"{name}-unknown"])
            await self._send(transactions, describe, f"{what} describe")
        elif kind == "end":
            request_to_end = EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=rng.random() < 0.7
            )
            await self._send(transactions, request_to_end, f"{what} end", max_version=3)
        elif kind == "second end":
            second_end = EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=rng.random() < 0.7
            )
            ended = await transactions.send(second_end, _SECONDS, 5)
            changed = ended.producer_id not in (-1, producer_id)
            self.told.append(f"{what} second end: {ended.error_code} epoch {ended.producer_epoch} changed {changed}")
            if not ended.error_code:
                self.producer = ended.producer_id, ended.producer_epoch
        elif kind in ("write", "second write"):
            write = self._write(name, producer_id, epoch, rng)
            await self._send(transactions, write, f"{what} {kind}", max_version=8 if kind == "write" else 13)
        elif kind == "second commit":
            commit = self._commit_in(name, actor, rng, epoch)
            await self._send(shared, commit, f"{what} second txn {actor.name}", max_version=6)
        else:
            await self._send(transactions, self._add(name, producer_id, epoch), f"{what} add", max_version=3)
            commit = self._commit_in(name, actor, rng, self.producer[1])
            await self._send(shared, commit, f"{what} txn {actor.name}", max_version=3)

    def _add(self, name: str, producer_id: int, epoch: int) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=self.group
        )

    def _add_partitions(self, name: str, producer_id: int, epoch: int, rng: random.Random) -> AddPartitionsToTxnRequest:
        numbers = sorted(rng.sample(range(PARTITIONS), rng.choice((1, PARTITIONS))))
        topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic_type(name=self.topic, partitions=numbers)],
        )

    def _write(self, name: str, producer_id: int, epoch: int, rng: random.Random) -> ProduceRequest:
        encoder = kernel().BatchEncoder()
        encoder.identify(producer_id, epoch, transactional=True)
        encoder.append(0, 1, pa.record_batch({"value": pa.array([b"row"], pa.binary())}), time.time_ns() // 1_000_000)
        # Its sequence number is 0: the batch is the first of its epoch, or is repeated.
        ((_, _, _, batch),) = encoder.take(all=True)
        partition = ProduceRequest.TopicProduceData.PartitionProduceData(rng.randrange(PARTITIONS), bytes(batch))
        return ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[ProduceRequest.TopicProduceData(self.topic, self.topic_id, [partition])],
        )

    def _commit_in(self, name: str, actor: Actor, rng: random.Random, epoch: int) -> TxnOffsetCommitRequest:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        return TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=self.group,
            producer_id=self.producer[0],
            producer_epoch=epoch,
            generation_id_or_member_epoch=actor.generation - rng.choice((0, 0, 0, 1)),
            member_id=actor.member_id,
            group_instance_id=actor.instance_id,
            topics=[
                topic(
                    name=self.topic,
                    topic_id=self.topic_id,
                    partitions=[
                        topic.TxnOffsetCommitRequestPartition(
                            partition_index=rng.randrange(PARTITIONS),
                            committed_offset=rng.randrange(100),
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )

    # ---- answers

    async def _send(
        self, connection: Connection, request: Request[Any], what: str, max_version: int | None = None
    ) -> None:
        self.told.append(f"{what}: {self._shown(await connection.send(request, _SECONDS, max_version))}")

    def _begin(self, work: Coroutine[Any, Any, Any], what: str) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.waiting[task] = what
        return task

    async def _settle(self, number: int) -> None:
        """Record the answers to requests that were held back until now."""
        await asyncio.sleep(self.settle)
        done = {what: task for task, what in self.waiting.items() if task.done()}
        self.waiting = {task: what for task, what in self.waiting.items() if not task.done()}
        lines = sorted(f"{what}: {self._shown(task.result())}" for what, task in done.items())
        self.told.extend(f"  after {number}: {line}" for line in lines)

    def _name(self, member_id: str) -> str:
        return self.names.get(member_id, "nobody" if not member_id else "somebody")

    def _shown(self, answer: Any) -> str:
        if isinstance(answer, JoinGroupResponse):
            if answer.error_code:
                return f"{answer.error_code}"
            shown = sorted(f"{self._name(one.member_id)}={one.metadata.decode()}" for one in answer.members)
            skips = " skips" if answer.skip_assignment else ""
            return f"0 generation {answer.generation_id} leader {self._name(answer.leader)} of {shown}{skips}"
        if hasattr(answer, "assignment"):
            return f"{answer.error_code} {bytes(answer.assignment).decode()}"
        if hasattr(answer, "transaction_states"):
            return f"{[self._state(one) for one in answer.transaction_states]}"
        if hasattr(answer, "results_by_topic_v3_and_below"):
            of_topics = answer.results_by_topic_v3_and_below
            return f"{sorted(one.partition_error_code for topic in of_topics for one in topic.results_by_partition)}"
        if hasattr(answer, "responses"):
            return f"{[one.error_code for topic in answer.responses for one in topic.partition_responses]}"
        if hasattr(answer, "topics"):
            found = [
                (one.partition_index, one.error_code, getattr(one, "committed_offset", None))
                for topic in answer.topics
                for one in topic.partitions
            ]
            return f"{getattr(answer, 'error_code', 0)} {sorted(found)}"
        if hasattr(answer, "members"):
            return f"{answer.error_code} {[one.error_code for one in answer.members]}"
        return f"{answer.error_code}"

    def _state(self, one: Any) -> str:
        """Return a transaction's description; the time that its markers take is not compared."""
        state = one.transaction_state.replace("Prepare", "Complete")
        topics = [topic for topic in one.topics if topic.topic == self.topic and state == "Ongoing"]
        partitions = [number for topic in topics for number in topic.partitions]
        return f"{one.error_code} {state} epoch {one.producer_epoch} of {sorted(partitions)}"


async def _all(client: KafkaClient, prefix: str, topic: str, seeds: Collection[int], settle: float) -> list[list[str]]:
    """Run sequences side by side."""
    names = {seed: f"{prefix}-{seed}" for seed in seeds}
    return await asyncio.gather(*(Sequence(client, names[seed], topic, seed, settle).run() for seed in seeds))


def simulated(seeds: Collection[int]) -> dict[int, list[str]]:
    """Return the answers of the simulated coordinators."""
    world = World(0)
    cluster = Cluster(world, 1)
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.transaction_version = 2
    groups = GroupCoordinators(cluster)
    TransactionCoordinators(cluster, groups)
    found: dict[int, list[str]] = {}

    def main() -> None:
        client = KafkaClient(Settings({"bootstrap.servers": cluster.bootstrap_servers}))
        found.update(zip(seeds, client.run(_all(client, "g", TOPIC, seeds, _SETTLE[0])), strict=True))

    with world.installed():
        world.process("client").start(main)
        world.run(1e9, done=lambda: bool(found))
    return found


def real(kafka: EmbeddedKafka, topic: str, seeds: Collection[int], settle: float) -> dict[int, list[str]]:
    """Return the answers of a real broker."""
    client = KafkaClient(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    with closing(client):
        told = client.run(_all(client, f"g-{uuid.uuid4().hex[:8]}", topic, seeds, settle))
        return dict(zip(seeds, told, strict=True))


@pytest.mark.parametrize("first", [0, *(pytest.param(SEQUENCES * n, marks=pytest.mark.long) for n in range(1, 15))])
def test_real_coordinators_answer_as_the_simulated_ones(
    kafka: EmbeddedKafka, topic: Topic, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(group_coordinator, "INITIAL_DELAY", 0.0)
    name = topic(partitions=PARTITIONS)
    ours = simulated(range(first, first + SEQUENCES))
    different, theirs = list(ours), {}
    for settle in _SETTLE:
        theirs = real(kafka, name, different, settle)
        different = [seed for seed in different if ours[seed] != theirs[seed]]
    if different:
        told = "\n".join(_first_difference(seed, ours[seed], theirs[seed]) for seed in different[:5])
        raise AssertionError(f"{len(different)} of {SEQUENCES} sequences differ: {different[:20]}\n{told}")


def _first_difference(seed: int, ours: list[str], theirs: list[str]) -> str:
    """Return the equal answers of a sequence, and the first answer that differs."""
    same = next(n for n, (a, b) in enumerate(zip_longest(ours, theirs)) if a != b)
    ended = ["nothing"]
    return "\n".join(
        [
            f"sequence {seed}:",
            *ours[:same],
            f"  SIMULATED: {(ours + ended)[same]}",
            f"  KAFKA: {(theirs + ended)[same]}",
        ]
    )
