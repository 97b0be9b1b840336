"""A transaction that holds nothing but offsets of groups: how a sink's driver writes its decision down.

By requests of our own and not by a librdkafka producer, because the epoch is taken when the batch begins, in another
process than the one that decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import GROUP, TRANSACTION, Deadline, KafkaClient, check_coordinator, to_coordinator
from kafka_source.kafka_client.messages import AddOffsetsToTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.sink.two_phase.open_transactions import OpenTransaction, end

# The first version of the protocol, as librdkafka's producers speak it: see `ongoing.end`.
_INIT_VERSION = 4
_ADD_VERSION = 3
_COMMIT_VERSION = 3
_ABORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Offsets of one group.

    Attributes:
        member: For whom they are committed: a broker refuses those of a member that the group has replaced.
        offsets: The next offset to read, by partition.
    """

    member: SlotCredentials
    offsets: Mapping[TopicPartition, CommitOffset]


async def initialise(
    client: KafkaClient,
    transactional_id: str,
    timeout_ms: int,
    deadline: Deadline,
    *,
    ended: OpenTransaction | None = None,
) -> OpenTransaction:
    """Take a transactional id over: whoever had it before commits nothing any more. Returns its new epoch.

    A transaction that is open is aborted, one that is being committed is waited for.

    Args:
        client: Of the cluster.
        transactional_id: Which.
        timeout_ms: After so long the coordinator aborts the next transaction of this id.
        deadline: For all of it.
        ended: The id's last transaction as far as the caller knows; an error that `is_gone` if it has another by now.
    """
    what = f"Initialising transactional id {transactional_id} failed"

    async def ask() -> OpenTransaction:
        known = {} if ended is None else {"producer_id": ended.producer_id, "producer_epoch": ended.epoch}
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **known)
        answer = await to_coordinator(client, TRANSACTION, transactional_id, request, deadline, _INIT_VERSION)
        check_coordinator(client, TRANSACTION, transactional_id, answer.error_code, what)
        return OpenTransaction(transactional_id, answer.producer_id, answer.producer_epoch)

    return await client.retrying(ask, deadline)


async def commit_in(
    client: KafkaClient,
    transaction: OpenTransaction,
    groups: list[GroupOffsets],
    deadline: Deadline,
    *,
    after: Awaitable[None] | None = None,
) -> None:
    """Commit offsets of several groups, all or none.

    Args:
        client: Of the cluster of the groups.
        transaction: From `initialise`; one epoch is for one transaction.
        groups: What to commit.
        deadline: For all of it.
        after: What has to succeed before; it goes on while the offsets are sent.

    Raises:
        FencedError: The transactional id is another's by now, or a member is no longer its group's.
        KafkaGroupError: Nothing is committed, unless it is an `UnknownOutcomeError`.
    """
    try:
        adding = _add_all(client, transaction, groups, deadline)
        await (adding if after is None else asyncio.gather(adding, after))
    except KafkaGroupError:
        # Else readers of the groups' offsets would wait for it until its timeout.
        with contextlib.suppress(KafkaGroupError):
            await end(client, transaction, commit=False, deadline=Deadline(_ABORT_SECONDS))
        raise
    await end(client, transaction, commit=True, deadline=deadline)


async def _add_all(
    client: KafkaClient, transaction: OpenTransaction, groups: list[GroupOffsets], deadline: Deadline
) -> None:
    for group in groups:
        await add_offsets(client, transaction, group, deadline)


async def add_offsets(
    client: KafkaClient, transaction: OpenTransaction, group: GroupOffsets, deadline: Deadline
) -> None:
    """Offsets of one group as a part of the transaction; they count when it is committed.

    Raises:
        FencedError: As `commit_in`: members are checked here, not when the transaction ends.
    """
    await _add(client, transaction, group.member.group, deadline)
    await _commit(client, transaction, group, deadline)


async def _add(client: KafkaClient, transaction: OpenTransaction, group: str, deadline: Deadline) -> None:
    name = transaction.transactional_id
    request = AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        group_id=group,
    )

    async def ask() -> None:
        answer = await to_coordinator(client, TRANSACTION, name, request, deadline, _ADD_VERSION)
        what = f"Adding group {group} to the transaction of {name} failed"
        check_coordinator(client, TRANSACTION, name, answer.error_code, what)

    await client.retrying(ask, deadline)


async def _commit(client: KafkaClient, transaction: OpenTransaction, group: GroupOffsets, deadline: Deadline) -> None:
    member, name = group.member, transaction.transactional_id
    topics: dict[str, list[Any]] = {}
    for tp, entry in sorted(group.offsets.items()):
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=entry.offset,
            committed_leader_epoch=entry.leader_epoch,
            committed_metadata=entry.metadata,
        )
        topics.setdefault(tp.topic, []).append(partition)
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=member.group,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
    what = f"Committing offsets of group {member.group} in the transaction of {name} failed"

    async def ask() -> None:
        answer = await to_coordinator(client, GROUP, member.group, request, deadline, _COMMIT_VERSION)
        for topic in answer.topics:
            for p in topic.partitions:
                where = f"{topic.name}-{p.partition_index}"
                check_coordinator(client, GROUP, member.group, p.error_code, f"{what} for {where}")

    await client.retrying(ask, deadline)
