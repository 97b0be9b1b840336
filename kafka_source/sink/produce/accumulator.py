"""Records on their way into record batches, by topic and partition, under one producer's identity."""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass

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
            self._encoder.append(number, partitions, _columns(records), time.time_ns() // 1_000_000)
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


def _columns(records: Records) -> pa.RecordBatch:
    """Return the records as the record batch that `BatchEncoder.append` takes.

    Raises:
        pa.ArrowInvalid: A buffer is shorter than its column needs.
    """
    columns = {
        "value": records.values,
        "key": records.keys,
        "partition": records.partitions,
        "headers": records.headers,
    }
    given = {name: column for name, column in columns.items() if column is not None}
    batch = pa.RecordBatch.from_arrays(list(given.values()), names=list(given))
    # The kernel reads the buffers in place. It gets their addresses without their lengths, so the lengths are checked here.
    batch.validate()
    return batch
