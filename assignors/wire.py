"""The consumer protocol's bytes: subscriptions, assignments, and the sticky assignors' user data.

Schemas: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json (v0 to v3, all non-flexible) of Apache
Kafka, `StickyAssignor` (user data V0 and V1) and `CooperativeStickyAssignor` (user data V0). Big endian throughout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from assignors.model import NO_GENERATION, Assignment, Subscription, TopicPartition, TopicPartitions

NEWEST_VERSION = 3
"""The newest version we write; a newer one is read as this, since fields are only ever appended."""


class WireFormatError(ValueError):
    """Bytes that are not what they should be; says what was read and where."""


class StickyUserData(NamedTuple):
    """What a `sticky` member last got; generation -1: not said (V0)."""

    partitions: Sequence[TopicPartition]
    generation: int


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """Subscription to bytes, topics and owned partitions sorted as the Java client does; older versions hold less."""
    _check_version("subscription", version)
    out = [_I16.pack(version), _I32.pack(len(subscription.topics))]
    out += [_string(topic) for topic in sorted(subscription.topics)]
    out.append(_nullable_bytes(subscription.user_data))
    if version >= 1:
        _append_partitions(out, sorted(subscription.owned))
    if version >= 2:
        out.append(_I32.pack(subscription.generation))
    if version >= 3:
        out.append(_NULL_STRING if subscription.rack is None else _string(subscription.rack))
    return b"".join(out)


def decode_subscription(data: bytes) -> Subscription:
    """Bytes of any version to a subscription; an empty rack reads as none.

    Raises:
        WireFormatError: The bytes are cut short, or hold what the schema forbids.
    """
    reader = _Reader("subscription", data)
    version = reader.version()
    topics = reader.strings()
    user_data = reader.nullable_bytes()
    owned: Sequence[TopicPartition] = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, rack or None)


def encode_assignment(assignment: Assignment, version: int = NEWEST_VERSION) -> bytes:
    """Assignment to bytes, topics in the order in which they first appear."""
    _check_version("assignment", version)
    out = [_I16.pack(version)]
    _append_partitions(out, assignment.partitions)
    out.append(_nullable_bytes(assignment.user_data))
    return b"".join(out)


def decode_assignment(data: bytes) -> Assignment:
    """Bytes of any version to an assignment; no bytes at all (a member without an assignment) read as an empty one.

    Raises:
        WireFormatError: The bytes are cut short, or hold what the schema forbids.
    """
    if not data:
        return Assignment(())
    reader = _Reader("assignment", data)
    reader.version()
    return Assignment(reader.partitions(), reader.nullable_bytes())


def encode_sticky_user_data(partitions: Iterable[TopicPartition], generation: int | None) -> bytes:
    """`sticky` user data: V1, or V0 (no generation) if `generation` is None."""
    out: list[bytes] = []
    _append_partitions(out, partitions)
    if generation is not None:
        out.append(_I32.pack(generation))
    return b"".join(out)


def decode_sticky_user_data(data: bytes | None) -> StickyUserData:
    """`sticky` user data, V1 if it reads as such, else V0; what is neither holds no claim, as in Java."""
    if not data:
        return StickyUserData((), NO_GENERATION)
    try:
        reader = _Reader("sticky user data", data)
        partitions = reader.partitions()
        return StickyUserData(partitions, reader.int32() if reader.left() >= 4 else NO_GENERATION)
    except WireFormatError:
        return StickyUserData((), NO_GENERATION)


def encode_cooperative_user_data(generation: int) -> bytes:
    """`cooperative-sticky` user data: the generation alone."""
    return _I32.pack(generation)


def decode_cooperative_user_data(data: bytes | None) -> int:
    """The generation in `cooperative-sticky` user data; -1 where there is none."""
    return NO_GENERATION if data is None or len(data) < 4 else int(_I32.unpack_from(data)[0])


_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_NULL_STRING = _I16.pack(-1)
_MAX_STRING = 0x7FFF


def _check_version(what: str, version: int) -> None:
    if not 0 <= version <= NEWEST_VERSION:
        raise ValueError(f"cannot write a {what} of version {version}: 0 to {NEWEST_VERSION} are known")


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > _MAX_STRING:
        raise ValueError(f"a string of {len(raw)} bytes does not fit Kafka's 16-bit length: {text[:40]!r}...")
    return _I16.pack(len(raw)) + raw


def _nullable_bytes(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data


def _append_partitions(out: list[bytes], partitions: Iterable[TopicPartition]) -> None:
    columns = TopicPartitions.of(partitions)
    by_topic: dict[str, list[int]] = {topic: [] for topic in columns.topics}
    for topic, number in zip(columns.topics, columns.numbers, strict=True):
        by_topic[topic].append(number)
    out.append(_I32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        out += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))


class _Reader:
    """Reads one message from the front; every failure names the message, the field and the byte."""

    def __init__(self, what: str, data: bytes) -> None:
        self._what = what
        self._data = data
        self._at = 0

    def version(self) -> int:
        version = self._int16("version")
        if version < 0:
            raise WireFormatError(f"{self._what} has the negative version {version}")
        return version

    def int32(self) -> int:
        return self._int32("int32")

    def strings(self) -> tuple[str, ...]:
        return tuple(self._required_string() for _ in range(self._count("topics", 2)))

    def nullable_string(self) -> str | None:
        length = self._int16("string length")
        return None if length < 0 else self._text(length)

    def nullable_bytes(self) -> bytes | None:
        length = self._int32("bytes length")
        return None if length < 0 else bytes(self._take("bytes", length))

    def partitions(self) -> TopicPartitions:
        found = TopicPartitions([], [])
        for _ in range(self._count("topics", 6)):
            topic = self._required_string()
            count = self._count("partitions", 4)
            found.numbers += struct.unpack(f">{count}i", self._take("partitions", 4 * count))
            found.topics += [topic] * count
        return found

    def left(self) -> int:
        return len(self._data) - self._at

    def _take(self, field: str, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > len(self._data):
            raise WireFormatError(
                f"{self._what} is cut short: {field} at byte {start} needs {size} bytes, "
                f"{len(self._data) - start} are left"
            )
        self._at = end
        return self._data[start:end]

    def _int16(self, field: str) -> int:
        return int(_I16.unpack(self._take(field, 2))[0])

    def _int32(self, field: str) -> int:
        return int(_I32.unpack(self._take(field, 4))[0])

    def _count(self, field: str, least_size: int) -> int:
        """An array's length; what could not fit into the bytes is refused before anything is allocated."""
        at, count = self._at, self._int32(f"count of {field}")
        if count < 0 or count * least_size > len(self._data) - self._at:
            raise WireFormatError(f"{self._what} says at byte {at} that it has {count} {field}, which cannot be")
        return count

    def _required_string(self) -> str:
        at, length = self._at, self._int16("string length")
        if length < 0:
            raise WireFormatError(f"{self._what} has a null topic at byte {at}")
        return self._text(length)

    def _text(self, length: int) -> str:
        at, raw = self._at, self._take("string", length)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise WireFormatError(
                f"{self._what} has a string at byte {at} that is not UTF-8: {error.reason}"
            ) from error
