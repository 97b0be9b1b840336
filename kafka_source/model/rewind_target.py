"""Targets of a rewind: a group's new position, as users write it, and its offsets. Pure.

A target names the necessary lookups (`timestamps`, `other_group`); `resolve` computes offsets from the target and the
results of the lookups. The caller does the I/O, so that a stopped and a running group get the same offsets.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Literal, TypeAlias

from assignors.model import TopicPartition
from kafka_source.errors import OptionError

MAX_LONG = 2**63 - 1
"""The maximum of an offset and of a time."""

Word = Literal["earliest", "latest", "current"]
"""`earliest`: the log's first offset. `latest`: the offset after the last record. `current`: the committed offset, or
`latest` if there is none.
"""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in ms since 1970; the end of a partition without such a record."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ByDuration:
    """The first record in the last `ms` milliseconds (`--by-duration` of Kafka's tool)."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """One offset in all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; the offsets of other partitions do not change."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Shift:
    """The committed offset plus a number, which may be negative."""

    by: int


@dataclass(frozen=True, slots=True)
class FromGroup:
    """The committed offsets of another group; where that group has no offset, the offset does not change."""

    group: str


Target: TypeAlias = Word | AtTime | ByDuration | AtOffset | AtOffsets | Shift | FromGroup


@dataclass(frozen=True, slots=True)
class Known:
    """The offsets that were looked up for the partitions.

    Attributes:
        earliest: The first offset of each partition's log.
        latest: The offset after the last record of each partition.
        committed: The committed offsets of the group.
        at_time: The offset of the first record at or after each timestamp of `timestamps`; None: no such record.
        other: The committed offsets of `other_group`.
    """

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    other: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    """The new position of a group in one partition.

    Attributes:
        topic: The topic.
        partition: The partition number.
        committed: The previously committed offset; None: there is none.
        offset: The offset to commit: the nearest offset to `asked` that the log has, as in Kafka's tool.
        asked: The target's offset.
    """

    topic: str
    partition: int
    committed: int | None
    offset: int
    asked: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic, self.partition)


def timestamps(target: Target, partitions: Iterable[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
    """Return the timestamps whose offsets have to be looked up, in ms since 1970; empty for most targets."""
    if isinstance(target, ByDuration):
        return dict.fromkeys(partitions, max(0, now_ms - target.milliseconds))
    return dict.fromkeys(partitions, target.timestamp_ms) if isinstance(target, AtTime) else {}


def other_group(target: Target) -> str | None:
    """Return the group whose committed offsets have to be looked up; None: no group."""
    return target.group if isinstance(target, FromGroup) else None


def resolve(target: Target, partitions: Iterable[TopicPartition], known: Known) -> tuple[Move, ...]:
    """Return the new positions of a group, sorted, without partitions that the target does not change.

    Args:
        target: The group's new position.
        partitions: The partitions to move. With `AtOffsets` and `FromGroup` a partition without an offset stays.
        known: The offsets that were looked up.

    Raises:
        OptionError: A partition has no committed offset that could be shifted.
    """
    moves = []
    for tp in sorted(set(partitions)):
        asked = _asked(target, tp, known)
        if asked is not None:
            nearest = min(max(asked, known.earliest[tp]), known.latest[tp])
            moves.append(Move(tp.topic, tp.partition, known.committed.get(tp), nearest, asked))
    return tuple(moves)


def _asked(target: Target, tp: TopicPartition, known: Known) -> int | None:
    if isinstance(target, str):
        if target == "earliest":
            return known.earliest[tp]
        return known.latest[tp] if target == "latest" else known.committed.get(tp, known.latest[tp])
    if isinstance(target, AtTime | ByDuration):
        found = known.at_time.get(tp)
        return known.latest[tp] if found is None else found
    if isinstance(target, AtOffset):
        return target.offset
    if isinstance(target, AtOffsets):
        return target.offsets.get(tp)
    if isinstance(target, FromGroup):
        return known.other.get(tp)
    committed = known.committed.get(tp)
    if committed is None:
        raise OptionError(
            "shift-by", target.by, f"partitions with a committed offset, and {tp.topic}-{tp.partition} has none"
        )
    return committed + target.by


# ---- targets as text

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = r"\d+(?:\.\d+)?"
_PARTS = re.compile(rf"({_NUMBER})(ms|[wdhms])")
# Before the T, M means months in ISO 8601, and a month has no fixed length.
_ISO = re.compile(rf"p(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:t(?=\d)(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?)?")
_WORDS: tuple[Word, ...] = ("earliest", "latest", "current")


def parse_position(text: str) -> Word | AtTime | AtOffset:
    """Return the target of `earliest`, `latest`, `current`, `@OFFSET` or a time.

    Raises:
        OptionError: The text has none of these forms.
    """
    for word in _WORDS:
        if text == word:
            return word
    if text.startswith("@") and text[1:].isdecimal() and int(text[1:]) <= MAX_LONG:
        return AtOffset(int(text[1:]))
    return AtTime(parse_time(text))


def parse_time(text: str) -> int:
    """Return a time in ms since 1970; the text is a number of ms, or a time in ISO 8601 (UTC if it names no zone).

    A time before 1970 is 0, because no record is older, and Kafka has other meanings for negative numbers.

    Raises:
        OptionError: The text is no time.
    """
    if text.isdecimal() and int(text) <= MAX_LONG:
        return int(text)
    # Python 3.10 does not know the zone Z, nor fractions of a second that have neither 3 nor 6 digits.
    plain = re.sub(r"[zZ]$", "+00:00", text.strip())
    plain = re.sub(r"\.(\d+)", lambda found: f".{found[1][:6]:<06}", plain)
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        takes = "a time in ISO 8601 such as 2026-01-31T12:00:00Z (UTC without a zone), or in ms since 1970"
        raise OptionError("time", text, f"earliest, latest, current, @OFFSET, or {takes}") from None
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    return max(0, round(zoned.timestamp() * 1000))


def parse_duration(text: str) -> int:
    """Return a duration in ms: `90s`, `2h30m`, `7d`, or ISO 8601 as Kafka's tool takes it, `P1DT2H`.

    Raises:
        OptionError: The text is no duration.
    """
    plain = text.strip().lower()
    if _ISO.fullmatch(plain):
        plain = plain[1:].replace("t", "", 1)
    parts = _PARTS.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise OptionError("duration", text, "a duration such as 90s, 2h30m or 7d, or in ISO 8601 such as P1DT2H")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
