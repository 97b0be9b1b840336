"""The source's offsets in the sink's decision (`commit=sink`): their checks, and new credentials after a refusal."""

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.commits.handoff import BatchOfRun, Handoff, Published, collect, record_of
from kafka_source.commits.rights import Renewal, group_by_owner
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError
from kafka_source.group.requests import DEAD, describe
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset, OffsetNote, rewinds_in
from kafka_source.transactions.offset_transaction import GroupOffsets

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The offsets that the sink commits for the sources of a batch.

    Attributes:
        offsets: Offsets of groups, to commit with the decision; empty for the replay of a decided batch.
        taken: Marks that replace the published ranges of the sources, to commit in any case.
        record: The batch's ranges, to commit with the decision; a replay of the batch reads these ranges.
        refusal: The reason not to decide; None: the batch may be decided.
    """

    offsets: tuple[GroupOffsets, ...] = ()
    taken: tuple[GroupOffsets, ...] = ()
    record: tuple[GroupOffsets, ...] = ()
    refusal: KafkaGroupError | None = None


async def offsets_of_sources(
    client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline, *, wrote: bool, decided: bool
) -> SourceOffsets:
    """Return the offsets to commit for the sources of a batch.

    Args:
        client: Client of the cluster that the source reads from and the sink writes to.
        group: The source's `kafka.group.id`.
        batch: The batch.
        deadline: The time limit of the whole call.
        wrote: Whether the batch has rows.
        decided: Whether the ledger has a decision about the batch.

    Raises:
        InvalidConfigurationError: The batch has rows, no source has published its ranges, and the group does not exist.
        InvalidConfigurationError: The source has planned a decided batch again, with records that the decision lacks.
        FencedError: Another member of the group has read records of the batch, and has committed.
        FencedError: No source has published its ranges, and the group has no members.
    """
    found = await collect(client, group, batch, deadline)
    if found is None:
        if wrote and not decided:
            await _check_has_source(client, group, batch, deadline)
        return SourceOffsets()
    taken = (found.taken,) if found.taken.offsets else ()
    if decided:
        for handoff in found.handoffs:
            _check_is_replay(batch, handoff, found.committed)
        return SourceOffsets(taken=taken)
    if found.late and (wrote or found.handoffs):
        return SourceOffsets(taken=taken, refusal=_refusal(batch, found))
    for handoff in found.handoffs:
        _check_not_read_by_others(handoff, found.committed)
    rewinds = rewinds_in(found.committed)
    offsets = (GroupOffsets(one.member, one.ends(rewinds, client.cluster_id)) for one in found.handoffs)
    return SourceOffsets(tuple(offsets), taken, record_of(group, found.handoffs))


def _refusal(batch: BatchOfRun, found: Published) -> FencedError:
    return FencedError(
        f"A task of another batch or of a replaced run has published late ranges of {', '.join(found.late)} in group "
        f"{found.taken.member.group}, which may have replaced ranges of batch {batch.number}. No record of the batch "
        "is visible. Restart the query; it writes the batch again."
    )


async def renewed_offsets(
    client: KafkaClient,
    group: str,
    batch: BatchOfRun,
    deadline: Deadline,
    error: FencedError,
    refused: Set[tuple[int, str]],
) -> tuple[GroupOffsets, ...]:
    """Return the offsets that the group has refused, with the source's current credentials.

    The group removes a source's members if its driver was suspended for too long. The source joins again, unless its
    `group.on.lost` is `stop`, and publishes the current owners of the batch's partitions. In the consumer protocol a
    heartbeat may also have raised a member's epoch since the plan; the source publishes the new epoch.

    Args:
        client: Client of the cluster that the source reads from and the sink writes to.
        group: The source's `kafka.group.id`.
        batch: The batch.
        deadline: The time limit of the whole call.
        error: The refusal.
        refused: All generations and member ids that the group has refused.

    Raises:
        FencedError: Another member owns or has read partitions of the batch, or the source does not join again.
    """
    sources: dict[tuple[str, str], list[Handoff]] = {}
    published = await collect(client, group, batch, deadline)
    if published is None:
        return ()
    if published.late:
        raise _refusal(batch, published)
    for handoff in published.handoffs:
        if handoff.member.right is None:
            raise error
        sources.setdefault((handoff.member.right, handoff.stream), []).append(handoff)
    found, rewinds = [], rewinds_in(published.committed)
    for (right, stream), handoffs in sources.items():
        # A source has a hand-off for each member that commits separately.
        ranges = {tp: span for one in handoffs for tp, span in one.ranges.items()}
        ends = {tp: end for one in handoffs for tp, end in one.ends(rewinds, client.cluster_id).items()}
        # A hand-off does not name the rewinds that its batch follows, so every rewind to before the batch counts.
        renewal = Renewal(group, right, ranges, stream, rewinds={})
        owners = await renewal.wait(client, error, refused, deadline)
        found += [GroupOffsets(owner, {tp: ends[tp] for tp in of_it}) for owner, of_it in group_by_owner(owners)]
    log.info("batch %d: the source has published newer credentials in group %s since the plan", batch.number, group)
    return tuple(found)


async def _check_has_source(client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline) -> None:
    """Raise an error if no query can be the source. A source is a member of the group from its first batch on.

    A union may get its first rows from one source while another source, without new records, has published nothing.
    """
    found = await describe(client, group, deadline)
    if found.state == DEAD:
        raise InvalidConfigurationError(
            f"Option commit.group is {group}, but no source of this query has published its ranges, and the group "
            f"does not exist. Give the source kafka.group.id={group} and commit=sink; it must read from the cluster "
            "that the sink writes to."
        )
    if not found.members:
        raise FencedError(
            f"Batch {batch.number} has no ranges of a source in group {group}, and the group has no members. "
            "Either the source's sessions have ended and its topics were deleted, or the source lacks commit=sink. No "
            "record of the batch is visible. Restart the query; it writes the batch again."
        )
    log.warning(
        "batch %d commits no offsets of group %s: no source of this query has published its ranges; a source that "
        "has read records of this batch lacks commit=sink",
        batch.number,
        group,
    )


def _check_is_replay(batch: BatchOfRun, handoff: Handoff, committed: Mapping[TopicPartition, CommitOffset]) -> None:
    """Raise an error if a decided batch was planned again with records that the decision does not contain.

    The decision has committed the ends of its ranges with the stream's id. If a committed offset with this id is below
    a planned end, the records in between are not in the output. An offset without the id proves nothing, because
    another client has committed it, for example to rewind the group.
    """
    for tp, (_, end) in handoff.ranges.items():
        entry = committed.get(tp)
        if entry is not None and OffsetNote.parse(entry.metadata).stream == handoff.stream and entry.offset < end:
            raise InvalidConfigurationError(
                f"Batch {batch.number} is decided up to offset {entry.offset} of {tp.topic}-{tp.partition}, and the "
                f"query has planned it again up to offset {end}: the checkpoint is older than the output. The sink "
                "would drop these records as a replay. Nothing was written. Restore the newest checkpoint, or use a "
                "new checkpoint, which continues at the group's offsets."
            )


def _check_not_read_by_others(handoff: Handoff, committed: Mapping[TopicPartition, CommitOffset]) -> None:
    # A member that commits after this check belongs to a newer generation, so the broker refuses the sink's commit.
    for tp, (start, _) in handoff.ranges.items():
        entry = committed.get(tp)
        if entry is not None and entry.offset > start:
            raise FencedError(
                f"The batch begins at offset {start} of {tp.topic}-{tp.partition}, but group {handoff.member.group} "
                f"has committed offset {entry.offset}: another member has read the records in between. No record of "
                "the batch is visible. Restart the query; it continues from the group's offsets."
            )
