"""Rewind a group while its queries run.

The program that rewinds becomes a member of the group for a moment. Queries of kafkagroup finish and commit their
micro-batch, own no partitions while the offsets are set, and continue at the new offsets; see
`group.classic.strategies`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import leader_epochs
from kafka_source.cluster.lookup import Cluster
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    ApplicationRecoverableError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnknownGroupError,
    UnknownOutcomeError,
)
from kafka_source.group.classic import strategies
from kafka_source.group.classic.member import Joined, Member, MemberSettings
from kafka_source.group.requests import commit_offsets, describe, fetch_committed, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset, chunks, with_notes
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import first_names
from kafka_source.model.rewind_target import Move, Target, other_group
from kafka_source.model.topic_selection import TopicSelection
from kafkagroup.admin.group_requests import CONSUMER, describe_group
from kafkagroup.admin.lag import moves_now
from kafkagroup.admin.rows import Group, MemberDescription

log = logging.getLogger(__name__)

# Time for all members to finish their micro-batches: the queries' rebalance timeout, and a margin.
_REWIND_SECONDS = 330.0
# If this program dies, the queries wait for this time, and continue at the previous or the new offsets.
_SESSION_TIMEOUT_MS = 10_000
# The time for the work between the start of the generation and the end of the session.
_COMMIT_SECONDS = 5.0
_LOOK_UP_SECONDS = 3.0
_DESCRIBE_SECONDS = 15.0
_LEAVE_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.1
_MAX_NAMED = 5
# The suffixes of the client ids of kafkagroup's members; see `GroupSettings.client_id`.
_OUR_CLIENT_ID = "-member"


@dataclass(frozen=True, slots=True)
class RunningRewind:
    """A rewind that is done.

    Attributes:
        group: The group id.
        rewind_id: The id in the metadata of the new offsets.
        generation: The generation in which no member read and the offsets were set.
        before: The committed offset of each partition right before the rewind, if any.
        offsets: The new offset of each partition.
        moves: The new offsets as rows, with the target's offsets before they were limited to the log.
    """

    group: str
    rewind_id: str
    generation: int
    before: Mapping[TopicPartition, int]
    offsets: Mapping[TopicPartition, int]
    moves: tuple[Move, ...]


_Aim = Callable[[KafkaClient, Mapping[TopicPartition, int]], tuple[Move, ...]]
"""Returns the new positions, from the offsets that are committed when all members have stopped reading."""


def rewind_running_group(
    settings: Settings,
    group: str,
    offsets: Mapping[TopicPartition, int] | Target,
    *,
    partitions: Collection[TopicPartition] = (),
    timeout: float = _REWIND_SECONDS,
) -> RunningRewind:
    """Set committed offsets of a group whose members are queries of kafkagroup; the queries continue at these offsets.

    The offsets of all named partitions are set, or no offset is. Other partitions keep their offsets. The call returns
    when the offsets are set. The queries read from these offsets within a second.

    Args:
        settings: The Kafka client settings, with `bootstrap.servers`. The user needs READ on the group and its topics.
        group: The group id.
        offsets: The new offset of each partition, between the earliest and the latest offset; or a target, as in
            `Groups.moves`. A target is resolved when the members have committed their last micro-batch. `Shift` counts
            from these commits, and `latest` is the end of the log after these commits.
        partitions: The partitions to move to a target.
        timeout: Seconds to wait until all members have finished their micro-batches. The group itself does not wait
            longer than `kafka.max.poll.interval.ms`.

    Raises:
        InvalidConfigurationError: An offset does not exist, the group has no members (use `Groups.rewind`), or it has
            members that do not support the call: consumers of other clients, batch reads, `redundant.emit=all`.
        UnknownTopicError: A topic does not exist.
        RetriableError: The members have not finished their micro-batches in time. Nothing was changed.
        ApplicationRecoverableError: The coordinator has refused the commit. Nothing was changed.
        UnknownOutcomeError: The coordinator did not answer, and the group's committed offsets could not be read, or not
            all of them are set. Check the committed offsets before you rewind again.
    """
    named = offsets if isinstance(offsets, Mapping) else partitions
    if not named:
        raise InvalidConfigurationError(f"Name the partitions of group {group} to rewind: none are given.")
    rewind_id = strategies.new_id()
    # The size of a commit does not depend on the offsets. Ids of topics and clusters have 22 letters.
    unknown = dict.fromkeys((tp.topic for tp in named), "-" * 22)
    if len(list(chunks(group, _entries(dict.fromkeys(named, 0), {}, rewind_id, unknown, "-" * 22)))) > 1:
        raise InvalidConfigurationError(
            f"Group {group}: {len(named)} partitions are too many for one commit, and a rewind is all or nothing. "
            "Rewind them in several calls, for example by topic."
        )
    with closing(KafkaClient(settings, client_id=strategies.CLIENT_ID)) as client:
        # Described before the offsets are checked, because they are offsets of these topics.
        topics = client.run(_describe_topics(client, named, Deadline(_DESCRIBE_SECONDS)))
        if isinstance(offsets, Mapping):
            aim = _to_offsets(settings, group, offsets)
            # Refuse a wrong offset before the members stop. A log may lose the offset while the members finish.
            aim(client, {})
        else:
            aim = _to_target(settings, offsets, partitions)
        return _rewind(client, group, named, aim, topics, rewind_id, Deadline(timeout))


def _entries(
    offsets: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int],
    rewind_id: str,
    topic_ids: Mapping[str, str],
    cluster: str | None,
) -> dict[TopicPartition, CommitOffset]:
    return with_notes(offsets, dict.fromkeys(offsets, rewind_id), None, epochs, topic_ids, cluster)


async def _describe_topics(
    client: KafkaClient, partitions: Collection[TopicPartition], deadline: Deadline
) -> tuple[Mapping[str, str], str | None]:
    """Return the id of each topic, if the brokers have topic ids, and the cluster's id."""
    names = frozenset(tp.topic for tp in partitions)
    snapshot = await client.retrying(lambda: client.metadata(names, deadline), deadline)
    ids = {name: topic.id_text for name, topic in snapshot.topics.items() if topic.id_text is not None}
    return ids, snapshot.cluster_id


