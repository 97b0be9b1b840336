"""Keep the partitions of a query in step by their records' timestamps (`maxTimestampSkew`). No I/O of its own.

A partition is behind if it has records to read. T is the lowest timestamp among the next records of the partitions that
are behind. In each partition the window ends before the first record later than T + skew. A window is used until a plan
reaches all its ends. If each partition's records are in order of time, T never decreases.

The next record of a partition is fetched at the position, because ListOffsets may return a control record, with the
time of its transaction's end. One ListOffsets request to each leader returns each log's first record that is later than
T + skew. If the position is already past this record, the window's end is searched by fetches of a few records. The
step to the next fetch grows at most fourfold. Records between two fetches are assumed to be in order.

If the next records of a partition have no timestamps that count, a lookup fetches a limited number of them. The window
of this partition ends after these records, and other partitions do not wait for it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import NamedTuple, Protocol

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import TimeAlignment
from kafka_source.model.partition_runs import format_partitions

log = logging.getLogger(__name__)

FUTURE_MS = 3_600_000
"""A timestamp ahead of the driver's clock by more than this does not count; its record is read in offset order."""

# The number of offsets in a request for unknown records.
_FEW = 16
_WIDER = 16
# The number of records whose timestamps do not count, in all partitions, after which their lookup ends.
_MAX_UNCOUNTED = 65_536
_SEARCH_STEPS = 8
_FIRST_STEP = 1024
_STALLED_TRIGGERS = 3


class Record(NamedTuple):
    """A record's offset, and its timestamp in milliseconds since 1970."""

    offset: int
    timestamp: int


class LogTimes(Protocol):
    """Looks up the timestamps of records."""

    def records(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, Sequence[Record]]:
        """Return the records that a query reads from these ranges; a partition without records is left out."""
        ...

    def first_later(self, partitions: Collection[TopicPartition], timestamp: int) -> Mapping[TopicPartition, Record]:
        """Return, for each partition, the log's first record with a later timestamp.

        The record may be a control record, or aborted. A partition without such a record is left out.
        """
        ...


class Stretch(NamedTuple):
    """A range of offsets, and its records whose timestamps count."""

    start: int
    end: int
    records: tuple[Record, ...] = ()

    def after(self, position: int) -> "Stretch":
        """Return the stretch from a position on."""
        if not self.start <= position <= self.end:
            return Stretch(position, position)
        return Stretch(position, self.end, tuple(dropwhile(lambda one: one.offset < position, self.records)))


def next_records(
    times: LogTimes,
    known: Mapping[TopicPartition, Stretch],
    available: Mapping[TopicPartition, int],
    counted: Callable[[TopicPartition, Sequence[Record]], tuple[Record, ...]] = lambda _, records: tuple(records),
) -> dict[TopicPartition, Stretch]:
    """Return a stretch for each partition, with the partition's next record if there is one.

    If many next records do not count, their stretches end after them. Stretches without records have no limit.

    Args:
        times: Looks up unknown records.
        known: The known stretches, from each partition's position on.
        available: The end of each partition.
        counted: Returns the records whose timestamps count.
    """
    found, width, uncounted, finished = dict(known), _FEW, 0, set[TopicPartition]()
    while asked := {
        tp: (stretch.end, min(available[tp], stretch.end + width))
        for tp, stretch in found.items()
        if not stretch.records and stretch.end < available[tp] and tp not in finished
    }:
        answers = times.records(asked)
        for tp, (_, end) in asked.items():
            found[tp] = Stretch(known[tp].start, end, counted(tp, answers.get(tp, ())))
        uncounted += sum(len(records) for tp, records in answers.items() if not found[tp].records)
        if uncounted >= _MAX_UNCOUNTED:
            # A longer lookup would delay the plan, and fill the driver's memory.
            finished |= answers.keys()
        width *= _WIDER
    return found


