"""The leader of a classic group, from the record of the group in `__consumer_offsets`.

Brokers tell only the members who leads (JoinGroup), and no request asks for it. But the coordinator writes each
generation of a group with its leader into its log (`GroupMetadataValue`), which who may read that topic can look up.
"""

from __future__ import annotations

import struct

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.fetch.engine import FetchEngine, FetchRequest
from kafka_source.model.record_columns import Column
from kafka_source.model.stream_offset import Range
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.runtime.deadline import Deadline

TOPIC = "__consumer_offsets"

_SECONDS = 30.0
_TIMEOUT_MS = 30_000
_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 * 1024 * 1024
# The record of a group that is at rest may be far back. First look at the end of the log, then at 8 times as much.
_FIRST_OFFSETS = 5_000
_WIDER = 8
_KEY_VERSION = 2
_SIGN = 1 << 31
_FIRST_FLEXIBLE = 4


def leader_of(cluster: Cluster, engine: FetchEngine, group: str) -> str | None:
    """Return the member id of the leader in the group's last generation.

    Returns:
        None if the log has no record of the group, or none that is found within 30 s; or the group has no leader.

    Raises:
        KafkaGroupError: This user may not read `__consumer_offsets`, or the brokers do not answer.
    """
    deadline = Deadline(_SECONDS)
    partitions = cluster.partitions(TopicSelection(topics=(TOPIC,)))
    tp = TopicPartition(TOPIC, partition_of(group, len(partitions)))
    starts, ends = cluster.bounds((tp,), (tp,), read_committed=False)
    end, size = ends[tp], _FIRST_OFFSETS
    while end > starts[tp] and not deadline.over:
        begin = max(starts[tp], end - size)
        found, value = _last_value(engine, tp, begin, end, group_key(group))
        if found:
            return None if value is None else leader_in(value)
        end, size = begin, size * _WIDER
    return None


def partition_of(group: str, partitions: int) -> int:
    """Return the partition in which the coordinator keeps a group: Java's hash of its id, modulo the partitions."""
    utf16 = group.encode("utf-16-be")
    code = 0
    for (unit,) in struct.iter_unpack(">H", utf16):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= _SIGN else code
    # `Utils.abs` of Kafka: the least number has no positive one.
    return 0 if signed == -_SIGN else abs(signed) % partitions


def group_key(group: str) -> bytes:
    """Return the key of the group's record (`GroupMetadataKey`)."""
    name = group.encode()
    return struct.pack(">hh", _KEY_VERSION, len(name)) + name


def leader_in(value: bytes) -> str | None:
    """Return the leader in the group's record (`GroupMetadataValue`, all versions); None if the group has none.

    It is None too if the record is in a format of another broker. Versions below 4 have a length of 2 bytes before each
    text; from 4 on the length is a varint, and one higher.
    """
    reader = _Reader(value)
    try:
        flexible = reader.number(">h") >= _FIRST_FLEXIBLE
        reader.text(flexible=flexible)  # The protocol type.
        reader.number(">i")  # The generation.
        reader.text(flexible=flexible)  # The assignor.
        return reader.text(flexible=flexible)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _last_value(engine: FetchEngine, tp: TopicPartition, begin: int, end: int, key: bytes) -> tuple[bool, bytes | None]:
    """Return whether `[begin, end)` has a record with this key, and the value of the last one."""
    request = FetchRequest(
        ranges=(Range(tp.topic, tp.partition, begin, end),),
        columns=(Column("key"), Column("value")),
        batch_rows=_BATCH_ROWS,
        batch_bytes=_BATCH_BYTES,
        timeout_ms=_TIMEOUT_MS,
        read_committed=False,
        # Compaction and retention go on meanwhile.
        fail_on_data_loss=False,
    )
    found, last = False, None
    for batch in engine.read(request):
        keys, values = batch.column(0).to_pylist(), batch.column(1)
        for row, one in enumerate(keys):
            if one == key:
                found, last = True, values[row].as_py()
    return found, last


class _Reader:
    """Reads the fields of a record one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, form: str) -> int:
        """Return an integer of this form of `struct`."""
        found: int
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def text(self, *, flexible: bool) -> str | None:
        """Return a text, or None."""
        length = self._varint() - 1 if flexible else self.number(">h")
        if length < 0:
            return None
        begin, self._at = self._at, self._at + length
        return self._data[begin : self._at].decode()

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
