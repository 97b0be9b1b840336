"""What a query must read, must not read, and may read, as the pages for users say it (docs/reading.md, docs/group.md).

The story of every draw is the same. There are two topics, `t` with two partitions and `u` with one.

1. `first`: six records are in each partition. The query starts, and reads until there is nothing new.
2. `second`: four records come. A batch of them goes as far as the draw's moment; then comes the event.
3. The query reads until there is nothing new. `third`: three records come, and are read.
4. The query restarts. `fourth`: two records come, and are read.

Where the query fails as it must, it starts again as its error says: with `failOnDataLoss=false`, with
`group.on.older.checkpoint=replay`, or when the group has no members any more.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tests.pairs.draws import Draw

Phase = Literal["first", "second", "event", "third", "fourth"]

FIRST, SECOND, EVENT, THIRD, FOURTH = 6, 4, 4, 3, 2
COMMITTED = 2
FIRST_TIMESTAMP = 1000
TIMESTAMP = 1004
# Inside of the batch that goes to the end of `second`, and behind one that `maxOffsetsPerTrigger` cuts.
TARGETS = {"before": 3, "inside": 8, "behind": 10}
BEYOND = 1000
TRUNCATED = 9

T0, T1, T2, U0 = ("t", 0), ("t", 1), ("t", 2), ("u", 0)
JSON_START = {T0: 1, T1: 0, U0: 3}


class Record(NamedTuple):
    """A record of a topic; `life` is 2 in a topic that was created again."""

    topic: str
    life: int
    partition: int
    offset: int
    phase: Phase

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    def __str__(self) -> str:
        again = "'" * (self.life - 1)
        return f"{self.topic}{again}{self.partition}@{self.offset} ({self.phase})"


class Times(NamedTuple):
    """How often a record is read."""

    least: int
    most: int


NEVER, ONCE, MAYBE, ONCE_OR_TWICE = Times(0, 0), Times(1, 1), Times(0, 1), Times(1, 2)


def refused(draw: Draw) -> set[str]:
    """The options of which one is named when the query is refused; empty if it is not."""
    named: set[str] = set()
    if draw.kind == "pinned":
        if draw.commit != "batch":
            named.add("commit")
        if draw.membership == "none":
            named.add("kafka.group.id")
        if draw.membership == "assign":
            named.add("assign")
    elif draw.kind == "batch" and draw.commit in ("batch", "sink"):
        named.add("commit")
    if draw.kind != "pinned" and draw.commit != "none" and draw.membership == "none":
        named.add("commit")
    if draw.is_stream and draw.commit == "none" and draw.membership != "none":
        named.add("commit")
    if draw.commit in ("task", "sink") and draw.membership == "assign":
        named.add("commit")
    if not draw.is_stream and draw.start == "latest":
        named.add("startingOffsets")
    if draw.start == "committed" and draw.membership == "none":
        named.add("startingOffsets")
    return named


def written(draw: Draw) -> list[Record]:
    """All records of the story."""
    records: list[Record] = []

    def write(place: tuple[str, int], phase: Phase, count: int, life: int = 1) -> None:
        topic, partition = place
        first = sum(r.place == place and r.life == life for r in records)
        records.extend(Record(topic, life, partition, first + i, phase) for i in range(count))

    places, life = [T0, T1, U0], 1
    for place in places:
        write(place, "first", FIRST)
        write(place, "second", SECOND)
    if draw.event == "partition added":
        places.append(T2)
        write(T2, "event", EVENT)
    elif draw.event == "topic deleted":
        places = [U0]
    elif draw.event == "topic created again":
        life = 2
        for place in (T0, T1):
            write(place, "event", EVENT, life)
    for phase, count in (("third", THIRD), ("fourth", FOURTH)):
        for place in places:
            write(place, phase, count, life if place[0] == "t" else 1)  # type: ignore[arg-type]
    return records


def start_of(draw: Draw, place: tuple[str, int]) -> int:
    """The offset at which the query starts in a partition that it reads from its first start on."""
    if draw.start == "latest":
        return FIRST
    if draw.start == "json":
        return JSON_START[place]
    if draw.start == "timestamp":
        return TIMESTAMP - FIRST_TIMESTAMP
    return COMMITTED if draw.start == "committed" else 0


def reads_all_again(draw: Draw) -> bool:
    """Whether each batch read of the draw starts where the one before has: its output is that of the last one."""
    return not draw.is_stream and draw.commit == "none"


def expected(draw: Draw, *, event: bool = True) -> dict[Record, Times]:
    """How often each record is in the output; or would be without the event."""
    times: dict[Record, Times] = {}
    for r in written(draw):
        if r.place == T2:
            times[r] = NEVER if draw.membership == "assign" else ONCE
        elif r.life == 2:
            # A stream reads the new topic from its first record. A batch does not know that it is another one.
            times[r] = ONCE if draw.is_stream or draw.start != "json" or r.offset >= JSON_START[r.place] else NEVER
        else:
            times[r] = ONCE if r.offset >= start_of(draw, r.place) else NEVER
    if reads_all_again(draw) and event:
        return {r: _of_last_read(draw, r, before) for r, before in times.items()}
    of_event = {
        "rebalance": _rebalanced,
        "rewind": _rewound,
        "topic deleted": _deleted,
        "topic created again": _deleted,
        "beyond the end": _beyond,
        "retention": _truncated,
    }
    if draw.kind == "batch" and draw.commit == "task" and event:
        # A task commits before its rows are in the output of a job: at most once.
        times = {r: MAYBE if r.phase == "second" and draw.moment == "read" else t for r, t in times.items()}
    change = of_event.get(draw.event) if event else None
    if change is not None:
        times = {r: change(draw, r, before) for r, before in times.items()}
    return _with_other(draw, times) if draw.has_other and event else times


def _with_other(draw: Draw, times: Mapping[Record, Times]) -> dict[Record, Times]:
    """Another query reads again what nobody has committed; with a sink that commits there is nothing of that kind.

    It starts by its options in partitions and topics that its group has not read.
    """
    latest, begin = draw.start == "latest", JSON_START if draw.start == "json" else {}
    skipped = {r for r in times if r.phase == "event" and (latest or r.offset < begin.get(r.place, 0))}
    least = {r: MAYBE if r in skipped else t for r, t in times.items()}
    if draw.commit == "sink":
        return least
    return {r: Times(t.least, 9) if r.phase in ("first", "second", "event") else t for r, t in least.items()}


def _of_last_read(draw: Draw, r: Record, times: Times) -> Times:
    """The records of the last read, where each one reads all again."""
    keeps_group = draw.membership == "none"
    if r.topic == "t" and r.life == 1:
        if draw.event in ("topic deleted", "topic created again"):
            return NEVER
        if draw.event == "rewind" and not keeps_group:
            return ONCE if r.offset >= TARGETS[draw.target] or r.place == T2 else NEVER
        if r.place == T0 and draw.event == "retention":
            return times if r.offset >= TRUNCATED else NEVER
        if r.place == T0 and draw.event == "beyond the end" and not keeps_group:
            return MAYBE
    return times


def _has_checkpoint(draw: Draw) -> bool:
    """Whether the checkpoint has positions when the event comes."""
    return draw.is_stream and (draw.moment != "idle" or draw.start != "latest")


def _rebalanced(draw: Draw, r: Record, times: Times) -> Times:
    """Members commit before they rejoin.

    Without commits a batch reads a partition that it gets from its first record.
    """
    if not draw.is_member or r.phase not in ("first", "second"):
        return times
    if draw.commit == "none":
        return Times(times.least, 9)
    return times


def _rewound(draw: Draw, r: Record, times: Times) -> Times:
    """What was read before, and is behind the new position, is read again; what was not read, and is before it, never.

    A batch that is under way is read up to the new position at least, unless its sink has not committed it.
    """
    if draw.membership == "none" or r.topic != "t" or r.phase not in ("first", "second"):
        return times
    is_again, stopped = r.offset >= TARGETS[draw.target], rewound_while_stopped(draw)
    if r.phase == "first":
        return Times(times.least + 1, times.most + 1) if is_again else times
    is_unread = draw.moment == "idle" and stopped
    if is_again:
        # Whether a batch under way is finished before the rewind depends on who commits. A query that runs reads on.
        return ONCE if is_unread else ONCE_OR_TWICE
    if not draw.is_stream or draw.moment == "idle" or draw.limited:
        return NEVER if draw.is_stream and is_unread else MAYBE
    is_undecided = draw.commit == "sink" and draw.moment in ("planned", "read")
    return NEVER if stopped and is_undecided else times


def rewound_while_stopped(draw: Draw) -> bool:
    """Whether the rewind is that of a stopped group: only streams follow one while they run."""
    return draw.stopped or not draw.is_member or draw.kind != "stream"


def _deleted(draw: Draw, r: Record, times: Times) -> Times:
    """Records of the deleted topic that were not read are gone.

    A query that starts again and has read nothing yet knows no topic, and begins at `latest` in the new one.
    """
    if r.life == 2 and r.phase == "event" and draw.start == "latest" and not _has_checkpoint(draw):
        return MAYBE
    return MAYBE if r.topic == "t" and r.life == 1 and r.phase == "second" else times


def _beyond(draw: Draw, r: Record, times: Times) -> Times:
    """The query continues where its checkpoint is, if it has one, and if the output is not what the group says."""
    if r.place == T0 and r.phase == "second":
        keeps = draw.membership != "none" and draw.commit != "sink"
        return times if keeps and _has_checkpoint(draw) else MAYBE
    return times


def _truncated(draw: Draw, r: Record, times: Times) -> Times:
    return MAYBE if r.place == T0 and r.phase == "second" and r.offset < TRUNCATED else times


def errors(draw: Draw) -> set[str]:
    """The errors with which the query may fail once."""
    loses = ("topic deleted", "topic created again", "beyond the end", "retention")
    if draw.event == "topic deleted":
        # A query that starts wants all topics that it names.
        return {"DataLossError", "UnknownTopicError"} if draw.fail_on_data_loss else {"UnknownTopicError"}
    if draw.event == "partition added" and draw.start == "json" and draw.membership != "assign":
        # The JSON must name all partitions when a query without a position there starts.
        return {"OptionError"} if not draw.is_stream else set()
    if draw.event in loses and draw.fail_on_data_loss:
        return {"DataLossError"}
    if draw.event == "checkpoint put back" and draw.membership != "none" and draw.commit != "none":
        return {"InvalidConfigurationError"}
    if draw.event == "rewind" and draw.commit == "sink" and draw.moment == "read" and rewound_while_stopped(draw):
        # What the batch has published of the rewound topic is taken for late by the replay, which reads none of it.
        return {"FencedError"}
    if draw.event == "rebalance" and draw.membership == "assign" and draw.commit == "batch":
        return {"FencedError", "InvalidConfigurationError"}
    return set()


def must_fail(draw: Draw) -> bool:
    """Whether one of these errors must come."""
    if not draw.is_stream:
        return False
    if draw.event in ("topic deleted", "topic created again"):
        return draw.fail_on_data_loss and _has_checkpoint(draw)
    if draw.event == "beyond the end":
        # Without a group it is the checkpoint that is beyond the end, and Spark has no batch left to run again.
        in_checkpoint = _has_checkpoint(draw) and draw.moment in ("idle", "durable")
        return draw.fail_on_data_loss and (draw.membership != "none" or in_checkpoint)
    if draw.event == "retention":
        return draw.fail_on_data_loss and draw.moment in ("idle", "planned") and not draw.limited
    return False
