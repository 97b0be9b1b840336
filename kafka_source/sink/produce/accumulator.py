"""Records on their way into record batches, by topic and partition, under one producer's identity."""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass
from typing import Any

import kafkagroup_native as kernel
import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.error_codes import LOCAL_UNKNOWN_PARTITION, MESSAGE_TOO_LARGE
from kafka_source.sink.produce.delivery_errors import delivery_error
from kafka_source.sink.produce.producer_settings import ProducerSettings
from kafka_source.sink.records import Records

# The last field of a record batch's header (`DefaultRecordBatch.RECORDS_COUNT_OFFSET`).
_COUNT, _COUNT_AT = struct.Struct(">i"), 57


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What brokers know a producer by (KIP-98); -1 and -1: one that is not idempotent.

    Attributes:
        producer_id: Given by the brokers.
        epoch: The same.
        transactional: Whether its records are in a transaction.
    """

    producer_id: int
    epoch: int
    transactional: bool = False


NOBODY = ProducerIdentity(-1, -1)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A record batch that is ready for its partition."""

    tp: TopicPartition
    data: bytes

    @property
    def records(self) -> int:
        """How many it holds, as its header says."""
        (count,) = _COUNT.unpack_from(self.data, _COUNT_AT)
        return int(count)


class Accumulator:
    """Encodes records; numbers each partition's batches in the order in which they have to be sent.

    Args:
        settings: Of the producer.
        identity: Of the producer.
    """

    def __init__(self, settings: ProducerSettings, identity: ProducerIdentity) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._encoder = kernel.BatchEncoder(
            compression=settings.compression,
            level=settings.level,
            batch_bytes=settings.batch_bytes,
            record_bytes=settings.record_bytes,
            sticky=random.getrandbits(31),
        )
        self._encoder.identify(identity.producer_id, identity.epoch, transactional=identity.transactional)

    @property
    def pending_bytes(self) -> int:
        """Of the records that are not taken yet."""
        return self._encoder.pending_bytes

    def add(self, topic: str, partitions: int, records: Records) -> None:
        """Encode the records of one topic.

        Args:
            topic: Theirs, whatever their own column says.
            partitions: How many the topic has.
            records: With their partitions, where they have any.

        Raises:
            DeliveryError: One is too large, or its partition does not exist.
        """
        number = self._numbers.setdefault(topic, len(self._names))
        if number == len(self._names):
            self._names.append(topic)
        try:
            self._encoder.append(
                number,
                partitions,
                len(records),
                _binary(_compact(records.values)),
                None if records.keys is None else _binary(_compact(records.keys)),
                None if records.partitions is None else _int32(records.partitions),
                None if records.headers is None else _headers(_compact(records.headers)),
                time.time_ns() // 1_000_000,
            )
        except kernel.RecordTooLarge as problem:
            reason = f"it takes {problem.size} bytes, and kafka.max.request.size is {problem.limit}"
            raise delivery_error(MESSAGE_TOO_LARGE, topic, problem.partition, reason) from None
        except kernel.UnknownPartition as problem:
            reason = f"the topic has {problem.partitions} partitions"
            raise delivery_error(LOCAL_UNKNOWN_PARTITION, topic, problem.partition, reason) from None

    def take(self, *, everything: bool) -> list[RecordBatch]:
        """The batches that are full, or all, in the order in which they were ended."""
        taken = self._encoder.take(all=everything)
        return [RecordBatch(TopicPartition(self._names[t], p), data) for t, p, _, data in taken]

    def split(self, batch: RecordBatch) -> list[RecordBatch]:
        """Two in the place of one that is too large for its topic; what is encoded from here on is no larger."""
        return [RecordBatch(batch.tp, data) for data in self._encoder.split(batch.data)]


def _bytes(buffer: pa.Buffer | None) -> bytes:
    return b"" if buffer is None else buffer.to_pybytes()


def _validity(array: pa.Array) -> bytes | None:
    buffer = array.buffers()[0]
    return None if buffer is None or not array.null_count else _bytes(buffer)


def _compact(array: pa.Array) -> pa.Array:
    """The array in buffers of its own if it is a small part of others'; buffers are copied whole."""
    if array.get_total_buffer_size() <= 2 * array.nbytes:
        return array
    return pa.concat_arrays([array, array.slice(0, 0)])


def _binary(array: pa.Array) -> tuple[bytes | None, int, bytes, bytes]:
    _, offsets, data = array.buffers()
    return _validity(array), array.offset, _bytes(offsets), _bytes(data)


def _int32(array: pa.Array) -> tuple[bytes | None, int, bytes]:
    return _validity(array), array.offset, _bytes(array.buffers()[1])


def _headers(array: pa.Array) -> tuple[Any, ...]:
    entries = array.values
    key, value = entries.field(0), entries.field(1)
    return _validity(array), array.offset, _bytes(array.buffers()[1]), _binary(key.cast(pa.binary())), _binary(value)
