"""Serve reads: the record batches of a topic's logs, and the answers of leaders and followers to Fetch.

The topic's id, the offset and the leader's epoch decide the layout of batches, and which offsets have no record for
readers. So no random numbers of the world are used. kafka-python encodes the batches.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from kafka_source.error_codes import ErrorCode as E
from tests.support.record_messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Broker, Cluster, Partition, Reply

# Positions in a batch of magic 2: the attributes, the last record's offset, the checksum and the checked bytes.
_LEADER_EPOCH_AT, _CRC_AT, _ATTRIBUTES_AT, _LAST_AT = 12, 17, 21, 23
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_GZIP = 1
# The timestamp of offset 0 in ms; each later offset has the next millisecond.
_FIRST_MS = 1_700_000_000_000
_ABORT, _COMMIT = b"\0\0\0\0", b"\0\0\0\1"
# A follower has records that are older than this, in virtual seconds.
_FOLLOWER_LAG = 0.4
# The fields before the checked bytes of a record batch: base offset, length, leader epoch, magic and the checksum.
_BEFORE_CHECKED = 21

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in ms, key and value of a record."""


def row_of(topic_id: str, partition: int, epoch: int, offset: int, *, aborted: bool = False) -> Row:
    """Return the record that a leader of this epoch has written; its key or value identify it uniquely."""
    name = json.dumps([topic_id, partition, epoch, offset, aborted]).encode()
    if offset % 11 == 3:
        return offset, _FIRST_MS + offset, name, None
    return offset, _FIRST_MS + offset, None if offset % 4 == 0 else name, name + b" " * (offset * 37 % 150)


def name_of(row: Row) -> tuple[str, int, int, int, bool]:
    """Return the identity of a record: topic id, partition, epoch, offset, and whether its transaction was aborted."""
    named: tuple[str, int, int, int, bool] = tuple(json.loads(row[2] or row[3] or b"null"))
    return named


@dataclass
class Batch:
    """A record batch in the log of a topic that is read.

    Attributes:
        offsets: The offsets of its records; compaction has removed the others.
        producer_id: The producer of its transaction; -1: no transaction.
        aborted_from: The first offset of that transaction, if it was aborted; -1: not aborted.
        control: The key of its marker; empty: no control batch.
        at: The time at which it was written.
    """

    first: int
    last: int
    epoch: int
    offsets: Sequence[int]
    at: float
    producer_id: int = -1
    aborted_from: int = -1
    control: bytes = b""
    data: bytes = b""

    def encoded(self, topic_id: str, partition: int) -> bytes:
        """Return the bytes of the batch."""
        if not self.data:
            # The broker does not compress. A producer has compressed its records if there are many.
            codec = _GZIP if len(self.offsets) > 12 and self.first % 2 else 0
            builder = DefaultRecordBatchBuilder(2, codec, 0, self.producer_id, 0, 0, 1 << 20)
            for offset in self.offsets:
                row = row_of(topic_id, partition, self.epoch, offset, aborted=self.aborted_from >= 0)
                key, value = (self.control, b"\0" * 6) if self.control else row[2:]
                builder.append(offset - self.first, row[1], key, value, [])
            data = bytearray(builder.build())
            flags = (_TRANSACTIONAL if self.producer_id >= 0 else 0) | (_CONTROL if self.control else 0)
            data[_ATTRIBUTES_AT + 1] |= flags
            struct.pack_into(">i", data, _LAST_AT, self.last - self.first)
            struct.pack_into(">q", data, 0, self.first)
            struct.pack_into(">i", data, _LEADER_EPOCH_AT, self.epoch)
            struct.pack_into(">I", data, _CRC_AT, calc_crc32c(bytes(data[_ATTRIBUTES_AT:])))
            self.data = bytes(data)
        return self.data

    def until(self, end: int) -> Batch:
        """Return the part of the batch in a log that ends at `end`."""
        if self.last < end:
            return self
        offsets = [one for one in self.offsets if one < end]
        return Batch(
            self.first, end - 1, self.epoch, offsets, self.at, self.producer_id, self.aborted_from, self.control
        )


