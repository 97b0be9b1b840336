"""The owner of partitions that the user assigns (`assign`) and whose offsets a group keeps: commits without membership.

It is what Java's `KafkaConsumer.assign` with a group id is: the query starts at the group's committed offsets and
commits there, and joins nothing. The coordinator takes such commits only while the group has no members.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError, UnknownTopicError
from kafka_source.group.committed_offsets import commit_offsets, fetch_entries
from kafka_source.group.description import describe_either
from kafka_source.kafka_client import cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.runtime.deadline import Deadline
from kafka_source.source.owner_events import CommitLog, OwnerEvents
from kafka_source.source.partition_owner import OwnedPartitions
from kafka_source.source.positions import Positions, not_below
from kafka_source.source.standalone_owner import Standalone

log = logging.getLogger(__name__)

_COMMIT_SECONDS = 30.0


class StaticPartitions(Standalone):
    """The owner with `assign` and a group: it owns partitions as without a group, and the group keeps their offsets.

    Args:
        options: Of the query; with `assign` and a group.
        cluster: Where to look up which partitions exist.
        subscription: The partitions of `assign`.
        commits: Whether the driver commits offsets. Else nobody does.
        positions: The query's positions; None: it has no checkpoint.
    """

    def __init__(
        self,
        options: ReadOptions,
        cluster: Cluster,
        subscription: TopicSelection,
        *,
        commits: bool,
        positions: Positions | None = None,
    ) -> None:
        if options.group_id is None:
            raise ValueError("the query has no group")
        super().__init__(cluster, subscription)
        self._group = options.group_id
        self._patience = options.coordinator_timeout_ms / 1000
        self._commits = commits
        self._positions = positions or Positions()
        self._client = cached_client(options.settings, "commit")
        self._has_checked = False
        self._commit_log = CommitLog()

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Commit `finished`, and return the partitions of `assign` that exist.

        Raises:
            InvalidConfigurationError: The group has members when the query starts.
            FencedError: The group has got members since then.
        """
        self._check_has_no_members()
        self._commit_finished(finished)
        self._repeat_old()
        return super().commit_and_rejoin(finished)

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit what the group does not have yet; raises as `commit_and_rejoin`."""
        self._commit_finished(finished)

    @property
    def keeps_positions(self) -> bool:
        """Whether this driver commits offsets."""
        return self._commits

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit the starting offsets, so that a query which ends before its first batch starts there again."""
        if self._commits and starts:
            self._commit(starts, self._patience)

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back to these; see `PartitionOwner.rewind_committed`."""
        lowered = not_below(starts, self.committed(sorted(starts))) if self._commits else {}
        if lowered:
            self._commit(lowered, self._patience)

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return what the group has committed; open transactions over it are waited for."""
        return self._client.run(fetch_entries(self._client, self._group, partitions, Deadline(self._patience)))

    def take_events(self) -> OwnerEvents:
        """Return the driver's commits since the last call."""
        return self._commit_log.take(())

    def _check_has_no_members(self) -> None:
        if self._has_checked or not self._commits:
            return
        found = self._client.run(describe_either(self._client, self._group, Deadline(self._patience)))
        if found.members:
            raise InvalidConfigurationError(
                f"Group {self._group} has {len(found.members)} members, so a query with assign cannot commit its "
                "offsets. Stop them, use subscribe to share the partitions with them, or give this query a group of "
                "its own. With group.membership=false kafka.group.id is only a label, as in Spark's own source."
            )
        self._has_checked = True

    def _commit_finished(self, finished: Mapping[TopicPartition, int]) -> None:
        missing = self._positions.missing(finished)
        if not self._commits or not missing:
            return
        try:
            # A rewind counts, or a commit that this driver does not know.
            missing = self._positions.not_behind(missing, self._unknown_entries(missing))
            if not missing:
                return
            started = time.monotonic()
            self._commit(missing, _COMMIT_SECONDS)
            self._commit_log.committed(time.monotonic() - started)
        except (FencedError, InvalidConfigurationError):
            raise
        except KafkaGroupError as error:
            self._commit_log.failed()
            log.warning("commit group=%s failed, the next micro-batch tries again: %s", self._group, error)

    def _repeat_old(self) -> None:
        """Commit again what nobody has committed for long, as Java's auto commit does.

        A group without members loses the offsets of an idle partition in a few days, while those of the others stay.
        """
        old = self._positions.old() if self._commits else {}
        if not old:
            return
        try:
            # What somebody has set since then is theirs.
            found = self.committed(sorted(old))
            ours = {tp: offset for tp, offset in old.items() if tp not in found or found[tp].offset == offset}
            if ours:
                self._commit(ours, _COMMIT_SECONDS)
        except (FencedError, InvalidConfigurationError):
            raise
        except KafkaGroupError as error:
            log.warning("commit group=%s of idle partitions failed, it is tried again: %s", self._group, error)
            return
        self._positions.as_committed(old)

    def _unknown_entries(self, missing: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        unknown = [tp for tp in self._positions.comparable(missing) if not self._positions.has_compared(tp)]
        return self.committed(unknown) if unknown else {}

    def _commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        nobody = SlotCredentials.without_membership(self._group)
        work = commit_offsets(
            self._client, nobody, self._positions.with_notes(offsets), Deadline(seconds), fail_on_unknown_topic=True
        )
        try:
            self._client.run(work)
        except UnknownTopicError as error:
            # The offsets of the other topics are committed.
            log.warning("commit group=%s: %s", self._group, error)
        except FencedError as error:
            raise FencedError(
                f"Group {self._group} has members now, and this query reads it with assign: the coordinator "
                "refuses its commit, and the members may read the same records. The query stops, and its last "
                f"micro-batch is not committed. Stop the members, or give this query a group of its own. ({error})",
                code=error.code,
            ) from error
        self._positions.committed(offsets)
