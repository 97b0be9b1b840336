"""Kafka record sets to Arrow record batches, and Arrow rows to Kafka record batches; the GIL is released meanwhile.

    builder = BatchBuilder(["key", ("value", "string"), "offset"], batch_rows=100_000)
    for partition in response:                     # topic-partitions may share a batch
        records = RecordSet(partition.bytes, partition.topic, partition.index, from_offset=partition.position)
        while builder.append(records):             # True: the batch is full and the record set has more
            yield pyarrow.record_batch(builder.take())
        partition.position = records.next_offset
    if builder.num_rows:
        yield pyarrow.record_batch(builder.take())

    encoder = BatchEncoder(compression="lz4")
    encoder.identify(producer_id, epoch)           # left out: not idempotent
    encoder.append(0, 12, pyarrow.record_batch({"value": values, "key": keys}), now_ms)
    for topic, partition, records, batch in encoder.take(all=True):
        produce(topics[topic], partition, batch)

The tree of errors; those of `RecordsError` have the attributes `topic`, `partition`, `offset` and `reason`:

    ValueError
    ├── UnknownPartition        a row asks for a partition that its topic does not have
    ├── RecordTooLarge          a row makes a record over `record_bytes`
    └── RecordsError
        ├── CorruptRecords      the bytes are not what a broker stored
        ├── OldMessageFormat    magic 0 or 1: let another engine read this partition
        ├── UnreadableRecord    a sound record that the columns asked for cannot show
        └── BatchTooLarge       a compressed batch unpacks to more than `max_unpacked_bytes`
"""

from collections.abc import Sequence
from typing import Protocol, final

from typing_extensions import Buffer, CapsuleType

__all__ = [
    "Batch",
    "BatchBuilder",
    "BatchEncoder",
    "BatchTooLarge",
    "CorruptRecords",
    "OldMessageFormat",
    "RecordSet",
    "RecordTooLarge",
    "RecordsError",
    "UnknownPartition",
    "UnreadableRecord",
    "__version__",
]

__version__: str

