"""Read and write the halts of groups: `pause`, `stop`, `resume`. Each is the newest entry of a group's side group.

A halt never ends by itself: its entries say how long the broker keeps them. So no query has to renew it, which could
bring a halt back that was resumed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.commits.side_groups import HALT, beyond, within
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group.requests import commit_offsets, fetch_all_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset, chunks
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.halt import Halt, halt_of

_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000


async def fetch_halt(client: KafkaClient, group: str, deadline: Deadline) -> Halt | None:
    """Return the newest halt of a group, which may be that it was resumed; None: it was never halted.

    Raises:
        AuthenticationError: This user may not describe the side group.
        KafkaGroupError: The coordinator does not answer.
    """
    entries = await fetch_all_committed(client, HALT.of(group), deadline)
    return halt_of({tp: (within(entry.offset), entry.metadata) for tp, entry in entries.items()})


async def write_halt(
    client: KafkaClient, group: str, halt: Halt, partitions: Collection[TopicPartition], deadline: Deadline
) -> Halt:
    """Write a halt with the next number, and return it. Its boundaries are in one commit, so queries see all or none.

    Args:
        client: The cluster's client.
        group: The group id.
        halt: The halt; its number does not count.
        partitions: The partitions of the group, at least one.
        deadline: The time limit.

    Raises:
        InvalidConfigurationError: The halt has more boundaries than one commit can hold.
        KafkaGroupError: The user may not commit offsets of the side group, or the coordinator does not answer.
    """
    before = await fetch_halt(client, group, deadline)
    numbered = replace(halt, number=1 if before is None else before.number + 1)
    side_group = HALT.of(group)
    named = numbered.entries(partitions)
    entries = {tp: CommitOffset(beyond(boundary), metadata=text) for tp, (boundary, text) in named.items()}
    if halt.boundaries and len(list(chunks(side_group, entries))) > 1:
        raise InvalidConfigurationError(
            f"Group {group}: {len(entries)} boundaries are too many for one commit. Stop it without them: `--at now`."
        )
    no_member = SlotCredentials.without_membership(side_group)
    await commit_offsets(client, no_member, entries, deadline, fail_on_unknown_topic=True, keep_ms=_TEN_YEARS_MS)
    return numbered