@dataclass(frozen=True, slots=True)
class _Window:
    """The ends up to which partitions may be read until the next lookup.

    Attributes:
        ends: For each partition that is behind, its position and the end up to which the partition may be read.
        time: The timestamp T (see the module); None: no partition holds the others back.
        holder: The partition whose next record has the timestamp T.
        known: The known records at the positions.
        later: The record at which a partition's window ends, if known.
    """

    ends: Mapping[TopicPartition, tuple[int, int]]
    time: int | None = None
    holder: TopicPartition | None = None
    known: Mapping[TopicPartition, Stretch] = field(default_factory=dict)
    later: Mapping[TopicPartition, Record] = field(default_factory=dict)

    def has(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Return whether all these positions are within the window."""
        return all(tp in self.ends and self.ends[tp][0] <= start <= self.ends[tp][1] for tp, start in starts.items())

    def bounds(
        self, partitions: Iterable[TopicPartition], available: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the allowed ends of these partitions."""
        return {tp: min(available[tp], self.ends[tp][1]) for tp in partitions}


class Alignment:
    """Chooses the ends of one query's micro-batches, so that no partition is ahead of another by more than the skew.

    Args:
        skew_ms: `maxTimestampSkew`.
        times: Looks up unknown stretches.
        clock: The time in milliseconds since 1970.
    """

    def __init__(self, skew_ms: int, times: LogTimes, clock: Callable[[], int]) -> None:
        self._skew, self._times, self._clock = skew_ms, times, clock
        self._window: _Window | None = None
        self._figures: TimeAlignment | None = None
        # The last known timestamp of each next record, for partitions that lose their leader.
        self._bounds: dict[TopicPartition, int] = {}
        # The partitions that the last micro-batch has read to the end, and the time of its plan.
        self._read_to_end: Collection[TopicPartition] = ()
        self._planned_at = 0
        self._steps: dict[TopicPartition, int] = {}
        # The position at which a partition holds the others back, and the number of triggers without a change of this
        # position.
        self._stalled: tuple[TopicPartition, int, int] | None = None
        self._left_out: dict[TopicPartition, int] = {}
        self._named: set[TopicPartition] = set()
        self._not_waited_for: set[TopicPartition] = set()

    @property
    def figures(self) -> TimeAlignment | None:
        """T and the skew of the last micro-batch; None: the micro-batch reads all partitions to their ends."""
        return self._figures

    @property
    def left_out(self) -> Collection[TopicPartition]:
        """The partitions that no longer hold others back, because their position did not change in several triggers."""
        return self._left_out.keys()

    def ends(
        self,
        starts: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
        without_leader: Collection[TopicPartition],
        admit: Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]],
    ) -> dict[TopicPartition, int]:
        """Return the ends of the next micro-batch's partitions.

        Args:
            starts: The first offset to read of each partition.
            available: The end up to which each partition may be read in this run.
            without_leader: The partitions without a leader, which cannot be read.
            admit: Returns the ends that the limits allow, given upper bounds for some partitions.
        """
        behind = {tp: start for tp, start in starts.items() if available[tp] > start}
        ends, now = admit({}), self._clock()
        self._figures = None
        # Records that are written after a plan are assumed not to be older than the plan.
        self._bounds |= {tp: self._planned_at for tp in without_leader if tp in self._read_to_end}
        if behind and ends == dict(starts):
            # The query waits for more records, or a limit is 0.
            return ends
        if (behind and without_leader) or any(ends[tp] < available[tp] for tp in behind):
            ends = self._aligned(behind, available, without_leader, admit, sum(ends.values()), now)
        left = {tp for tp in behind if ends[tp] < available[tp]}
        self._read_to_end, self._planned_at = starts.keys() - left - set(without_leader), now
        return ends

    def _aligned(
        self,
        behind: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
        without_leader: Collection[TopicPartition],
        admit: Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]],
        admitted: int,
        now: int,
    ) -> dict[TopicPartition, int]:
        """Return the ends within a window; `admitted`: the number of offsets that the limits alone admit."""
        window, ends = self._window, None
        if window is not None and window.has(behind):
            bounds = window.bounds(behind, available)
            ends = admit(bounds)
            is_used_up = all(ends[tp] >= bounds[tp] for tp in behind)
            # Shares are rounded down, each by one offset at most.
            if is_used_up and (admitted - sum(ends.values()) > len(behind) or bounds == behind):
                # The limits leave room beyond the window.
                ends = None
        is_new = window is None or ends is None
        if window is None or ends is None:
            self._window = window = self._look_up(behind, available, without_leader, now)
            ends = admit(window.bounds(behind, available))
        self._figures = _figures(window, behind, ends, available, looked_up=is_new)
        self._note_progress(window.holder, behind, ends)
        return ends

    def _look_up(
        self,
        behind: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
        without_leader: Collection[TopicPartition],
        now: int,
    ) -> _Window:
        known = self._next_records(behind, available, now + FUTURE_MS)
        self._left_out = {tp: at for tp, at in self._left_out.items() if behind.get(tp) == at}
        times = {tp: stretch.records[0].timestamp for tp, stretch in known.items() if stretch.records}
        self._bounds |= times
        times = {tp: time for tp, time in times.items() if tp not in self._left_out}
        times |= {tp: self._bounds[tp] for tp in without_leader if tp in self._bounds}
        if new := set(without_leader) - self._bounds.keys() - self._not_waited_for:
            self._not_waited_for |= new
            log.warning(
                "maxTimestampSkew does not wait for %s, which no broker leads: this query has seen no timestamp in "
                "these partitions. A watermark may drop their records",
                format_partitions(new),
            )
        ends = {tp: available[tp] if stretch.records else stretch.end for tp, stretch in known.items()}
        if not times:
            return _Window({tp: (start, ends[tp]) for tp, start in behind.items()}, known=known)
        holder = min(times, key=lambda tp: (times[tp], tp))
        until = times[holder] + self._skew
        later, unknown = {}, []
        for tp, stretch in known.items():
            if first := _first_later(stretch.records, until):
                ends[tp], later[tp] = first.offset, first
            elif stretch.records:
                unknown.append(tp)
        answers = self._times.first_later(unknown, until) if unknown else {}
        to_search = {}
        for tp in unknown:
            if (found := answers.get(tp)) is None or found.offset >= available[tp]:
                continue
            if found.offset >= known[tp].end:
                ends[tp], later[tp] = found.offset, found
            else:
                to_search[tp] = known[tp].end
        searched, found_later = self._search(to_search, available, until, now + FUTURE_MS)
        ends |= searched
        ranges = {tp: (start, ends[tp]) for tp, start in behind.items()}
        return _Window(ranges, times[holder], holder, known, later | found_later)

    def _next_records(
        self, behind: Mapping[TopicPartition, int], available: Mapping[TopicPartition, int], latest_ms: int
    ) -> dict[TopicPartition, Stretch]:
        """Return a stretch from each position, with the next record whose timestamp counts, if there is one."""
        known = {} if self._window is None else self._window.known
        before = {tp: known.get(tp, Stretch(start, start)).after(start) for tp, start in behind.items()}
        return next_records(self._times, before, available, lambda tp, records: self._counted(tp, records, latest_ms))

    def _counted(self, tp: TopicPartition, records: Sequence[Record], latest_ms: int) -> tuple[Record, ...]:
        """Return the records that have a timestamp and are not from the future."""
        counted = tuple(one for one in records if 0 <= one.timestamp <= latest_ms)
        if len(counted) < len(records) and tp not in self._named:
            self._named.add(tp)
            first = next(one for one in records if one not in counted)
            log.warning(
                "%s has records that maxTimestampSkew does not count: the timestamp at offset %d is missing, or more "
                "than 1 h after this clock (%d ms). A watermark follows such records; filter them before the watermark",
                f"{tp.topic}-{tp.partition}",
                first.offset,
                first.timestamp,
            )
        return counted

    def _search(
        self, lows: Mapping[TopicPartition, int], available: Mapping[TopicPartition, int], until: int, latest_ms: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Record]]:
        """Return ends before the first record later than `until`; records are assumed to be in order of time."""
        found, later = dict(lows), {}
        highs = {tp: available[tp] for tp in lows}
        steps = {tp: self._steps.get(tp, _FIRST_STEP) for tp in lows}
        for _ in range(_SEARCH_STEPS):
            asked = {}
            for tp, low in found.items():
                if highs[tp] - low > (0 if highs[tp] == available[tp] else max(_FEW, (low - lows[tp]) // 8)):
                    at = low + steps[tp]
                    if at >= highs[tp]:
                        at = max(low, highs[tp] - _FEW) if highs[tp] == available[tp] else (low + highs[tp]) // 2
                    asked[tp] = (at, min(at + _FEW, highs[tp]))
            if not asked:
                break
            answers = self._times.records(asked)
            for tp, (at, end) in asked.items():
                records = self._counted(tp, answers.get(tp, ()), latest_ms)
                first = _first_later(records, until)
                if first is not None and first == records[0]:
                    highs[tp], steps[tp] = at, max(1, (at - found[tp]) // 2)
                elif first is not None:
                    found[tp] = highs[tp] = first.offset
                    later[tp] = first
                elif records:
                    found[tp], steps[tp] = end, steps[tp] * 4
                else:
                    steps[tp] = max(1, steps[tp] // 2)
        self._steps |= {tp: max(_FEW, end - lows[tp]) for tp, end in found.items()}
        return found, later

    def _note_progress(
        self, holder: TopicPartition | None, behind: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Leave out a partition that has a leader and holds the others back, but is not read."""
        if holder is None or holder not in behind or ends[holder] > behind[holder]:
            self._stalled = None
            return
        at = behind[holder]
        times = 1 if self._stalled is None or self._stalled[:2] != (holder, at) else self._stalled[2] + 1
        self._stalled = (holder, at, times)
        if times >= _STALLED_TRIGGERS:
            log.warning(
                "%s has held the other partitions back for %d triggers without moving from offset %d: "
                "maxTimestampSkew leaves it out until it moves",
                format_partitions([holder]),
                times,
                at,
            )
            self._left_out[holder], self._window = at, None


def _first_later(records: Iterable[Record], until: int) -> Record | None:
    return next((one for one in records if one.timestamp > until), None)


def _figures(
    window: _Window,
    behind: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    available: Mapping[TopicPartition, int],
    *,
    looked_up: bool,
) -> TimeAlignment | None:
    if window.time is None or window.holder is None:
        return None
    before, after = [], []
    for tp in behind:
        stretch = window.known.get(tp, Stretch(0, 0))
        if looked_up and stretch.records:
            before.append(stretch.records[0].timestamp)
        if ends[tp] >= available[tp]:
            continue
        if records := stretch.after(ends[tp]).records:
            after.append(records[0].timestamp)
        elif (later := window.later.get(tp)) is not None and later.offset == ends[tp]:
            after.append(later.timestamp)
    return TimeAlignment(
        window.time,
        window.holder,
        max(before) - min(before) if before else None,
        max(after) - min(after) if after else None,
    )
