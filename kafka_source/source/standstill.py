"""How a query follows the halts of its group (`pause`, `stop`, `resume`): where it stops, and when it leaves the group.

`Standstill` looks the halt up at every trigger, and keeps the state that the progress shows.

A halt has a boundary for each partition. The query that owns the partition stops at the boundary and stays a member. A
stopped query leaves when the group has committed every boundary, so that no partition moves while others are read.
"""

import logging
import time
from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.commits.halts import IDLE_SECONDS, fetch_newest_halt, write_obeyed
from kafka_source.commits.offsets import Offsets
from kafka_source.errors import AuthenticationError, KafkaGroupError
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.halt import Halt, HaltKind, while_it_holds
from kafka_source.options import ReadOptions

log = logging.getLogger(__name__)

# The longest wait for the halts' coordinator after the first trigger. After this time the last known halt counts.
_LOOK_SECONDS = 5.0


def limit(
    halt: Halt | None, starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the ends up to which partitions may be read, which are at most their boundaries.

    Args:
        halt: The halt of the group; None: there is none.
        starts: The next offset to read of each partition.
        latest: The latest offset of some of these partitions.
    """
    if halt is None:
        return dict(latest)
    return {tp: min(to, max(starts[tp], halt.boundaries.get(tp, 0))) for tp, to in latest.items()}


def has_reached(halt: Halt, positions: Mapping[TopicPartition, int]) -> bool:
    """Return whether all of these partitions are at their boundaries."""
    return all(at >= halt.boundaries.get(tp, 0) for tp, at in positions.items())


def is_at_rest(halt: Halt, positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> bool:
    """Return whether a stopped group no longer needs this query as a member.

    Args:
        halt: The halt that stops the group.
        positions: The next offset to read of each partition of the query.
        committed: The group's offsets of these partitions and of the partitions with boundaries.
    """
    if not has_reached(halt, positions):
        return False
    # The records before a position have to be committed; otherwise they would be read again after the query has left.
    return _are_committed(positions, committed) and all(
        committed.get(tp, -1) >= boundary for tp, boundary in halt.boundaries.items()
    )


def _are_committed(positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> bool:
    return all(committed.get(tp, at) >= at for tp, at in positions.items())


class Standstill:
    """The effect of a group's halts on the triggers of one query.

    Args:
        options: The query's options; without a group there are no halts.
        offsets: The offsets of the query's group.
    """

    def __init__(self, options: ReadOptions, offsets: Offsets) -> None:
        self._offsets = offsets
        self._group = options.group_id if options.in_group else None
        self._client = None if self._group is None else cached_client(options.settings, "commit")
        self._seconds = options.coordinator_timeout_ms / 1000
        self._has_looked = self._is_forbidden = False
        self._newest: Halt | None = None
        # The halt that the progress shows, and the halt that it has to show: a pause immediately, a stop when the query
        # is at rest.
        self._shown: Halt | None = None
        self._due: Halt | None = None
        self._wrote_idle_at = float("-inf")
        # The last report: the number of a halt, and the members that obey it.
        self._obeyed: tuple[int, Mapping[TopicPartition, str]] | None = None

    def look(self) -> None:
        """Look up the group's newest halt.

        Raises:
            KafkaGroupError: The first lookup fails. If a later lookup fails, the known halt stays.
        """
        if self._group is None or self._client is None or self._is_forbidden:
            return
        seconds = min(_LOOK_SECONDS, self._seconds) if self._has_looked else self._seconds
        try:
            found = self._client.run(fetch_newest_halt(self._client, self._group, Deadline(seconds)))
        except KafkaGroupError as error:
            if self._has_looked:
                log.warning(
                    "group=%s: this query does not know whether the group has been paused or stopped: %s",
                    self._group,
                    error,
                )
                return
            if not isinstance(error, AuthenticationError):
                raise
            log.info("group=%s: this query cannot be paused or stopped from outside: %s", self._group, error)
            self._is_forbidden = True
            return
        self._has_looked = True
        before, self._newest = self._newest, found
        if found is not None and found != before and (before is not None or self.is_halted):
            log.warning("group=%s %s", self._group, found)

    @property
    def is_halted(self) -> bool:
        """Whether the group is paused or stopped."""
        return self._halt is not None

    @property
    def _halt(self) -> Halt | None:
        return while_it_holds(self._newest)

    @property
    def _stop(self) -> Halt | None:
        return self._halt if self._halt is not None and self._halt.kind is HaltKind.STOP else None

    def keeps_out(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether a starting query stays out of its group, because the group is stopped.

        Args:
            ends: The offsets of the query's checkpoint; the last batch of a killed query may not be committed yet.
        """
        if not self._is_at_rest(ends):
            return False
        # The offset in the checkpoint may show the halt already.
        self._shown = self._due = self._halt
        now = time.monotonic()
        if ends and now >= self._wrote_idle_at + IDLE_SECONDS:
            self._wrote_idle_at = now
            self._write_obeyed({min(ends): ""})
        return True

    def obey(self, positions: Mapping[TopicPartition, int], members: Mapping[TopicPartition, str]) -> None:
        """If all records before the positions are committed, report to the commands that this query obeys the halt.

        Args:
            positions: The next offset to read of each partition of the query.
            members: The ids of the members that own the query's partitions.
        """
        halt = self._halt
        if halt is None or not members or self._obeyed == (halt.number, members):
            return
        try:
            committed = self._offsets.of_group(positions)
        except KafkaGroupError as error:
            log.info("group=%s: this query does not know whether its last batch is committed: %s", self._group, error)
            return
        if _are_committed(positions, committed) and self._write_obeyed(members):
            self._obeyed = halt.number, dict(members)

    def limit(
        self, starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the ends up to which partitions may be read; see the function `limit`."""
        return limit(self._halt, starts, latest)

    def has_news(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Return whether an empty micro-batch is due, because the query's progress has to show a change.

        Args:
            positions: The next offset to read of each partition of the query.
        """
        is_shown = self._is_at_rest(positions) if self._stop is not None else self.is_halted
        self._due = self._halt if is_shown else None
        return self._due != self._shown

    def note_planned(self) -> None:
        """Record that the progress of a planned micro-batch shows the current state."""
        self._shown = self._due

    @property
    def shown(self) -> Halt | None:
        """The halt that the query's progress shows; None: the query reads."""
        return self._shown

    @property
    def has_stopped(self) -> bool:
        """Whether the query is at rest and its progress shows the stop, so that the query leaves the group."""
        return self._stop is not None and self._stop == self._due == self._shown

    def ends(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Return whether the group is stopped and the query has read up to the boundaries, committed or not."""
        return self._stop is not None and has_reached(self._stop, positions)

    def _is_at_rest(self, positions: Mapping[TopicPartition, int]) -> bool:
        stop = self._stop
        if stop is None or not has_reached(stop, positions):
            return False
        return is_at_rest(stop, positions, self._offsets.of_group({*stop.boundaries, *positions}))

    def _write_obeyed(self, members: Mapping[TopicPartition, str]) -> bool:
        """Report that these members obey; return False if another attempt may succeed."""
        if self._group is None or self._client is None or self._halt is None:
            return False
        at = round(time.time() * 1000)
        try:
            self._client.run(write_obeyed(self._client, self._group, self._halt, members, at, Deadline(_LOOK_SECONDS)))
        except KafkaGroupError as error:
            log.info("group=%s: the commands cannot see that this query obeys the halt: %s", self._group, error)
            return isinstance(error, AuthenticationError)
        return True
