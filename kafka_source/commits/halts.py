"""Read and write the halts of groups: `pause`, `stop`, `resume`. A halt is the newest entry of a group's side group.

A halt never ends by itself. A halt's entry has a long retention time, because its renewal could undo a resume.
"""

import getpass
import json
import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from assignors.model import TopicPartition
from kafka_source.commits.side_groups import HALT, IDLE, beyond, within
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group.requests import commit_offsets, fetch_all_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset, chunks
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.halt import Halt, halt_of, while_it_holds

_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000
IDLE_SECONDS = 60.0
"""The interval at which an idle query of a stopped group reports that it still runs."""
_IDLE_MS = round(3 * IDLE_SECONDS * 1000)


async def fetch_halt(client: KafkaClient, group: str, deadline: Deadline) -> Halt | None:
    """Return the halt of a group; None: the group is not halted.

    Raises:
        AuthenticationError: This user may not describe the side group.
        KafkaGroupError: The coordinator does not answer.
    """
    return while_it_holds(await fetch_newest_halt(client, group, deadline))


async def fetch_newest_halt(client: KafkaClient, group: str, deadline: Deadline) -> Halt | None:
    """Return the newest halt of a group, which may be a resume; None: the group was never halted.

    Raises:
        KafkaGroupError: See `fetch_halt`.
    """
    return halt_of(await _fetch_entries(client, group, deadline))


async def _fetch_entries(client: KafkaClient, group: str, deadline: Deadline) -> dict[TopicPartition, tuple[int, str]]:
    entries = await fetch_all_committed(client, HALT.of(group), deadline)
    return {tp: (within(entry.offset), entry.metadata) for tp, entry in entries.items()}


async def write_halt(
    client: KafkaClient, group: str, halt: Halt, partitions: Collection[TopicPartition], deadline: Deadline
) -> Halt:
    """Write a halt with the next number, and return this halt. One commit has all boundaries, so a query sees all.

    Args:
        client: The cluster's client.
        group: The group id.
        halt: The halt, whose number is ignored.
        partitions: The partitions of the group; empty: the partitions of the group's newest halt.
        deadline: The time limit.

    Raises:
        InvalidConfigurationError: The halt has more boundaries than one commit can hold.
        KafkaGroupError: The user may not commit offsets of the side group, or the coordinator does not answer.
    """
    known = await _fetch_entries(client, group, deadline)
    before = halt_of(known)
    numbered = replace(halt, number=1 if before is None else before.number + 1)
    side_group = HALT.of(group)
    named = numbered.entries(partitions or known)
    entries = {tp: CommitOffset(beyond(boundary), metadata=text) for tp, (boundary, text) in named.items()}
    if halt.boundaries and len(list(chunks(side_group, entries))) > 1:
        raise InvalidConfigurationError(
            f"Group {group}: {len(entries)} boundaries are too many for one commit. Stop the group without boundaries: "
            "`--at now`."
        )
    no_member = SlotCredentials.without_membership(side_group)
    await commit_offsets(client, no_member, entries, deadline, fail_on_unknown_topic=True, keep_ms=_TEN_YEARS_MS)
    return numbered


@dataclass(frozen=True, slots=True)
class Obeyed:
    """A query's report about a partition, for the commands.

    Attributes:
        number: The halt's number. The query plans nothing beyond the boundaries, and has committed earlier plans.
        member: The id of the member that owns the partition; empty: the query has left the group, but still runs.
        at_ms: The time of the report, in milliseconds since 1970.
        process: The query's process.
    """

    number: int
    member: str
    at_ms: int
    process: str


async def write_obeyed(
    client: KafkaClient, group: str, halt: Halt, members: Mapping[TopicPartition, str], now_ms: int, deadline: Deadline
) -> None:
    """Report that a query obeys a halt.

    Args:
        client: The cluster's client.
        group: The group id.
        halt: The halt.
        members: The owner's member id by partition; after the query has left, one partition with an empty id.
        now_ms: The time, in milliseconds since 1970.
        deadline: The time limit.
    """
    process = f"{user_and_host()}, pid {os.getpid()}"
    entries = {
        tp: CommitOffset(beyond(0), metadata=json.dumps(asdict(Obeyed(halt.number, member, now_ms, process))))
        for tp, member in members.items()
    }
    no_member = SlotCredentials.without_membership(IDLE.of(group))
    await commit_offsets(client, no_member, entries, deadline, fail_on_unknown_topic=True, keep_ms=_TEN_YEARS_MS)


async def fetch_obeyed(client: KafkaClient, group: str, deadline: Deadline) -> dict[TopicPartition, Obeyed]:
    """Return the reports of a group's queries, by partition.

    Raises:
        KafkaGroupError: See `fetch_halt`.
    """
    found = {}
    for tp, entry in (await fetch_all_committed(client, IDLE.of(group), deadline)).items():
        try:
            said = json.loads(entry.metadata)
            found[tp] = Obeyed(int(said["number"]), str(said["member"]), int(said["at_ms"]), str(said["process"]))
        except (ValueError, TypeError, KeyError):
            continue
    return found


async def fetch_idle(client: KafkaClient, group: str, now_ms: int, deadline: Deadline) -> tuple[str, ...]:
    """Return the processes whose queries have left a stopped group, and have reported in the last minutes.

    Raises:
        KafkaGroupError: See `fetch_halt`.
    """
    said = (await fetch_obeyed(client, group, deadline)).values()
    return tuple(sorted({one.process for one in said if not one.member and now_ms - one.at_ms < _IDLE_MS}))


def user_and_host() -> str:
    """Return the user and the host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may have no name for its user.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
