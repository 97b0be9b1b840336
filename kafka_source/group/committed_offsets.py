"""Committed offsets of a group: fetch them, and commit them as a member without a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import RetriableError, UnknownOutcomeError, error_for_code
from kafka_source.kafka_client import (
    GROUP,
    ConnectionLost,
    Deadline,
    KafkaClient,
    check_commits,
    check_coordinator,
    to_coordinator,
)
from kafka_source.kafka_client.messages.group import OffsetCommitRequest, OffsetFetchRequest
from kafka_source.model.commits import CommitOffset, chunks
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import first_names, numbers_by_topic

# Later versions have other layouts: OffsetFetch 8 takes many groups, and version 10 of both identifies topics by id.
_FETCH_VERSION = 7
_COMMIT_VERSION = 9
# The maximum number of partitions that an error names.
_MOST_NAMED = 10


async def fetch_committed(
    client: KafkaClient,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    deadline: Deadline,
    *,
    stable: bool = True,
) -> dict[TopicPartition, int | None]:
    """Return the group's committed offsets; None for a partition without one.

    Args:
        client: The cluster's client.
        group: The group id.
        partitions: The partitions to fetch; None: all partitions for which the group has committed an offset.
        deadline: The time limit for all attempts.
        stable: Whether to wait for open transactions that will commit an offset of these partitions (KIP-447).
            If false, the result contains the offsets as they were before those transactions.

    Raises:
        AuthenticationError: This user is not authorized to read the group.
        KafkaGroupError: The deadline has expired.
    """
    wanted = None if partitions is None else sorted(set(partitions))
    found = {} if wanted == [] else await _fetch(client, group, wanted, deadline, stable=stable)
    offsets = {tp: entry.offset for tp, entry in found.items()}
    return {**dict.fromkeys(wanted or ()), **offsets}


async def fetch_all_committed(
    client: KafkaClient, group: str, deadline: Deadline
) -> dict[TopicPartition, CommitOffset]:
    """Return all offsets that the group has committed, with their metadata; waits and raises as `fetch_committed`."""
    return await _fetch(client, group, None, deadline, stable=True)


async def fetch_entries(
    client: KafkaClient,
    group: str,
    partitions: Iterable[TopicPartition],
    deadline: Deadline,
    *,
    stable: bool = True,
) -> dict[TopicPartition, CommitOffset]:
    """Return the committed offsets of these partitions, with their metadata; waits and raises as `fetch_committed`."""
    wanted = sorted(set(partitions))
    return await _fetch(client, group, wanted, deadline, stable=stable) if wanted else {}


async def _fetch(
    client: KafkaClient, group: str, wanted: Iterable[TopicPartition] | None, deadline: Deadline, *, stable: bool
) -> dict[TopicPartition, CommitOffset]:
    what = f"Fetching the committed offsets of group {group} failed"
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in numbers_by_topic(sorted(wanted)).items()
        ]

    async def ask() -> dict[TopicPartition, CommitOffset]:
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
        answer = await to_coordinator(client, GROUP, group, request, deadline, _FETCH_VERSION)
        check_coordinator(client, GROUP, group, answer.error_code, what)
        found = {}
        for topic in answer.topics:
            for p in topic.partitions:
                check_coordinator(client, GROUP, group, p.error_code, f"{what} for {topic.name}-{p.partition_index}")
                if p.committed_offset >= 0:
                    tp = TopicPartition(topic.name, p.partition_index)
                    found[tp] = CommitOffset(p.committed_offset, p.committed_leader_epoch, p.metadata or "")
        return found

    return await client.retrying(ask, deadline)


async def commit_offsets(
    client: KafkaClient,
    credentials: SlotCredentials,
    offsets: Mapping[TopicPartition, int | CommitOffset],
    deadline: Deadline,
    *,
    fail_on_unknown_topic: bool = False,
) -> None:
    """Commit the next offsets to read, as the member with these credentials.

    The offsets of thousands of partitions take several requests, one after the other. If a later one fails, the offsets
    of the earlier ones are committed.

    Args:
        client: The cluster's client.
        credentials: The credentials of the member that commits.
        offsets: The next offset to read, by partition.
        deadline: The time limit for all attempts.
        fail_on_unknown_topic: Whether to fail at once if the coordinator does not know a topic. If false, the commit is
            retried until the deadline: the coordinator may not know yet of a topic that was just created.

    Raises:
        FencedError: The coordinator rejects the credentials; what it has not accepted before is not committed.
        UnknownTopicError: A topic does not exist; the offsets of the other topics are committed.
        UnknownOutcomeError: A response was lost, and the coordinator has not accepted another try before the deadline.
    """
    entries = {tp: CommitOffset(value) if isinstance(value, int) else value for tp, value in offsets.items()}
    what = f"Committing offsets of group {credentials.group} as {credentials.instance_id or credentials.member_id}"
    unknown: list[str] = []
    for part in chunks(credentials.group, entries):
        unknown += await _commit_part(client, credentials, part, deadline, what, skip_unknown=fail_on_unknown_topic)
    if unknown:
        named = first_names(unknown, _MOST_NAMED)
        raise error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} failed for {named}")


async def _commit_part(
    client: KafkaClient,
    credentials: SlotCredentials,
    part: Mapping[TopicPartition, CommitOffset],
    deadline: Deadline,
    what: str,
    *,
    skip_unknown: bool,
) -> list[str]:
    """Commit what one request can hold; return the partitions of unknown topics, as `check_commits` does."""
    unanswered = False
    request = OffsetCommitRequest(
        group_id=credentials.group,
        generation_id_or_member_epoch=credentials.generation,
        member_id=credentials.member_id,
        group_instance_id=credentials.instance_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic, partitions=[_commit(part[TopicPartition(topic, n)], n) for n in numbers]
            )
            for topic, numbers in numbers_by_topic(sorted(part)).items()
        ],
    )

    async def ask() -> list[str]:
        nonlocal unanswered
        try:
            answer = await to_coordinator(client, GROUP, credentials.group, request, deadline, _COMMIT_VERSION)
        except ConnectionLost:
            # No later answer takes it back: a coordinator that loads the group or has moved knows nothing of this try.
            unanswered = True
            raise
        return check_commits(client, credentials.group, answer, f"{what} failed", skip_unknown=skip_unknown)

    try:
        return await client.retrying(ask, deadline)
    except RetriableError as error:
        if unanswered:
            raise UnknownOutcomeError(f"{what} was not answered: {error}") from None
        raise


def _commit(entry: CommitOffset, number: int) -> Any:
    return OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=entry.offset,
        committed_leader_epoch=entry.leader_epoch,
        committed_metadata=entry.metadata,
    )
