"""Committed offsets: fetched for a group, committed as a member with its credentials (no transaction)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import RetriableError, UnknownOutcomeError, error_for_code
from kafka_source.group.model import CommitOffset, SlotCredentials
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient
from kafka_source.kafka_client.messages import OffsetCommitRequest, OffsetFetchRequest

# Later versions ask for many groups, or name topics by id, in other layouts; these have all that is needed.
_FETCH_VERSION = 7
_COMMIT_VERSION = 9

_MOVED = (15, 16)
_UNSTABLE_OFFSET_COMMIT = 88


async def fetch_committed(
    client: KafkaClient,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    deadline: Deadline,
    *,
    stable: bool = True,
) -> dict[TopicPartition, int | None]:
    """The group's committed offsets, None where there is none.

    Args:
        client: Of the cluster.
        group: Whose.
        partitions: Which; None for all that the group has committed.
        deadline: For all of it.
        stable: Whether an offset in a transaction that is still open is waited for: another member may be about to
            commit it (KIP-447). Else it is as it was before that transaction.

    Raises:
        AuthenticationError: This user may not read the group.
        KafkaGroupError: The deadline is over.
    """
    wanted = None if partitions is None else sorted(set(partitions))
    if wanted == []:
        return {}
    what = f"Fetching the committed offsets of group {group} failed"

    async def ask() -> dict[TopicPartition, int | None]:
        request = OffsetFetchRequest(
            group_id=group,
            topics=None
            if wanted is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in _by_topic(wanted).items()
            ],
            require_stable=stable,
        )
        answer = await _to_coordinator(client, group, request, deadline, _FETCH_VERSION)
        _raise(client, group, answer.error_code, what)
        found: dict[TopicPartition, int | None] = dict.fromkeys(wanted or ())
        for topic in answer.topics:
            for p in topic.partitions:
                _raise(client, group, p.error_code, f"{what} for {topic.name}-{p.partition_index}")
                if p.committed_offset >= 0:
                    found[TopicPartition(topic.name, p.partition_index)] = p.committed_offset
        return found

    return await client.retrying(ask, deadline)


async def commit_offsets(
    client: KafkaClient,
    credentials: SlotCredentials,
    offsets: Mapping[TopicPartition, int | CommitOffset],
    deadline: Deadline,
) -> None:
    """Commits the offsets to read next, as the member with these credentials.

    Raises:
        FencedError: The credentials are no longer the group's: nothing is committed.
        UnknownOutcomeError: No answer until the deadline.
    """
    if not offsets:
        return
    what = f"Committing offsets of group {credentials.group} as {credentials.instance_id or credentials.member_id}"
    unanswered = False

    async def ask() -> None:
        nonlocal unanswered
        request = OffsetCommitRequest(
            group_id=credentials.group,
            generation_id_or_member_epoch=credentials.generation,
            member_id=credentials.member_id,
            group_instance_id=credentials.instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic, partitions=[_commit(offsets[TopicPartition(topic, n)], n) for n in numbers]
                )
                for topic, numbers in _by_topic(offsets).items()
            ],
        )
        try:
            answer = await _to_coordinator(client, credentials.group, request, deadline, _COMMIT_VERSION)
        except ConnectionLost:
            unanswered = True
            raise
        unanswered = False
        for topic in answer.topics:
            for p in topic.partitions:
                _raise(client, credentials.group, p.error_code, f"{what} failed for {topic.name}-{p.partition_index}")

    try:
        await client.retrying(ask, deadline)
    except RetriableError as error:
        if unanswered:
            raise UnknownOutcomeError(f"{what} was not answered: {error}") from None
        raise


def _commit(value: int | CommitOffset, number: int) -> Any:
    full = CommitOffset(value) if isinstance(value, int) else value
    return OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=full.offset,
        committed_leader_epoch=full.leader_epoch,
        committed_metadata=full.metadata,
    )


async def _to_coordinator(client: KafkaClient, group: str, request: Any, deadline: Deadline, version: int) -> Any:
    coordinator = await client.coordinator(group, deadline)
    try:
        connection = await client.connection(coordinator, deadline)
        return await connection.send(request, max(0.001, min(client.settings.request_timeout, deadline.left)), version)
    except ConnectionLost:
        client.forget_coordinator(group)
        raise


def _raise(client: KafkaClient, group: str, code: int, what: str) -> None:
    if code in _MOVED:
        client.forget_coordinator(group)
    if code:
        raise error_for_code(code, what)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return found
