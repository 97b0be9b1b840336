"""The offsets of a group without members (`assign`): the driver commits as Java's `assign` does.

The coordinator accepts commits without a member id only while the group has no members.
"""

import logging
import time
from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.commits.offsets import KeptOffsets, ReadPositions
from kafka_source.commits.policy import CommitPolicy
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError, UnknownTopicError
from kafka_source.group.requests import commit_offsets, describe, fetch_entries
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.options import ReadOptions

log = logging.getLogger(__name__)

_COMMIT_SECONDS = 30.0


class WithoutMembers(KeptOffsets):
    """The offsets of a query with `assign` and a group."""

    def __init__(self, options: ReadOptions, policy: CommitPolicy, known: ReadPositions) -> None:
        super().__init__(options, policy, known)
        self._patience = options.coordinator_timeout_ms / 1000
        self._client = cached_client(options.settings, "commit")
        self._has_checked = False

    def finish(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Commit the finished offsets, and repeat older commits before they expire; see `Offsets`.

        Raises:
            InvalidConfigurationError: The group has members when the query starts.
            FencedError: Members have joined the group since the start.
        """
        has_committed = super().finish(finished)
        self._repeat_old()
        return has_committed

    def _repeat_old(self) -> None:
        """Repeat commits that are old, as Java's auto commit does.

        Brokers delete the offsets of an idle partition a few days after the last commit, if the group has no members.
        """
        old = self._known.old()
        if not old:
            return
        try:
            # An offset that another client has set since the last commit stays.
            found = self.committed(sorted(old))
            ours = {tp: offset for tp, offset in old.items() if tp not in found or found[tp].offset == offset}
            if ours:
                self._send(ours)
        except (FencedError, InvalidConfigurationError):
            raise
        except KafkaGroupError as error:
            log.warning("commit group=%s of idle partitions failed, retrying: %s", self._group, error)
            return
        self._known.as_committed(old)

    def _check_has_no_members(self) -> None:
        """Check once that the coordinator accepts commits; raises InvalidConfigurationError."""
        if self._has_checked or not self.keeps:
            return
        found = self._client.run(describe(self._client, self._group, Deadline(self._patience)))
        if found.members:
            raise InvalidConfigurationError(
                f"Group {self._group} has {len(found.members)} members, so a query with assign cannot commit its "
                "offsets. Stop the members, use subscribe to share the partitions with them, or give the query a group "
                "of its own. With group.membership=false kafka.group.id is only a label, as in Spark's own source."
            )
        self._has_checked = True

    def _fetch(self, partitions: list[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, CommitOffset]:
        self._check_has_no_members()
        work = fetch_entries(
            self._client, self._group, partitions, Deadline(self._patience), stable=stable, learns_ids=True
        )
        return self._client.run(work)

    def _compared(self, missing: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        # A rewind, or a commit that this driver does not know, takes precedence.
        return self._not_behind(missing, [tp for tp in missing if not self._known.has_compared(tp)])

    def _send(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._commit(offsets, _COMMIT_SECONDS)
        return offsets

    def _send_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._commit(offsets, self._patience)

    def _commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        no_member, entries = SlotCredentials.without_membership(self._group), self._known.with_notes(offsets)
        work = commit_offsets(self._client, no_member, entries, Deadline(seconds), fail_on_unknown_topic=True)
        try:
            self._client.run(work)
        except UnknownTopicError as error:
            # The offsets of the other topics are committed.
            log.warning("commit group=%s: %s", self._group, error)
        except FencedError as error:
            raise FencedError(
                f"Members have joined group {self._group} while this query reads it with assign: the coordinator "
                "refuses its commit, and the members may read the same records. The query stops, and its last "
                f"micro-batch is not committed. Stop the members, or give this query a group of its own. ({error})",
                code=error.code,
            ) from error
        finally:
            self._late.add(entries, time.monotonic())