def written_at(topic_id: UUID, partition: int, epoch: int, start: int, count: int, now: float) -> list[Batch]:
    """Return batches for this number of offsets, written now: plain, compacted, or transactional."""
    kind = zlib.crc32(f"{topic_id.int} {partition} {epoch} {start}".encode()) % 10
    end, producer = start + count, 500 + kind

    def batch(first: int, stop: int, **more: Any) -> Batch:
        return Batch(first, stop - 1, epoch, range(first, stop), now, **more)

    if kind == 5 and count > 1:
        middle = start + count // 2
        # Compaction has kept the header of a producer's last batch of the first half, or nothing.
        before = [Batch(start, middle - 1, epoch, (), now)] if start % 2 else []
        return [*before, Batch(middle, end - 1, epoch, [one for one in range(middle, end) if one % 3], now)]
    if kind in (6, 7):
        aborted = start if kind == 6 else -1
        marker = batch(end - 1, end, producer_id=producer, control=_ABORT if kind == 6 else _COMMIT)
        if count == 1:
            return [marker]
        return [batch(start, end - 1, producer_id=producer, aborted_from=aborted), marker]
    if kind == 8 and count > 4:
        # Another producer writes during an aborted transaction, whose own producer then begins its next transaction.
        third = count // 3
        a, b = start + third, start + 2 * third
        return [
            batch(start, a, producer_id=producer, aborted_from=start),
            batch(a, b),
            batch(b, b + 1, producer_id=producer, control=_ABORT),
            batch(b + 1, end - 1, producer_id=producer),
            batch(end - 1, end, producer_id=producer, control=_COMMIT),
        ]
    each = (3, 20, 50)[kind % 3]
    return [batch(at, min(at + each, end)) for at in range(start, end, each)]


@dataclass
class ReadLog:
    """The record batches of a partition that is read.

    Attributes:
        start: The log start offset; retention has removed the records before it.
        gaps: The offsets at which a reader gets no record.
    """

    read_committed: bool = False
    batches: list[Batch] = field(default_factory=list)
    gaps: set[int] = field(default_factory=set)
    start: int = 0

    def append(self, batches: Sequence[Batch], start: int, end: int) -> None:
        """Append the batches of the offsets from `start` to `end` (exclusive)."""
        self.batches += batches
        read = {
            offset
            for one in batches
            if not one.control and (one.aborted_from < 0 or not self.read_committed)
            for offset in one.offsets
        }
        self.gaps.update(set(range(start, end)) - read)

    def truncate(self, end: int) -> None:
        """Remove the records from `end` on."""
        # The log of a broker without these records may end before the start of another broker's log.
        self.start = min(self.start, end)
        kept = [one.until(end) for one in self.batches if one.first < end]
        left = kept[-1].last + 1 if kept else self.start
        if left < end:
            # No log ends with a gap, because compaction leaves the newest segment alone.
            cut = self.batches[len(kept)]
            kept.append(Batch(left, end - 1, cut.epoch, (), cut.at))
        self.batches = kept
        self.gaps = {one for one in self.gaps if one < end}

    def skip(self, offset: int) -> int:
        """Return the first offset, from this offset on, at which a reader may get a record."""
        offset = max(offset, self.start)
        while offset in self.gaps:
            offset += 1
        return offset

    def first_at(self, at: float) -> int:
        """Return the offset of the first record that was written at this time or later; -1: no such record."""
        later = (offset for one in self.batches if one.at >= at for offset in one.offsets if offset >= self.start)
        return next(later, -1)

    def from_offset(self, offset: int) -> Iterator[Batch]:
        """Yield the batches from the batch with an offset on, or from the next batch."""
        return (one for one in self.batches if one.last >= offset)