def _to_offsets(settings: Settings, group: str, offsets: Mapping[TopicPartition, int]) -> _Aim:
    def aim(client: KafkaClient, before: Mapping[TopicPartition, int]) -> tuple[Move, ...]:
        _check_exist(Cluster(settings, client=client), group, offsets)
        return tuple(
            Move(tp.topic, tp.partition, before.get(tp), offset, offset) for tp, offset in sorted(offsets.items())
        )

    return aim


def _to_target(settings: Settings, target: Target, partitions: Collection[TopicPartition]) -> _Aim:
    like = other_group(target)

    def aim(client: KafkaClient, before: Mapping[TopicPartition, int]) -> tuple[Move, ...]:
        other: Mapping[TopicPartition, int | None] = {}
        if like is not None:
            other = client.run(fetch_committed(client, like, None, Deadline(_LOOK_UP_SECONDS), stable=False))
        cluster = Cluster(settings, timeout_ms=round(_LOOK_UP_SECONDS * 1000), client=client)
        return moves_now(
            cluster, target, partitions, before, {tp: offset for tp, offset in other.items() if offset is not None}
        )

    return aim


def cannot_be_rewound(group: Group) -> str | None:
    """Return why a described group cannot be rewound while its members run; None: its description shows no reason.

    Only the coordinator can check whether all members support a rewind, because users may change client ids.
    """
    others = [one for one in group.members if not one.client_id.endswith(_OUR_CLIENT_ID)]
    if group.type == CONSUMER:
        why = "the brokers assign its partitions, because it has members of the consumer protocol (KIP-848)"
        return _explained(group, why, others or group.members)
    return _explained(group, "it has members of other clients", others) if others else None