class _ArrowArray(Protocol):
    """What exports one Arrow array, as `pyarrow.RecordBatch` and `pyarrow.StructArray` do (Arrow PyCapsule interface)."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class RecordSet:
    """A cursor over the records of one topic-partition in a Fetch response.

    It may hold any number of RecordBatches (magic 2; KIP-98) and a part of one at the end. Control batches, aborted
    transactions and the gaps that compaction leaves are passed over; `next_offset` moves past them. Each batch is checked
    (CRC-32C) before any of it is believed.
    """

    def __new__(
        cls,
        buffer: Buffer,
        topic: str,
        partition: int,
        *,
        start: int = 0,
        end: int | None = None,
        from_offset: int = 0,
        to_offset: int = 2**63 - 1,
        aborted_transactions: Sequence[tuple[int, int]] | None = None,
    ) -> RecordSet:
        """Opens the part `start:end` (bytes) of `buffer`.

        `bytes` and `bytearray` are borrowed until the record set is `done` or dropped: a bytearray cannot be resized
        meanwhile, and must not be written to. Other buffers (memoryview, mmap) are copied.

        Args:
            buffer: the Fetch response, or any part of it that holds the record set.
            topic: the topic's name, for the `topic` column and for errors.
            partition: the partition, likewise.
            start: where the record set starts in `buffer`.
            end: where it ends (exclusive); None for the end of `buffer`.
            from_offset: records below are left out. Kafka answers with whole batches, so the first may begin earlier.
            to_offset: records at or above are left out.
            aborted_transactions: the response's (producer id, first offset) pairs, in any order: those producers'
                transactions are left out, as `read_committed` asks (KIP-98). None or empty leaves nothing out: for
                `read_uncommitted`, where the broker sends none.

        Raises:
            ValueError: `start:end` is no part of `buffer`.
            TypeError: `buffer` is no buffer.
        """

    @property
    def next_offset(self) -> int:
        """The next offset to fetch: the first that was neither given nor passed over. At most `to_offset`.

        After a batch it is the batch's last offset + 1, even if that record was compacted away, so a range whose tail is
        markers or gaps ends: it is read when `next_offset == to_offset`.
        """

    @property
    def consumed(self) -> int:
        """Bytes of the batches that are done with, from `start`."""

    @property
    def done(self) -> bool:
        """Whether nothing more comes: `to_offset` is reached, or the rest is not a whole batch."""

    @property
    def partial_batch_bytes(self) -> int | None:
        """When done: the whole size in bytes of the batch that the record set's end cut off, 0 if even the size is cut.

        None if there is none. With `consumed == 0` the fetch size is too small for the batch: fetch at least this much.
        """

@final
class BatchBuilder:
    """Collects records of any number of topic-partitions, in turn, into Arrow batches of the columns asked for.

    Not for use by two threads at once (RuntimeError).
    """

    def __new__(
        cls,
        columns: Sequence[str | tuple[str, str]],
        *,
        batch_rows: int = 65536,
        batch_bytes: int = 16777216,
        max_unpacked_bytes: int = 268435456,
    ) -> BatchBuilder:
        """Asks for columns, in this order, all nullable; types as Spark's `format("kafka")` has them.

        | name | Arrow type |
        | --- | --- |
        | key, value | binary, or with the pair `("value", "string")` string, checked to be UTF-8 |
        | topic | string |
        | partition | int32 |
        | offset | int64 |
        | timestamp | timestamp[us, UTC]; Kafka's are ms, and no timestamp is -1 ms |
        | timestampType | int32: 0 create time, 1 log append time |
        | headers | list<struct<key: string, value: binary>>, null where a record has none |

        Args:
            columns: names, or (name, type) pairs with the types `binary` and `string` for key and value. May be empty:
                the batches then have a number of rows only.
            batch_rows: most rows of a batch.
            batch_bytes: most bytes of a batch's Arrow buffers, up to 2**30. A larger row is a batch of its own.
            max_unpacked_bytes: most bytes that one compressed RecordBatch may unpack to, up to 2**31 - 1.

        Raises:
            ValueError: an unknown column or type, a column asked for twice, a limit out of its range.
        """

    @property
    def num_rows(self) -> int:
        """Rows collected since the last `take`."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the Arrow buffers of these rows."""

    def append(self, record_set: RecordSet) -> bool:
        """Moves records over until the batch is full or `record_set` is done; the GIL is released meanwhile.

        Returns:
            True if the batch is full: `take` it and append the same record set again. False if the record set is done;
            the batch may take more from another.

        Raises:
            RecordsError: with topic, partition, offset and reason. Rows before it are in the builder and can be taken;
                `record_set.next_offset` is the first offset not read. Appending again raises it again.
        """

    def take(self) -> Batch:
        """Ends the batch, empty or not, and starts the next."""

    def __arrow_c_schema__(self) -> CapsuleType:
        """The schema of the batches (Arrow PyCapsule interface): `pyarrow.schema(builder)`."""

@final
class Batch:
    """A finished batch. `pyarrow.record_batch(batch)` takes it over without a copy (Arrow PyCapsule interface)."""

    @property
    def num_rows(self) -> int:
        """Its rows."""

    @property
    def num_bytes(self) -> int:
        """Bytes of its Arrow buffers, as counted against `batch_bytes`."""

    def __arrow_c_schema__(self) -> CapsuleType:
        """Its schema."""

    def __arrow_c_array__(self, requested_schema: CapsuleType | None = None) -> tuple[CapsuleType, CapsuleType]:
        """Its schema and its data as a struct array. `requested_schema` is not followed: the consumer casts."""

