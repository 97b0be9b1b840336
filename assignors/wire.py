"""Encode and decode subscriptions, assignments and sticky user data as Kafka's clients do.

Schemas: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json (v0 to v3, all non-flexible) of Apache
Kafka, `StickyAssignor` (user data V0 and V1) and `CooperativeStickyAssignor` (user data V0). Big endian throughout.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from assignors.model import NO_GENERATION, Assignment, Subscription, TopicPartition, TopicPartitions

NEWEST_VERSION = 3
"""The newest version that is written. Newer versions, which only append fields, are decoded as this version."""


class WireFormatError(ValueError):
    """The bytes do not follow the schema; the message gives the structure, the field and the byte position."""


class StickyUserData(NamedTuple):
    """The last assignment of a `sticky` member; generation -1 if unknown (V0)."""

    partitions: Sequence[TopicPartition]
    generation: int


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """Encode a subscription, with topics and owned partitions sorted as in the Java client.

    Version 1 adds the owned partitions, version 2 the generation, version 3 the rack.

    Raises:
        ValueError: The version is unknown, or a string is longer than 32,767 bytes.
    """
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
    """Decode a subscription in any version; an empty rack is decoded as None.

    Raises:
        WireFormatError: The bytes are truncated or do not follow the schema.
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
    """Encode an assignment, with topics in the order of their first appearance.

    Raises:
        ValueError: The version is unknown, or a topic is longer than 32,767 bytes.
    """
    _check_version("assignment", version)
    out = [_I16.pack(version)]
    _append_partitions(out, assignment.partitions)
    out.append(_nullable_bytes(assignment.user_data))
    return b"".join(out)


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment in any version. Empty bytes (a member without an assignment) give an empty assignment.

    Raises:
        WireFormatError: The bytes are truncated or do not follow the schema.
    """
    if not data:
        return Assignment(())
    reader = _Reader("assignment", data)
    reader.version()
    return Assignment(reader.partitions(), reader.nullable_bytes())


def encode_sticky_user_data(partitions: Iterable[TopicPartition], generation: int | None) -> bytes:
    """Encode `sticky` user data: V1, or V0 (no generation) if `generation` is None."""
    out: list[bytes] = []
    _append_partitions(out, partitions)
    if generation is not None:
        out.append(_I32.pack(generation))
    return b"".join(out)


def decode_sticky_user_data(data: bytes | None) -> StickyUserData:
    """Decode `sticky` user data, V1 or V0. As in Java, malformed user data contain no partitions."""
    if not data:
        return StickyUserData((), NO_GENERATION)
    try:
        reader = _Reader("sticky user data", data)
        partitions = reader.partitions()
        return StickyUserData(partitions, reader.int32() if reader.left() >= 4 else NO_GENERATION)
    except WireFormatError:
        return StickyUserData((), NO_GENERATION)


def encode_cooperative_user_data(generation: int) -> bytes:
    """Encode `cooperative-sticky` user data, which hold only the generation."""
    return _I32.pack(generation)


def decode_cooperative_user_data(data: bytes | None) -> int:
    """Decode the generation in `cooperative-sticky` user data; -1: no generation."""
    return NO_GENERATION if data is None or len(data) < 4 else int(_I32.unpack_from(data)[0])


_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_NULL_STRING = _I16.pack(-1)
_MAX_STRING = 0x7FFF


def _check_version(what: str, version: int) -> None:
    if not 0 <= version <= NEWEST_VERSION:
        raise ValueError(f"cannot encode a {what} of version {version}: use 0 to {NEWEST_VERSION}")


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > _MAX_STRING:
        raise ValueError(
            f"a string of {len(raw)} bytes does not fit Kafka's 16-bit length, shorten it: {text[:40]!r}..."
        )
    return _I16.pack(len(raw)) + raw


def _nullable_bytes(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data


def _append_partitions(out: list[bytes], partitions: Iterable[TopicPartition]) -> None:
    columns = TopicPartitions.from_pairs(partitions)
    by_topic: dict[str, list[int]] = {topic: [] for topic in columns.topics}
    for topic, number in zip(columns.topics, columns.numbers, strict=True):
        by_topic[topic].append(number)
    out.append(_I32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        out += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))


class _Layout:
    """The positions of the partition numbers in a message, and the bytes around them.

    Members of a group often own equally many partitions of the same topics. For messages that differ only in the
    partition numbers, one comparison and one `unpack` replace a loop over the topics.
    """

    __slots__ = ("_around", "_between", "_numbers", "size", "topics")

    def __init__(self, data: bytes, bounds: Sequence[tuple[int, int]], topics: list[str]) -> None:
        around, numbers, at = [">"], [">"], 0
        for start, count in bounds:
            around.append(f"{start - at}s{4 * count}x")
            numbers.append(f"{start - at}x{count}i")
            at = start + 4 * count
        self._around = struct.Struct("".join(around))
        self._between = self._around.unpack_from(data)
        self._numbers = struct.Struct("".join(numbers))
        self.size = len(data)
        self.topics = topics

    def fits(self, data: bytes, at: int) -> bool:
        """Return whether the message at this byte differs from the layout only in its partition numbers."""
        return self.size <= len(data) - at and self._around.unpack_from(data, at) == self._between

    def numbers(self, data: bytes, at: int) -> list[int]:
        """Return the partition numbers of a message that fits the layout."""
        return list(self._numbers.unpack_from(data, at))


_MAX_LAYOUTS = 16
_layouts: dict[int, _Layout] = {}
_read_last: list[str] = []


def _remember(size: int, data: bytes, bounds: Sequence[tuple[int, int]], topics: list[str]) -> None:
    """Cache the layout of a message if the previous message had the same topics, at most `_MAX_LAYOUTS` layouts."""
    global _read_last
    if len(topics) >= 8 and topics == _read_last:
        if len(_layouts) >= _MAX_LAYOUTS:
            _layouts.clear()
        _layouts[size] = _Layout(data, bounds, topics)
    _read_last = topics


class _Reader:
    """Reads one message from its start; every error gives the message, the field and the byte position."""

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
        return None if length < 0 else bytes(self._read("bytes", length))

    def partitions(self) -> TopicPartitions:
        """Read topics with their partition numbers, in one step if a message of the same layout was read before."""
        size = len(self._data) - self._at
        layout = _layouts.get(size)
        if layout is not None and layout.fits(self._data, self._at):
            numbers = layout.numbers(self._data, self._at)
            self._at += layout.size
            return TopicPartitions(layout.topics, numbers)
        start, topics = self._at, self._count("topics", 6)
        found = TopicPartitions([], [])
        bounds: list[tuple[int, int]] = []
        data, at, end = self._data, self._at, len(self._data)
        for _ in range(topics):
            # Fields are read inline, because this loop dominates the time of a large group. If a length is invalid, the
            # methods below read the field again and raise the error.
            length = (data[at] << 8 | data[at + 1]) if at + 2 <= end else -1
            stop = at + 2 + length
            if not 0 <= length <= _MAX_STRING or stop + 4 > end:
                self._at = at
                self._required_string()
                self._count("partitions", 4)
            try:
                topic = data[at + 2 : stop].decode()
            except UnicodeDecodeError:
                self._at = at
                topic = self._required_string()
            (count,) = _I32.unpack_from(data, stop)
            at = stop + 4
            if not 0 <= count <= (end - at) // 4:
                self._at = stop
                self._count("partitions", 4)
            bounds.append((at - start, count))
            if count == 1:
                found.topics.append(topic)
                found.numbers += _I32.unpack_from(data, at)
            else:
                found.topics += [topic] * count
                found.numbers += struct.unpack_from(f">{count}i", data, at)
            at += 4 * count
        self._at = at
        _remember(size, data[start:at], bounds, found.topics)
        return found

    def left(self) -> int:
        return len(self._data) - self._at

    def _read(self, field: str, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > len(self._data):
            raise WireFormatError(
                f"{self._what} is truncated: {field} at byte {start} needs {size} bytes, "
                f"{len(self._data) - start} are left"
            )
        self._at = end
        return self._data[start:end]

    def _int16(self, field: str) -> int:
        return int(_I16.unpack(self._read(field, 2))[0])

    def _int32(self, field: str) -> int:
        return int(_I32.unpack(self._read(field, 4))[0])

    def _count(self, field: str, min_size: int) -> int:
        """Read an array's length. A length that cannot fit into the bytes is refused before anything is allocated."""
        at, count = self._at, self._int32(f"count of {field}")
        if count < 0 or count * min_size > len(self._data) - self._at:
            raise WireFormatError(
                f"{self._what} declares {count} {field} at byte {at}, which is not possible: "
                f"{len(self._data) - self._at} bytes follow"
            )
        return count

    def _required_string(self) -> str:
        at, length = self._at, self._int16("string length")
        if length < 0:
            raise WireFormatError(f"{self._what} has a null topic at byte {at}")
        return self._text(length)

    def _text(self, length: int) -> str:
        at, raw = self._at, self._read("string", length)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise WireFormatError(
                f"{self._what} has a string at byte {at} that is not UTF-8: {error.reason}"
            ) from error
