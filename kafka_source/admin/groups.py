"""Administration of consumer groups: their members, partitions and lag; rewinding and deleting a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from assignors.model import TopicPartition
from kafka_source.admin.group_requests import Group, MemberDescription, delete_group, describe_group, list_groups
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import FencedError
from kafka_source.group.committed_offsets import commit_offsets, fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.topic_selection import TopicSelection

__all__ = ["Group", "Groups", "MemberDescription", "PartitionLag"]

_T = TypeVar("_T")
_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in one partition.

    Attributes:
        topic: The topic.
        partition: The partition number.
        committed: The committed offset; None if the group has committed none.
        end: The end offset of the log (the high watermark).
        member: The name of the member that owns the partition; None if there is none.
    """

    topic: str
    partition: int
    committed: int | None
    end: int
    member: str | None

    @property
    def lag(self) -> int | None:
        """Return the number of offsets between the committed and the end offset; None without a committed offset."""
        return None if self.committed is None else max(0, self.end - self.committed)


class Groups:
    """Describes and changes the consumer groups of a cluster. Each call opens and closes its own connections.

    Args:
        settings: The Kafka client settings, with `bootstrap.servers`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def states(self) -> dict[str, str]:
        """Return the state of each consumer group that this user may describe, by group id.

        Raises:
            KafkaGroupError: A broker does not answer. A list without the groups that it coordinates is not returned.
        """
        return self._call(list_groups)

    def delete(self, group: str) -> None:
        """Delete a group with its committed offsets; it must have no members.

        Raises:
            KafkaGroupError: The group has members or does not exist, or the user lacks the permission.
        """
        self._call(lambda client, deadline: delete_group(client, group, deadline))

    def describe(self, group: str) -> Group:
        """Return the group's state, members and their partitions.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        return self._call(lambda client, deadline: describe_group(client, group, deadline))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, without offsets of transactions that are still open.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        found = self._call(lambda client, deadline: fetch_committed(client, group, None, deadline, stable=False))
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def lag(
        self, group: str, partitions: Collection[TopicPartition] = (), *, topics: Collection[str] = ()
    ) -> list[PartitionLag]:
        """Return the group's lag in each partition for which it has committed offsets or that a member owns.

        Args:
            group: The group id.
            partitions: Further partitions to include.
            topics: Topics of which to include all partitions, for example one that the group has not read yet.

        Raises:
            UnknownTopicError: One of `topics` does not exist.
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        committed = self.committed(group)
        owners = {tp: member.name for member in self.describe(group).members for tp in member.partitions}
        with closing(Cluster(self._settings)) as cluster:
            of_topics = cluster.partitions(TopicSelection(topics=tuple(topics))) if topics else ()
            shown = sorted({*committed, *owners, *partitions, *of_topics})
            ends = cluster.latest(shown, read_committed=False)
        return [PartitionLag(tp.topic, tp.partition, committed.get(tp), ends[tp], owners.get(tp)) for tp in shown]

    def rewind(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set a group's committed offsets; the group must have no members.

        Raises:
            KafkaGroupError: The group has members, or the user lacks the permission.
        """
        nobody = SlotCredentials(group, -1, "", None)
        try:
            self._call(lambda client, deadline: commit_offsets(client, nobody, offsets, deadline))
        except FencedError as error:
            raise FencedError(
                f"Group {group} has members, which would overwrite the offsets: stop them, then rewind the group.",
                code=error.code,
            ) from None

    def _call(self, work: Callable[[KafkaClient, Deadline], Coroutine[Any, Any, _T]]) -> _T:
        with closing(KafkaClient(self._settings)) as client:
            return client.run(work(client, Deadline(_TIMEOUT)))
