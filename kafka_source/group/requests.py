"""A query's requests about its group, with retries: describe, fetch offsets, commit without a transaction, leave."""

import functools
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from assignors import (
    Assignment,
    TopicPartition,
    WireFormatError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AuthenticationError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnknownOutcomeError,
    UnknownTopicError,
    error_for_code,
)
from kafka_source.group.model import CONSUMER, GroupMember
from kafka_source.kafka_client import (
    GROUP,
    Deadline,
    KafkaClient,
    check_commits,
    check_coordinator,
    coordinator_call,
    coordinator_versions,
    text_of_id,
    to_coordinator,
    topic_ids_to_commit,
)
from kafka_source.kafka_client.messages.codec import NO_UUID
from kafka_source.kafka_client.messages.group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka_source.model.commits import CommitOffset, chunks
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import first_names, numbers_by_topic

log = logging.getLogger(__name__)

_T = TypeVar("_T")

DEAD = "Dead"
STABLE = "Stable"
PREPARING_REBALANCE = "PreparingRebalance"
REBALANCING = frozenset({PREPARING_REBALANCE, "CompletingRebalance"})
"""The states in which a classic group's description has no assignments."""

_DESCRIBE_VERSION = 5


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member and the assignment that the leader gave it (`state`).

    While the group rebalances, both the member's metadata and its state are empty.

    Attributes:
        topics: The topics to which the member subscribes; None: unknown, for example while the group rebalances.
    """

    member: GroupMember
    state: bytes
    client_id: str
    host: str
    topics: frozenset[str] | None = None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the member was assigned; empty if its assignment is not in Kafka's format."""
        try:
            return frozenset(TopicPartition(*tp) for tp in decode_assignment(self.state).partitions)
        except WireFormatError:
            return frozenset()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The coordinator's description of a group.

    Attributes:
        state: Kafka's name of the group's state, for example "Stable".
        protocol_type: The group's protocol type: "consumer" for consumers.
        protocol: The assignor that the group uses.
        members: The group's members.
    """

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]

    def member_id_of(self, instance_id: str | None) -> str | None:
        """Return the current member id of a static member; None if the group has no such member."""
        return next((d.member.member_id for d in self.members if d.member.instance_id == instance_id), None)


async def describe_classic(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription:
    """Return the coordinator's description of a classic group; any other group is `DEAD` and has no members.

    Raises:
        AuthenticationError: This user is not authorized to describe the group.
        RetriableError: The coordinator cannot be reached before the deadline.
    """
    what = f"Describing group {group} failed"

    def read(answer: DescribeGroupsResponse) -> GroupDescription:
        (found,) = answer.groups
        check_coordinator(client, GROUP, group, found.error_code, what)
        return GroupDescription(
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            tuple(
                DescribedMember(
                    GroupMember(m.member_id, m.group_instance_id, bytes(m.member_metadata)),
                    bytes(m.member_assignment),
                    m.client_id,
                    m.client_host,
                    _topics(bytes(m.member_metadata)) if found.protocol_type == CONSUMER else None,
                )
                for m in found.members
            ),
        )

    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    return await coordinator_call(client, GROUP, group, request, deadline, read, max_version=_DESCRIBE_VERSION)


async def if_allowed(description: Awaitable[_T], group: str) -> _T | None:
    """Return the whole description of a group; None: this user may not describe the group."""
    try:
        return await description
    except AuthenticationError as error:
        _warn_of_forbidden(group, str(error))
        return None


@functools.cache
def _warn_of_forbidden(group: str, why: str) -> None:
    log.warning(
        "group=%s: this user may not describe the group: %s Without this right, partitions without a reader are "
        "not detected, slots stay beyond max.poll.interval.ms, and a batch whose slots were lost is read again.",
        group,
        why,
    )


async def describe(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription:
    """Return the coordinator's description of a group of the classic or the consumer protocol.

    A group of another kind, or a group that does not exist, is `DEAD` and has no members. Raises as `describe_classic`.
    """
    found = await describe_classic(client, group, deadline)
    if found.state != DEAD:
        return found
    return await describe_assigned_by_brokers(client, group, deadline) or found


async def describe_assigned_by_brokers(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription | None:
    """Return the description of a group of the consumer protocol (KIP-848); None if there is no such group.

    The `metadata` of its members is empty. Raises as `describe_classic`.
    """
    found = await describe_consumer_protocol(client, group, deadline)
    if found is None:
        return None
    members = (
        DescribedMember(
            GroupMember(m.member_id, m.instance_id, b""),
            encode_assignment(Assignment(_partitions(m.assignment))),
            m.client_id,
            m.client_host,
            frozenset(m.subscribed_topic_names),
        )
        for m in found.members
    )
    return GroupDescription(found.group_state, CONSUMER, found.assignor_name, tuple(members))


async def describe_consumer_protocol(
    client: KafkaClient, group: str, deadline: Deadline
) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
    """Return ConsumerGroupDescribe's answer about a group (KIP-848); None: no such group, or brokers lack the protocol.

    A classic request gets the state "Dead" for a group of the consumer protocol too. Raises as `describe_classic`.
    """

    def read(answer: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
        (found,) = answer.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check_coordinator(client, GROUP, group, found.error_code, f"Describing group {group} failed")
        return found

    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    try:
        return await coordinator_call(client, GROUP, group, request, deadline, read)
    except AuthenticationError:
        raise
    except InvalidConfigurationError:
        # The brokers are too old to know the consumer protocol.
        return None


def _topics(metadata: bytes) -> frozenset[str] | None:
    try:
        return frozenset(decode_subscription(metadata).topics)
    except WireFormatError:
        return None


def _partitions(
    assignment: ConsumerGroupDescribeResponse.DescribedGroup.Member.Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(t.topic_name, n) for t in assignment.topic_partitions for n in t.partitions)


# The last version of OffsetFetch and of OffsetCommit with topic names. The next version has topic ids (KIP-516, Kafka
# 4.1), by which a coordinator refuses the offset of a topic that was created again.
_BY_NAME = 9
# The last version of OffsetCommit with a retention time; brokers still accept it.
_WITH_RETENTION = 4
_Committed = (
    OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics.OffsetFetchResponsePartitions
    | OffsetFetchResponse.OffsetFetchResponseTopic.OffsetFetchResponsePartition
)
# The maximum number of partitions that an error names.
_MAX_NAMED = 10


async def fetch_committed(
    client: KafkaClient,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    deadline: Deadline,
    *,
    stable: bool = True,
) -> dict[TopicPartition, int | None]:
    """Return the group's committed offsets; None for a partition without an offset.

    Args:
        client: The cluster's client.
        group: The group id.
        partitions: The partitions to fetch; None: all partitions for which the group has committed an offset.
        deadline: The time limit for all attempts.
        stable: Whether to wait for open transactions that will commit an offset of these partitions (KIP-447). If
            false, the result contains the offsets from before those transactions. If all partitions are requested, the
            call does not wait for a partition whose first offset is pending, because brokers omit it.

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
    learns_ids: bool = False,
) -> dict[TopicPartition, CommitOffset]:
    """Return the committed offsets of these partitions, with their metadata; waits and raises as `fetch_committed`.

    Args:
        client: The cluster's client.
        group: The group id.
        partitions: The partitions to fetch.
        deadline: The time limit for all attempts.
        stable: As in `fetch_committed`.
        learns_ids: Whether the client requests metadata of topics that it does not know, for example after it
            rebootstrapped. Without this, offsets of unknown topics have no topic id, and may belong to a deleted topic.
    """
    wanted = sorted(set(partitions))
    return await _fetch(client, group, wanted, deadline, stable=stable, learns_ids=learns_ids) if wanted else {}


