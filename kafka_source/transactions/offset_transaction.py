"""A transaction that commits offsets of consumer groups and nothing else: KIP-98's AddOffsetsToTxn and TxnOffsetCommit.

The source commits its group's offsets in such a transaction, and the sink's driver commits its decision about a batch.
In KIP-890's second protocol TxnOffsetCommit needs no AddOffsetsToTxn, and names topics by their ids (KIP-1319).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    KafkaGroupError,
    RetriableError,
    UnknownOutcomeError,
    UnknownTopicError,
    error_for_code,
)
from kafka_source.kafka_client import (
    GROUP,
    TRANSACTION,
    Deadline,
    KafkaClient,
    check_commits,
    check_coordinator,
    coordinator_call,
    coordinator_versions,
    to_coordinator,
    topic_ids_to_commit,
)
from kafka_source.kafka_client.messages.codec import NO_UUID
from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafka_source.model.commits import CommitOffset, chunks
from kafka_source.model.credentials import SlotCredentials
from kafka_source.transactions.open_transaction import OpenTransaction, after_markers, end, has_second_protocol

_ADD_VERSION = 3
_COMMIT_VERSION = 3
# From version 5 on TxnOffsetCommit is of the second protocol, which is used if brokers have topic ids. From version 6
# on it has ids instead of names; topics whose ids are unknown are committed by name.
_SECOND_COMMIT_VERSION, _COMMIT_BY_ID_VERSION = 5, 6
_ABORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Offsets of one group.

    Attributes:
        member: The member that commits; the group coordinator refuses a member that the group has replaced (KIP-447).
        offsets: The next offset to read, by partition.
    """

    member: SlotCredentials
    offsets: Mapping[TopicPartition, CommitOffset]


async def commits_by_id(client: KafkaClient, transactional_id: str, group: str, deadline: Deadline) -> bool:
    """Return whether both coordinators have KIP-890's second protocol and topic ids, so that commits can use topic ids.

    Raises:
        RetriableError: A coordinator was not reached before the deadline.
    """
    second = await has_second_protocol(client, transactional_id, deadline)
    of_group = await coordinator_versions(client, GROUP, group, deadline)
    return second and of_group.has(TxnOffsetCommitRequest.API_KEY, _COMMIT_BY_ID_VERSION)


async def commit_in(
    client: KafkaClient,
    transaction: OpenTransaction,
    groups: Sequence[GroupOffsets],
    deadline: Deadline,
    *,
    before_commit: Callable[[], Awaitable[None]] | None = None,
    fail_on_unknown_topic: bool = False,
) -> OpenTransaction | None:
    """Commit offsets of several groups, all or none; the transaction is ended in either case.

    Args:
        client: The client of the groups' cluster.
        transaction: A transaction from `initialise`, used once.
        groups: The offsets, by group.
        deadline: The time limit; the abort after an error may take longer.
        before_commit: Work that must succeed before the commit; it begins when the offsets are added.
        fail_on_unknown_topic: Fail immediately if the group coordinator does not know a topic; otherwise retry until
            the deadline, because a topic may have just been created.

    Returns:
        The id's next transaction; see `end`.

    Raises:
        FencedError: Another process has taken the transactional id, or a member is no longer in its group.
        UnknownOutcomeError: The coordinator did not report in time whether the transaction is committed.
        UnknownTopicError: A topic does not exist. The transaction is aborted.
        AbortableError: A retriable error persisted until the deadline. The transaction is aborted.
        KafkaGroupError: Any other category. The transaction is aborted.
    """
    try:
        for group in groups:
            await add_offsets(client, transaction, group, deadline, fail_on_unknown_topic=fail_on_unknown_topic)
        if before_commit is not None:
            await before_commit()
        return await end(client, transaction, commit=True, deadline=deadline)
    except UnknownOutcomeError:
        # The commit request may still be in flight, and an abort could undo the commit.
        raise
    except (KafkaGroupError, asyncio.CancelledError) as error:
        # Abort, because readers of the groups' offsets would wait for the transaction until its timeout.
        with contextlib.suppress(KafkaGroupError):
            await end(client, transaction, commit=False, deadline=Deadline(_ABORT_SECONDS))
        # A transaction coordinator that is cut off returns epochs that a group coordinator refuses.
        client.forget_coordinator(transaction.transactional_id, TRANSACTION)
        if isinstance(error, RetriableError) and not isinstance(error, UnknownTopicError):
            raise AbortableError(str(error), code=error.code) from error
        raise


async def add_offsets(
    client: KafkaClient,
    transaction: OpenTransaction,
    group: GroupOffsets,
    deadline: Deadline,
    *,
    fail_on_unknown_topic: bool = False,
) -> None:
    """Add offsets of one group to the transaction, whose commit makes them count. Arguments as in `commit_in`.

    Raises:
        FencedError: As in `commit_in`: the coordinator checks the member now, not when the transaction ends.
        KafkaGroupError: Any other category; the transaction stays open.
    """
    if not transaction.second_protocol:
        await _add(client, transaction, group.member.group, deadline)
    for part in chunks(group.member.group, group.offsets):
        one = GroupOffsets(group.member, part)
        await _commit(client, transaction, one, deadline, fail_on_unknown_topic=fail_on_unknown_topic)


async def _add(client: KafkaClient, transaction: OpenTransaction, group: str, deadline: Deadline) -> None:
    name = transaction.transactional_id
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=transaction.producer_id, producer_epoch=transaction.epoch, group_id=group
    )

    def read(answer: AddOffsetsToTxnResponse) -> None:
        what = f"Adding group {group} to the transaction of {name} failed"
        check_coordinator(client, TRANSACTION, name, answer.error_code, what)

    await coordinator_call(client, TRANSACTION, name, request, deadline, read, max_version=_ADD_VERSION)


async def _commit(
    client: KafkaClient,
    transaction: OpenTransaction,
    group: GroupOffsets,
    deadline: Deadline,
    *,
    fail_on_unknown_topic: bool,
) -> None:
    member, name = group.member, transaction.transactional_id
    ids = topic_ids_to_commit(group.offsets)
    names = {topic_id: topic for topic, topic_id in ids.items()}
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
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=topic, topic_id=ids.get(topic, NO_UUID), partitions=partitions
            )
            for topic, partitions in topics.items()
        ],
    )
    what = f"Committing offsets of group {member.group} in the transaction of {name} failed"

    def read(answer: TxnOffsetCommitResponse) -> list[str]:
        outcomes = (
            (f"{t.name or names.get(t.topic_id, t.topic_id)}-{p.partition_index}", p.error_code)
            for t in answer.topics
            for p in t.partitions
        )
        return check_commits(client, member.group, outcomes, what, skip_unknown=fail_on_unknown_topic)

    newest, oldest = _COMMIT_VERSION, 0
    if transaction.second_protocol:
        newest, oldest = _COMMIT_BY_ID_VERSION if ids else _SECOND_COMMIT_VERSION, _SECOND_COMMIT_VERSION

    async def send() -> TxnOffsetCommitResponse:
        return await to_coordinator(client, GROUP, member.group, request, deadline, newest, oldest)

    async def attempt() -> list[str]:
        return read(await after_markers(send, _is_early, deadline))

    unknown = await client.retrying(attempt, deadline)
    if unknown:
        raise error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} for {', '.join(unknown)}")


def _is_early(answer: TxnOffsetCommitResponse) -> bool:
    codes = (p.error_code for topic in answer.topics for p in topic.partitions)
    return any(code == ErrorCode.CONCURRENT_TRANSACTIONS for code in codes)
