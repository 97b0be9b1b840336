"""Credentials that replace those of a batch whose slots have joined again, as its committers get them.

With `commit=task` and `commit=sink`, tasks or the sink commit with credentials that they were given when the batch was
planned. If the slots join again in the middle of the batch, because the group has removed them or another read of the
driver waits in a join, the coordinator refuses these credentials. So whoever holds the slots, the driver of a stream or
the keeper of a batch, publishes for each partition of the batch who owns it now, as committed offsets of a separate
group. Whoever is refused a commit looks there. A partition that another member may have is published as lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError
from kafka_source.group.committed_offsets import commit_offsets, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_partitions

_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
_POLL_SECONDS = 0.2


async def publish_owners(
    client: KafkaClient,
    group: str,
    publisher: str,
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, SlotCredentials],
    deadline: Deadline,
) -> None:
    """Publish who owns the partitions of a batch now.

    Args:
        client: The cluster's client.
        group: The group in which the driver has joined again.
        publisher: The driver's name, different after each start of the query.
        ends: The next offset after the batch, by partition.
        owners: The credentials of the slot that owns each partition; without those that another member has.
        deadline: The time limit.
    """
    entries = {}
    for tp, end in ends.items():
        owner = owners.get(tp)
        identity = None if owner is None else (owner.generation, owner.member_id, owner.instance_id)
        entries[tp] = CommitOffset(end, metadata=json.dumps(identity))
    await commit_offsets(client, SlotCredentials.without_membership(_notes(group, publisher)), entries, deadline)


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a committer of a batch gets new credentials after its own were refused.

    Attributes:
        group: The group whose offsets are committed.
        publisher: The driver's name.
        ranges: The first offset to commit over and the next offset after the batch, by partition.
        stream: The stream's id: offsets with its note are the stream's own commits. None: a batch.
    """

    group: str
    publisher: str
    ranges: Mapping[TopicPartition, tuple[int, int]]
    stream: str | None

    async def wait(
        self, client: KafkaClient, error: FencedError, refused: Collection[tuple[int, str]], deadline: Deadline
    ) -> dict[TopicPartition, SlotCredentials]:
        """Wait until the driver has joined again, and return the credentials with which each partition is committed.

        Args:
            client: The cluster's client.
            error: The refusal. FENCED_INSTANCE_ID is one too: the slot has joined again already, if it was not another
                process with its instance id.
            refused: The generations and member ids that the coordinator has refused.
            deadline: The time limit.

        Raises:
            FencedError: Another member has partitions of the batch, or has committed offsets inside of it; or the
                driver has not joined again in time.
        """
        if error.code not in _REMOVED:
            raise error
        while True:
            entries = await fetch_entries(client, _notes(self.group, self.publisher), self.ranges, deadline)
            owners = {
                tp: json.loads(entry.metadata) for tp, entry in entries.items() if entry.offset == self.ranges[tp][1]
            }
            if lost := sorted(tp for tp, owner in owners.items() if owner is None):
                raise _lost(
                    error, f"another member may have been assigned {format_partitions(lost)}, or has its instance id"
                )
            if read := await self._read_by_others(client, deadline):
                raise _lost(error, f"another member has read records of {format_partitions(read)}")
            if owners.keys() == self.ranges.keys() and not any(
                (owner[0], owner[1]) in refused for owner in owners.values()
            ):
                return {tp: SlotCredentials(self.group, *owner) for tp, owner in owners.items()}
            if deadline.left <= _POLL_SECONDS:
                raise _lost(error, f"no driver has joined for it again within {deadline.seconds:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)

    async def check_not_committed(self, client: KafkaClient, deadline: Deadline) -> None:
        """Raise FencedError if a task of a batch has been committed already; a stream may read a batch again.

        Nothing else stops a second action that runs while the slots of the first one are still in their group.
        """
        if self.stream is not None:
            return
        committed = await fetch_entries(client, self.group, self.ranges, deadline)
        if self.ranges.keys() == {
            tp for tp, entry in committed.items() if OffsetNote.parse(entry.metadata).stream == self.publisher
        }:
            raise FencedError(
                f"The records of {format_partitions(sorted(self.ranges))} up to the end of this batch are committed in "
                f"group {self.group} already, by an earlier action or by an earlier attempt of this task. With "
                "commit=task a DataFrame can be read once. To read it more than once, use kafkagroup.pinned or "
                "commit=none."
            )

    async def _read_by_others(self, client: KafkaClient, deadline: Deadline) -> list[TopicPartition]:
        committed = await fetch_entries(client, self.group, self.ranges, deadline)
        return sorted(
            tp
            for tp, entry in committed.items()
            if entry.offset > self.ranges[tp][0]
            and (self.stream is None or OffsetNote.parse(entry.metadata).stream != self.stream)
        )


def _lost(error: FencedError, why: str) -> FencedError:
    return FencedError(
        f"{error} Since then {why}. Nothing of this batch was committed. Start the query again; it continues at the "
        "group's offsets.",
        code=error.code,
    )


def by_owner(owners: Mapping[TopicPartition, SlotCredentials]) -> list[tuple[SlotCredentials, list[TopicPartition]]]:
    """Return what each of the owners has to commit; where the brokers assign, no member commits for another one."""
    found: dict[str, tuple[SlotCredentials, list[TopicPartition]]] = {}
    for tp, owner in sorted(owners.items()):
        found.setdefault(owner.member_id, (owner, []))[1].append(tp)
    return list(found.values())


def _notes(group: str, publisher: str) -> str:
    # It begins as the group does, for rights by prefix.
    return f"{group}-rejoined-{publisher}"