async def fetch_by_ids(
    client: KafkaClient,
    group: str,
    partitions: Iterable[TopicPartition],
    ids: Mapping[str, UUID],
    deadline: Deadline,
    *,
    stable: bool = False,
) -> dict[TopicPartition, CommitOffset]:
    """Return the committed offsets of topics with these ids.

    Args:
        client: The cluster's client.
        group: The group id.
        partitions: The partitions to fetch.
        ids: The ids of the partitions' topics, by name.
        deadline: The time limit for all attempts.
        stable: As in `fetch_committed`.

    Raises:
        UnknownTopicError: A topic was deleted or created again, or the coordinator does not know the topic yet, or
            knows topics by name only (Kafka before 4.1).
        KafkaGroupError: As `fetch_committed`.
    """
    numbers = numbers_by_topic(sorted(partitions))
    found = await client.retrying(lambda: _ask(client, group, numbers, ids, deadline, stable=stable), deadline)
    if not found.by_id or found.unknown:
        raise _unknown_ids(group, found.unknown or numbers)
    return found.offsets


async def _fetch(
    client: KafkaClient,
    group: str,
    wanted: Iterable[TopicPartition] | None,
    deadline: Deadline,
    *,
    stable: bool,
    learns_ids: bool = False,
) -> dict[TopicPartition, CommitOffset]:
    """Fetch by ids if the last metadata have the ids of all the topics, else by names."""
    numbers = None if wanted is None else numbers_by_topic(sorted(wanted))

    async def attempt() -> dict[TopicPartition, CommitOffset]:
        if learns_ids and (unseen := (numbers or {}).keys() - client.known.topics.keys()):
            await client.metadata(unseen, deadline)
        ids = {name: topic.topic_id for name, topic in client.known.topics.items() if topic.topic_id is not None}
        found = await _ask(client, group, numbers, ids, deadline, stable=stable)
        if found.unknown:
            # The topics were deleted, or were created a moment ago. The next attempt has the current ids.
            await client.metadata(found.unknown, deadline)
            raise _unknown_ids(group, found.unknown)
        return found.offsets

    return await client.retrying(attempt, deadline)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """An answer to OffsetFetch.

    Attributes:
        offsets: The committed offsets.
        unknown: The topics whose ids the coordinator does not know.
        by_id: Whether the request had topic ids.
    """

    offsets: dict[TopicPartition, CommitOffset]
    unknown: frozenset[str]
    by_id: bool