def _explained(group: Group, why: str, named: Collection[MemberDescription]) -> str:
    names = first_names([f"{one.name} ({one.client_id}) at {one.host}" for one in named], _MAX_NAMED)
    return (
        f"Group {group.group} cannot be rewound while it runs: {why}: {names}. Only streams of kafkagroup that use "
        "the classic protocol without redundant.emit=all can be rewound while they run. Nothing was changed. Stop "
        f"these members ({len(named)} of {len(group.members)}) and rewind again. Or stop all members, rewind the "
        "stopped group (Groups.rewind, `kafkagroup rewind`), and start the members. Queries then continue at the new "
        "offsets."
    )


def _check_exist(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    exist = set(cluster.partitions(TopicSelection(topics=tuple(sorted({tp.topic for tp in offsets})))))
    for tp in sorted(offsets):
        if tp not in exist:
            raise InvalidConfigurationError(f"Group {group}: {tp.topic}-{tp.partition} does not exist.")
    earliest = cluster.earliest(list(offsets))
    latest = cluster.latest(list(offsets), read_committed=False)
    for tp, offset in sorted(offsets.items()):
        if not earliest[tp] <= offset <= latest[tp]:
            raise InvalidConfigurationError(
                f"Group {group}: {tp.topic}-{tp.partition} has no offset {offset}; it takes one from {earliest[tp]} to "
                f"{latest[tp]}."
            )


def _rewind(
    client: KafkaClient,
    group: str,
    partitions: Collection[TopicPartition],
    aim: _Aim,
    topics: tuple[Mapping[str, str], str | None],
    rewind_id: str,
    deadline: Deadline,
) -> RunningRewind:
    described = client.run(_describe(client, group))
    # The coordinator expects no request during JoinGroup. This member's own rebalance timeout must not end the wait.
    settings = MemberSettings(
        group, session_timeout_ms=_SESSION_TIMEOUT_MS, rebalance_timeout_ms=max(1, int(deadline.seconds * 1000))
    )
    member = Member(client, settings)
    log.info("rewind group=%s partitions=%d: waiting until the members are between batches", group, len(partitions))
    try:
        client.run(_join(client, member, described, deadline), deadline.seconds + _DESCRIBE_SECONDS)
        found = client.run(fetch_entries(client, group, partitions, Deadline(_COMMIT_SECONDS)))
        before = {tp: entry.offset for tp, entry in found.items()}
        if client.run(_describe_topics(client, partitions, Deadline(_LOOK_UP_SECONDS))) != topics:
            raise ApplicationRecoverableError(
                f"Group {group} was not rewound: one of the topics {', '.join(sorted(topics[0]))} was created again "
                "while the members finished their micro-batches. Nothing was changed. Rewind it again."
            )
        # The members have committed while this member waited, so the target's offsets are known only now.
        moves = aim(client, before)
        offsets = {one.topic_partition: one.offset for one in moves}
        epochs = client.run(leader_epochs(client, offsets, Deadline(_LOOK_UP_SECONDS)))
        client.run(_commit(client, member, _entries(offsets, epochs, rewind_id, *topics)))
        generation = member.status.generation
    finally:
        # The members continue when this member has left.
        client.run(member.leave(Deadline(_LEAVE_SECONDS), "the group's offsets are set"))
    log.info("rewind group=%s generation=%d id=%s done", group, generation, rewind_id)
    return RunningRewind(group, rewind_id, generation, before, offsets, moves)


async def _describe(client: KafkaClient, group: str) -> Group:
    """Describe the group before it is joined.

    Raises:
        InvalidConfigurationError: The group has no members, or the brokers assign its partitions.
    """
    try:
        described = await describe_group(client, group, Deadline(_DESCRIBE_SECONDS))
    except UnknownGroupError:
        described = None
    if described is None or not described.members:
        raise InvalidConfigurationError(
            f"Group {group} has no members, so there is nothing to wait for: set its offsets with Groups.rewind."
        )
    if described.type == CONSUMER:
        raise _refused(described, "")
    return described


async def _strategy_in_use(client: KafkaClient, group: str, deadline: Deadline) -> str:
    """Return the strategy of the group's generation; wait for the end of a rebalance.

    Raises:
        RetriableError: The group has rebalanced until the deadline.
    """
    while True:
        found = await describe(client, group, deadline)
        if found.protocol and not strategies.is_rewind(found.protocol):
            return found.protocol
        if deadline.over:
            raise RetriableError(f"Group {group} is {found.state}.")
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def _join(client: KafkaClient, member: Member, described: Group, deadline: Deadline) -> None:
    group = member.settings.group

    async def lead(joined: Joined) -> Mapping[str, bytes]:
        # This member leads only if the group's leader has left.
        return strategies.lead(joined.members)

    try:
        strategy = await _strategy_in_use(client, group, deadline)
        await member.join(strategies.rewind_offers([strategy]), lead, deadline, "the group is rewound")
    except InvalidConfigurationError as error:
        if error.code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise
        raise _refused(described, "some of its members do not support a rewind") from error
    except RetriableError as error:
        raise RetriableError(
            f"Group {group} was not rewound: some of its members have not finished their micro-batches within "
            f"{deadline.seconds:.0f} s. Nothing was changed. Wait longer, or look for a query that hangs. ({error})",
            code=error.code,
        ) from error
    if not member.last_join.leader:
        raise _refused(described, "a consumer of the new protocol (KIP-848) has just joined it")


async def _commit(client: KafkaClient, member: Member, entries: Mapping[TopicPartition, CommitOffset]) -> None:
    """Commit in the rewind's generation, in one request that the coordinator accepts or refuses as a whole."""
    status, group = member.status, member.settings.group
    credentials = SlotCredentials(group, status.generation, status.member_id, None)
    try:
        await commit_offsets(client, credentials, entries, Deadline(_COMMIT_SECONDS))
    except KafkaGroupError as error:
        await _check_set(client, group, entries, error)


async def _check_set(
    client: KafkaClient, group: str, entries: Mapping[TopicPartition, CommitOffset], error: KafkaGroupError
) -> None:
    """Check after a failed commit whether only the response was lost: return if the offsets are set, else raise.

    Raises:
        UnknownOutcomeError: The coordinator does not answer, or only some of the offsets are set.
        ApplicationRecoverableError: The offsets are not set.
    """
    look = f"Check its committed offsets before you rewind it again. ({error})"
    try:
        found = await fetch_entries(client, group, entries, Deadline(_COMMIT_SECONDS))
    except KafkaGroupError as problem:
        raise UnknownOutcomeError(f"Group {group} may have been rewound. {look}", code=error.code) from problem
    # Compare the rewind's id. The offsets themselves may have advanced, because members continue after the session.
    there = [tp for tp, entry in entries.items() if tp in found and found[tp].metadata == entry.metadata]
    if len(there) == len(entries):
        return
    if there:
        some = f"Group {group} was rewound in {len(there)} of {len(entries)} partitions."
        raise UnknownOutcomeError(f"{some} {look}", code=error.code) from error
    if isinstance(error, UnknownOutcomeError):
        # The coordinator may still receive the request.
        raise error
    raise ApplicationRecoverableError(
        f"Group {group} was not rewound, and its members continue at the previous offsets: {error}", code=error.code
    ) from error


def _refused(described: Group, why: str) -> InvalidConfigurationError:
    """Return the error for a group that was not rewound.

    Args:
        described: The group.
        why: The meaning of the coordinator's refusal, in case the group's description shows no reason.
    """
    text = cannot_be_rewound(described) or _explained(described, why, described.members)
    return InvalidConfigurationError(text, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