class Fetches:
    """The brokers' answers to Fetch.

    Attributes:
        version: The newest version that the brokers know: 11 as before Kafka 3.1, or 13, with topic ids.
        throttled: The share of answers without records, with a throttle time.
        far: Whether the leader refers readers with a rack to a follower (KIP-392).
        damages: The damage to the next answers with records: the answer is cut off, or a byte is changed.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.version, self.throttled, self.far = 13, 0.0, False
        self.damages: list[str] = []
        cluster.handlers[FetchRequest] = self._fetch

    def _fetch(self, broker: Broker, request: FetchRequest, reply: Reply) -> None:
        world, version = self._cluster.world, self._cluster.version
        if self.throttled and world.random.random() < self.throttled:
            pause = world.random.choice((20, 300))
            reply(FetchResponse(throttle_time_ms=pause, error_code=0, session_id=0, responses=[]))
            return
        answer, size = self._answer(broker, request, version)
        if size or request.max_wait_ms == 0:
            reply(answer)
        else:
            # Records that are written during the wait are found by the next request.
            world.after(request.max_wait_ms / 1000, lambda: reply(self._answer(broker, request, version)[0]))

    def _answer(self, broker: Broker, request: FetchRequest, version: int) -> tuple[FetchResponse, int]:
        topic_type, cluster = FetchResponse.FetchableTopicResponse, self._cluster
        left, size, topics = request.max_bytes, 0, []
        names = {topic.id: name for name, topic in cluster.topics.items()}
        for topic in request.topics:
            name = names.get(topic.topic_id) if version >= 13 else topic.topic
            partitions = []
            for asked in topic.partitions:
                answer = self._partition(broker, request, name, asked, left, first=not size)
                partitions.append(answer)
                left -= len(answer.records or b"")
                size += len(answer.records or b"") + bool(answer.error_code) + (answer.preferred_read_replica >= 0)
            topics.append(topic_type(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics), size

    def _partition(
        self, broker: Broker, request: FetchRequest, name: str | None, asked: Any, left: int, *, first: bool
    ) -> Any:
        cluster, number = self._cluster, asked.partition
        known = cluster.topics.get(name or "")
        found: Partition | None = None
        if known is not None and number < len(known.partitions):
            found = known.partitions[number]
        end = -1 if found is None else self._end_at(broker, found)

        def answer(code: int = 0, records: bytes = b"", aborted: Any = None, preferred: int = -1) -> Any:
            if code:
                cluster.errors["Fetch", code] += 1
            start = -1 if found is None else found.read.start
            high = -1 if code else end
            part = FetchResponse.FetchableTopicResponse.PartitionData
            return part(
                partition_index=number,
                error_code=code,
                high_watermark=high,
                last_stable_offset=high,
                log_start_offset=start,
                aborted_transactions=aborted,
                preferred_read_replica=preferred,
                records=records,
            )

        if known is None or found is None:
            by_id = cluster.version >= 13
            return answer(int(E.UNKNOWN_TOPIC_ID if by_id else E.UNKNOWN_TOPIC_OR_PARTITION))
        if 0 <= asked.current_leader_epoch < found.epoch:
            return answer(int(E.FENCED_LEADER_EPOCH))
        if asked.current_leader_epoch > found.epoch:
            return answer(int(E.UNKNOWN_LEADER_EPOCH))
        follows = found.leader != broker.node
        if follows and not self.far:
            return answer(int(E.NOT_LEADER_OR_FOLLOWER))
        if not found.read.start <= asked.fetch_offset <= end:
            return answer(int(E.OFFSET_OUT_OF_RANGE))
        others = [one for one in cluster.brokers.values() if one.up and one.node != broker.node]
        if self.far and not follows and request.rack_id and others:
            return answer(preferred=min(one.node for one in others))
        return answer(
            *self._records(
                known.id, number, found.read, asked, end, left, first=first, committed=request.isolation_level == 1
            )
        )

    def _end_at(self, broker: Broker, found: Partition) -> int:
        """Return the end of a broker's log; a follower does not have the newest batches."""
        if found.leader == broker.node:
            return found.end
        return max(
            (one.last + 1 for one in found.read.batches if one.at < self._cluster.world.now - _FOLLOWER_LAG), default=0
        )

    def _records(
        self,
        topic_id: UUID,
        number: int,
        log: ReadLog,
        asked: Any,
        end: int,
        left: int,
        *,
        first: bool,
        committed: bool,
    ) -> tuple[int, bytes, Any]:
        """Return records from an offset on. An answer's first batch is whole, and its last batch may be cut off."""
        aborted_type = FetchResponse.FetchableTopicResponse.PartitionData.AbortedTransaction
        most, data = min(asked.partition_max_bytes, left), bytearray()
        aborted: dict[tuple[int, int], None] = {}
        begins = []
        for batch in log.from_offset(asked.fetch_offset):
            if batch.first >= end or (data and len(data) >= most) or (not data and not first and left <= 0):
                break
            begins.append(len(data))
            data += batch.encoded(str(topic_id), number)
            if batch.aborted_from >= 0 and committed:
                aborted[batch.producer_id, batch.aborted_from] = None
            if first and len(data) == len(batch.data):
                most = max(most, len(data))
        del data[max(0, most) :]
        if data and self.damages:
            damage = self.damages.pop()
            at = len(data) // 2
            if damage == "corrupt":
                # No client notices a changed base offset, because the checksum is of the bytes after it.
                covered = max(one for one in begins if one <= at) + _BEFORE_CHECKED
                if covered < len(data):
                    data[max(at, covered)] ^= 0x55
            else:
                del data[at:]
        return 0, bytes(data), [aborted_type(*one) for one in aborted] if committed else None
