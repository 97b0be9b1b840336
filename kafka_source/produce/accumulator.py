"""Encode records with the kernel, and keep the encoded batches by partition."""

import struct
import time
from dataclasses import dataclass

import kafkagroup_native as kernel
import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.produce.delivery_errors import delivery_error
from kafka_source.produce.records import Records
from kafka_source.produce.settings import ProducerSettings
from kafka_source.runtime.retry import RANDOM

# The last field of a record batch's header (`DefaultRecordBatch.RECORDS_COUNT_OFFSET`).
_COUNT, _COUNT_AT = struct.Struct(">i"), 57


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The identity of an idempotent or transactional producer (KIP-98); for other producers id and epoch are -1.

    Attributes:
        producer_id: The producer id, from InitProducerId.
        epoch: The producer epoch, from InitProducerId.
        transactional: Whether the records are in a transaction.
    """

    producer_id: int
    epoch: int
    transactional: bool = False


NO_IDENTITY = ProducerIdentity(-1, -1)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """An encoded record batch (magic 2) of one partition."""

    tp: TopicPartition
    data: bytes

    @property
    def records(self) -> int:
        """The number of records, from the header."""
        (count,) = _COUNT.unpack_from(self.data, _COUNT_AT)
        return int(count)


class Accumulator:
    """Encodes records, and numbers each partition's batches in the order of sending."""

    def __init__(self, settings: ProducerSettings, identity: ProducerIdentity) -> None:
        self._topics: list[str] = []
        self._topic_numbers: dict[str, int] = {}
        self._encoder = kernel.BatchEncoder(
            compression=settings.compression,
            level=settings.level,
            batch_bytes=settings.batch_bytes,
            record_bytes=settings.record_bytes,
            sticky=RANDOM.getrandbits(31),
        )
        self._encoder.identify(identity.producer_id, identity.epoch, transactional=identity.transactional)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the records that `take` has not returned yet."""
        return self._encoder.pending_bytes

    def add(self, topic: str, partitions: int, records: Records) -> None:
        """Encode the records of one topic.

        Args:
            topic: The topic; the records' own `topics` are ignored.
            partitions: The topic's number of partitions.
            records: The records. If `partitions` is null, the partitioner chooses the partition (murmur2 of the key, as
                in Java).

        Raises:
            DeliveryError: A record is too large, or its partition does not exist.
        """
        number = self._topic_numbers.setdefault(topic, len(self._topics))
        if number == len(self._topics):
            self._topics.append(topic)
        try:
            self._encoder.append(number, partitions, _columns(records), time.time_ns() // 1_000_000)
        except kernel.RecordTooLarge as problem:
            reason = f"it takes {problem.size} bytes, and kafka.max.request.size is {problem.limit}"
            raise delivery_error(ErrorCode.MESSAGE_TOO_LARGE, topic, problem.partition, reason) from None
        except kernel.UnknownPartition as problem:
            reason = f"the topic has {problem.partitions} partitions"
            raise delivery_error(ErrorCode.LOCAL_UNKNOWN_PARTITION, topic, problem.partition, reason) from None

    def take(self, *, everything: bool) -> list[RecordBatch]:
        """Remove and return the batches that are full, or all batches, in the order of sending."""
        taken = self._encoder.take(all=everything)
        return [RecordBatch(TopicPartition(self._topics[t], p), data) for t, p, _, data in taken]

    def split(self, batch: RecordBatch) -> list[RecordBatch]:
        """Split a batch that is too large for its topic into two batches. Later batches are smaller, too."""
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
    # Check the lengths here, because the kernel gets only the addresses of the buffers.
    batch.validate()
    return batch