async def _ask(
    client: KafkaClient,
    group: str,
    numbers: Mapping[str, Sequence[int]] | None,
    ids: Mapping[str, UUID],
    deadline: Deadline,
    *,
    stable: bool,
) -> _Fetched:
    """Send one request: by ids if all the topics have an id and the coordinator accepts ids, else by names."""
    by_id = numbers is not None and all(name in ids for name in numbers)
    request = _fetch_request(group, numbers, ids, stable=stable)
    answer = await to_coordinator(client, GROUP, group, request, deadline, None if by_id else _BY_NAME)
    names = {ids[name]: name for name in numbers or () if name in ids}
    # The request has one group; brokers before 3.0 answer without a list of groups.
    code = answer.groups[0].error_code if answer.groups else answer.error_code
    check_coordinator(client, GROUP, group, code, _fetching(group))
    answers: list[tuple[str, _Committed]] = [(t.name, p) for t in answer.topics for p in t.partitions]
    for of_group in answer.groups:
        answers += [(t.name or names[t.topic_id], p) for t in of_group.topics for p in t.partitions]
    answered_by_id = {names[t.topic_id] for of_group in answer.groups for t in of_group.topics if t.topic_id in names}
    found, unknown = {}, set()
    for name, p in answers:
        if p.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            unknown.add(name)
            continue
        check_coordinator(client, GROUP, group, p.error_code, f"{_fetching(group)} for {name}-{p.partition_index}")
        if p.committed_offset >= 0:
            tp = TopicPartition(name, p.partition_index)
            topic_id = text_of_id(ids[name]) if name in answered_by_id else None
            found[tp] = CommitOffset(p.committed_offset, p.committed_leader_epoch, p.metadata or "", topic_id)
    return _Fetched(found, frozenset(unknown), bool(answered_by_id))


def _fetching(group: str) -> str:
    return f"Fetching the committed offsets of group {group} failed"


def _unknown_ids(group: str, topics: Iterable[str]) -> KafkaGroupError:
    names = first_names(sorted(topics), _MAX_NAMED)
    return error_for_code(ErrorCode.UNKNOWN_TOPIC_ID, f"{_fetching(group)} for {names}")


def _fetch_request(
    group: str, numbers: Mapping[str, Sequence[int]] | None, ids: Mapping[str, UUID], *, stable: bool
) -> OffsetFetchRequest:
    """Return a request in both layouts, because from version 8 on a request may name many groups."""
    of_one, of_many = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestGroup
    topics, topics_of_group = None, None
    if numbers is not None:
        topics = [of_one(name, wanted) for name, wanted in numbers.items()]
        topics_of_group = [
            of_many.OffsetFetchRequestTopics(name, ids.get(name, NO_UUID), wanted) for name, wanted in numbers.items()
        ]
    groups = [of_many(group_id=group, topics=topics_of_group)]
    return OffsetFetchRequest(group_id=group, topics=topics, groups=groups, require_stable=stable)


async def commit_offsets(
    client: KafkaClient,
    credentials: SlotCredentials,
    offsets: Mapping[TopicPartition, int | CommitOffset],
    deadline: Deadline,
    *,
    fail_on_unknown_topic: bool = False,
    has_looked: bool = True,
    keep_ms: int | None = None,
) -> None:
    """Commit the next offsets to read, as the member with these credentials.

    The offsets of thousands of partitions take several requests in turn. A failure does not undo earlier requests.

    Args:
        client: The cluster's client.
        credentials: The credentials of the member that commits.
        offsets: The next offset to read, by partition.
        deadline: The time limit for all attempts.
        fail_on_unknown_topic: Whether to fail immediately if the coordinator does not know a topic; otherwise the
            commit is retried until the deadline, because a topic may have just been created.
        has_looked: Whether the caller has compared the topics' ids with the ids of the offsets. Otherwise
            UnknownTopicError is raised immediately if the coordinator compares no ids, or reports another id.
        keep_ms: The retention of the offsets of a group without members, in ms; None: `offsets.retention.minutes`.

    Raises:
        FencedError: The coordinator rejects the credentials; only the previous requests' offsets are committed.
        UnknownTopicError: A topic does not exist; the offsets of the other topics are committed.
        UnknownOutcomeError: A response was lost, and no later attempt was accepted before the deadline.
    """
    entries = {tp: CommitOffset(value) if isinstance(value, int) else value for tp, value in offsets.items()}
    what = f"Committing offsets of group {credentials.group} as {credentials.instance_id or credentials.member_id}"
    if not has_looked and not await _takes_ids(client, credentials.group, entries, deadline):
        raise UnknownTopicError.of_names_only()
    fails_at_once, min_version = (fail_on_unknown_topic, 0) if has_looked else (True, _BY_NAME + 1)
    unknown: list[str] = []
    for part in chunks(credentials.group, entries):
        unknown += await _commit_part(
            client,
            credentials,
            part,
            deadline,
            what,
            skip_unknown=fails_at_once,
            min_version=min_version,
            keep_ms=keep_ms,
        )
    if unknown:
        named = first_names(unknown, _MAX_NAMED)
        raise error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} failed for {named}")