@final
class BatchEncoder:
    """Rows to record batches (magic 2; KIP-98), by topic and partition; one for each producer identity.

    Rows of a partition keep their order. Not for use by two threads at once (RuntimeError). After an error other than that
    of the constructor, drop it.
    """

    def __new__(
        cls,
        *,
        compression: str = "none",
        level: int | None = None,
        batch_bytes: int = 1_000_000,
        record_bytes: int = 1_048_576,
        sticky: int = 0,
    ) -> BatchEncoder:
        """An encoder without batches, not idempotent until `identify`.

        Args:
            compression: none, gzip, snappy (snappy-java's framing, blocks of 32 KiB), lz4 (frames of independent 64 KiB
                blocks, as Java writes) or zstd.
            level: 1 to 9 or -1 for gzip, from -131072 to 22 for zstd; None for the codec's default (6, 3). The others have none
                here and ignore it.
            batch_bytes: most bytes of a batch's records before compression, without its header of 61 bytes, up to 2**30. A larger
                record is a batch of its own.
            record_bytes: most bytes of a record, as the batch that it would be alone: encoded, before compression, with the
                header of 61 bytes; up to 2**30.
            sticky: which partition the first records without a key go to, modulo the topic's number of partitions.

        Raises:
            ValueError: an unknown compression or level, a size out of its range.
        """

    def identify(self, producer_id: int, epoch: int, *, transactional: bool = False) -> None:
        """Says whose the batches are that are sealed from here on, and starts every partition's sequence at 0.

        Batches that are being filled are among them: `take(all=True)` first if they are another's.

        Args:
            producer_id: as the broker gave it; -1 for none: base sequences are then -1.
            epoch: the same; -1 for none.
            transactional: the batches belong to a transaction: without the flag a broker appends them as plain ones.
        """

    def append(self, topic: int, partitions: int, rows: _ArrowArray, timestamp_ms: int) -> None:
        """Adds rows of one topic to the batches of its partitions; the GIL is released meanwhile.

        A row's partition is the chosen one; where there is none, that of its key (murmur2, as Java's producer; an empty key is
        one); where there is none, the topic's sticky partition, which moves on to the next each time its batch is sealed. A batch is
        sealed before a record that would take it over `batch_bytes`.

        Args:
            topic: the caller's number for the topic.
            partitions: how many partitions it has, up to 2**20.
            rows: a record batch, or struct array without nulls, whose buffers are read where they are. Columns, of which all
                but `value` may be left out:

                - `value`: binary or string; null is a record without value (a tombstone).
                - `key`: binary or string.
                - `partition`: int32; null where the partitioner decides.
                - `headers`: list<struct<key, value>>, both binary or string; null and empty lists are none, a header's value
                  may be null.

                Strings are taken as their bytes. Values, offsets and nulls are checked row by row; that the buffers are as long
                as these say cannot be, and is up to whoever made them: `validate()` of pyarrow checks it.
            timestamp_ms: the create time of all rows, in ms since 1970, not negative.

        Raises:
            UnknownPartition: a chosen partition is negative or too large.
            RecordTooLarge: a record is over `record_bytes`.
            TypeError: `rows` exports no Arrow array.
            ValueError: a column of another name or type, a column whose offsets do not ascend within its buffers, a header
                without a key, or a number out of its range.
        """

    def take(self, *, all: bool) -> list[tuple[int, int, int, bytes]]:
        """Takes the sealed batches: (topic, partition, number of records, the batch), in the order of sealing.

        A batch is whole, with length and CRC-32C: the `records` of a Produce request, or a part of them.

        Args:
            all: seals what is being filled first, by topic and partition.
        """

    def split(self, batch: bytes) -> tuple[bytes, bytes]:
        """A batch of several records as two, as for a topic whose `max.message.bytes` it is over.

        The records keep their sequences, so that an idempotent producer may send both in its place. Batches that are sealed
        from here on are no larger than the first of the two.

        Args:
            batch: as `take` gave it; or one of the two of a `split`.

        Raises:
            RuntimeError: that is no batch, or the codec failed.
        """

    @property
    def pending_bytes(self) -> int:
        """Bytes of the batches that are being filled (not compressed yet) and of sealed ones that were not taken."""

class UnknownPartition(ValueError):
    """A row asks for a partition that its topic does not have."""

    topic: int
    """The caller's number for the topic."""
    partition: int
    """What was asked for."""
    partitions: int
    """How many the topic has."""
    row: int
    """The row, from 0 in this `append`."""

class RecordTooLarge(ValueError):
    """A row makes a record over `record_bytes`."""

    topic: int
    """The caller's number for the topic."""
    partition: int
    """The partition it would go to."""
    row: int
    """The row, from 0 in this `append`."""
    size: int
    """Its size in bytes, counted as `record_bytes`. With many headers, counted so far as to be over the limit."""
    limit: int
    """`record_bytes`."""

class RecordsError(ValueError):
    """A record set cannot be read on; the base of all errors in reading."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    offset: int
    """The first offset that could not be read."""
    reason: str
    """What is wrong, without the place."""

class CorruptRecords(RecordsError):
    """The bytes are not what a broker stored: a wrong CRC, a field out of its bounds, data that does not unpack."""

class OldMessageFormat(RecordsError):
    """A message set of magic 0 or 1, written before Kafka 0.11: let another engine read this partition."""

class UnreadableRecord(RecordsError):
    """A sound record that the columns asked for cannot show.

    Not UTF-8 in a string column, a timestamp too large for microseconds, or a row too large for Arrow's 32-bit offsets.
    """

class BatchTooLarge(RecordsError):
    """A compressed batch unpacks to more than `max_unpacked_bytes`."""