async def _takes_ids(
    client: KafkaClient, group: str, offsets: Mapping[TopicPartition, CommitOffset], deadline: Deadline
) -> bool:
    """Return whether the coordinator compares the ids of all topics of a commit. No request is sent to find out."""
    versions = await coordinator_versions(client, GROUP, group, deadline)
    return bool(topic_ids_to_commit(offsets)) and versions.version_for(OffsetCommitRequest) > _BY_NAME


async def _commit_part(
    client: KafkaClient,
    credentials: SlotCredentials,
    part: Mapping[TopicPartition, CommitOffset],
    deadline: Deadline,
    what: str,
    *,
    skip_unknown: bool,
    min_version: int,
    keep_ms: int | None,
) -> list[str]:
    """Commit the offsets of one request; return the partitions of unknown topics, as `check_commits` does."""
    unanswered = False
    ids = topic_ids_to_commit(part)
    names = {topic_id: name for name, topic_id in ids.items()}
    request = OffsetCommitRequest(
        group_id=credentials.group,
        generation_id_or_member_epoch=credentials.generation,
        member_id=credentials.member_id,
        group_instance_id=credentials.instance_id,
        retention_time_ms=-1 if keep_ms is None else keep_ms,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids.get(topic, NO_UUID),
                partitions=[_commit(part[TopicPartition(topic, n)], n) for n in numbers],
            )
            for topic, numbers in numbers_by_topic(sorted(part)).items()
        ],
    )

    def note_lost() -> None:
        # A later response does not show the outcome, because a new or loading coordinator does not know this attempt.
        nonlocal unanswered
        unanswered = True

    def read(answer: OffsetCommitResponse) -> list[str]:
        outcomes = (
            (f"{topic.name or names.get(topic.topic_id, topic.topic_id)}-{p.partition_index}", p.error_code)
            for topic in answer.topics
            for p in topic.partitions
        )
        return check_commits(client, credentials.group, outcomes, f"{what} failed", skip_unknown=skip_unknown)

    try:
        return await coordinator_call(
            client,
            GROUP,
            credentials.group,
            request,
            deadline,
            read,
            max_version=_WITH_RETENTION if keep_ms is not None else None if ids else _BY_NAME,
            min_version=min_version,
            on_lost=note_lost,
        )
    except RetriableError as error:
        if unanswered:
            raise UnknownOutcomeError(f"{what} was not answered: {error}") from None
        raise


def _commit(
    entry: CommitOffset, number: int
) -> OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition:
    return OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=entry.offset,
        committed_leader_epoch=entry.leader_epoch,
        committed_metadata=entry.metadata,
    )


# Any other error means that the group does not have the members, as intended.
_ASK_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


async def leave_group(
    client: KafkaClient, group: str, members: Sequence[tuple[str, str | None]], reason: str, deadline: Deadline
) -> None:
    """Leave a group with several members in one request, so that the group rebalances once.

    Args:
        client: The client of the cluster.
        group: The group id.
        members: The member id and the instance id of each member; a static member is found by its instance id.
        reason: The reason for the brokers' log (KIP-800).
        deadline: The time limit for all tries. A repeated request ignores members that have left.

    Raises:
        RetriableError: The coordinator could not be reached in time. The members stay until their sessions end.
    """
    request = LeaveGroupRequest(
        group_id=group,
        members=[
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason or None)
            for member_id, instance_id in members
        ],
    )

    def read(answer: LeaveGroupResponse) -> None:
        if answer.error_code in _ASK_AGAIN:
            check_coordinator(client, GROUP, group, answer.error_code, f"Leaving group {group} failed")

    await coordinator_call(client, GROUP, group, request, deadline, read)
