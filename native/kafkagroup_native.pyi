"""Decodes Kafka record sets to Arrow record batches, and encodes Arrow rows to Kafka record batches, without the GIL.

Decodes Avro and JSON values to Arrow arrays, and encodes Arrow arrays as Avro values, too.

    builder = BatchBuilder(["key", ("value", "string"), "offset"], batch_rows=100_000)
    for partition in response:                     # topic-partitions may share a batch
        records = RecordSet(partition.bytes, partition.topic, partition.index, from_offset=partition.position)
        while builder.append(records):             # True: the batch is full and the record set has more
            yield pyarrow.record_batch(builder.take())
        partition.position = records.next_offset
    if builder.num_rows:
        yield pyarrow.record_batch(builder.take())

    encoder = BatchEncoder(compression="lz4")
    encoder.identify(producer_id, epoch)           # without this call, the batches are not idempotent
    encoder.append(0, 12, pyarrow.record_batch({"value": values, "key": keys}), now_ms)
    for topic, partition, records, batch in encoder.take(all=True):
        produce(topics[topic], partition, batch)

The tree of errors; those of `RecordsError` have the attributes `topic`, `partition`, `offset` and `reason`:

    ValueError
    ├── UnknownPartition        a row's explicit partition does not exist in its topic
    ├── RecordTooLarge          a row's record is larger than `record_bytes`
    ├── UnfitValue              a row's value does not fit the Avro schema
    └── RecordsError
        ├── CorruptRecords      the bytes are not valid
        ├── OldMessageFormat    magic 0 or 1: use another engine for this partition
        ├── UnreadableRecord    a valid record that the requested columns cannot represent
        └── BatchTooLarge       a compressed batch decompresses to more than `max_unpacked_bytes`
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, final

from typing_extensions import Buffer, CapsuleType

__all__ = [
    "INTERFACE",
    "AvroDecoder",
    "AvroEncoder",
    "Batch",
    "BatchBuilder",
    "BatchEncoder",
    "BatchTooLarge",
    "CorruptRecords",
    "DecodedValues",
    "EncodedValues",
    "JsonDecoder",
    "JsonEncoder",
    "OldMessageFormat",
    "ProtobufDecoder",
    "ProtobufEncoder",
    "RecordSet",
    "RecordTooLarge",
    "RecordsError",
    "Scan",
    "UnfitValue",
    "UnknownPartition",
    "UnreadableRecord",
    "__version__",
    "scan",
]

__version__: str

INTERFACE: int
"""The number of this interface, which kafkagroup compares with the one that it needs before it plans a query."""

class _ArrowArray(Protocol):
    """An object that exports one Arrow array, such as `pyarrow.RecordBatch` (Arrow PyCapsule interface)."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowType(Protocol):
    """An object that exports an Arrow type, such as `pyarrow.DataType` (Arrow PyCapsule interface)."""

    def __arrow_c_schema__(self) -> object: ...

@final
class RecordSet:
    """A cursor over the records of one topic-partition in a Fetch response.

    The bytes may contain any number of RecordBatches (magic 2; KIP-98), and a truncated one at the end. Control batches,
    aborted transactions and the gaps that compaction leaves are skipped; `next_offset` moves past them. The CRC-32C of each
    batch is verified before any of its fields is used.
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
        """Open the part `start:end` (in bytes) of `buffer`.

        A `bytes` or `bytearray` is borrowed until the record set is `done` or deleted: meanwhile a bytearray cannot be
        resized, and you must not write to it. Other buffers (memoryview, mmap) are copied.

        Args:
            buffer: The Fetch response, or any part of it that contains the record set.
            topic: The topic's name, for the `topic` column and for errors.
            partition: The partition number, for the `partition` column and for errors.
            start: The position in `buffer` where the record set starts.
            end: The position where it ends (exclusive); None: the end of `buffer`.
            from_offset: Skip records below this offset. Kafka returns whole batches, so the first may begin earlier.
            to_offset: Skip records at or above this offset.
            aborted_transactions: The response's (producer id, first offset) pairs, in any order. The records of these
                transactions are skipped, as `read_committed` requires (KIP-98). None or empty skips nothing, as for
                `read_uncommitted`, for which the broker sends no pairs.

        Raises:
            ValueError: `start:end` is not a part of `buffer`.
            TypeError: `buffer` does not support the buffer protocol.
        """

    @property
    def next_offset(self) -> int:
        """Return the next offset to fetch: the first one that was neither appended nor skipped. At most `to_offset`.

        After a batch it is the batch's last offset + 1, even if compaction has removed that record. So a range that ends
        with markers or gaps can be finished: it is completely read when `next_offset == to_offset`.
        """

    @property
    def consumed(self) -> int:
        """Return the number of bytes of the finished batches, counted from `start`."""

    @property
    def done(self) -> bool:
        """Return whether there are no more records: `to_offset` is reached, or the rest is a truncated batch or empty."""

    @property
    def partial_batch_bytes(self) -> int | None:
        """Return the full size in bytes of the truncated batch at the end, once the record set is done.

        None if there is no truncated batch, 0 if even its size is truncated. If `consumed` is 0, the fetch size is too
        small for the batch: fetch at least this many bytes.
        """

@final
class Scan:
    """The contents of a record set according to the headers of its batches, which are not verified: no CRC is checked.

    The scan ends before a truncated batch, and before a batch that no broker stores (a magic other than 2, a negative
    offset). `BatchBuilder.append` reports the latter as an error.
    """

    @property
    def next_offset(self) -> int:
        """Return the offset after the last complete batch; the requested position if that is higher."""

    @property
    def cut_off(self) -> int:
        """Return the size in bytes of the first batch if it is truncated, 12 if even its size is truncated, else 0."""

    @property
    def size(self) -> int:
        """Return the size of the complete batches in bytes."""

    @property
    def batches(self) -> int:
        """Return the number of complete batches."""

    @property
    def offsets(self) -> int:
        """Return the number of offsets in the complete batches, including those before the requested position."""

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch in which the last complete batch was written (`partitionLeaderEpoch`); -1: none."""

def scan(buffer: Buffer, from_offset: int, *, start: int = 0, end: int | None = None) -> Scan:
    """Read the headers of the batches in `buffer[start:end]`, to know the next fetch offset before they are decoded.

    Nothing of `buffer` is kept. The GIL is not released, because a batch takes about 20 ns.

    Args:
        buffer: The Fetch response, or any part of it that contains the record set.
        from_offset: The fetch offset that was requested.
        start: The position in `buffer` where the record set starts.
        end: The position where it ends (exclusive); None: the end of `buffer`.

    Raises:
        ValueError: `start:end` is not a part of `buffer`.
        TypeError: `buffer` does not support the buffer protocol.
    """

@final
class BatchBuilder:
    """Collects records of any number of topic-partitions, one after another, into Arrow batches of the requested columns.

    Only one thread at a time may use it; otherwise it raises a RuntimeError.
    """

    def __new__(
        cls,
        columns: Sequence[str | tuple[str, str]],
        *,
        batch_rows: int = 65536,
        batch_bytes: int = 16777216,
        max_unpacked_bytes: int = 268435456,
    ) -> BatchBuilder:
        """Select columns, in this order. All are nullable; the types are those of Spark's `format("kafka")`.

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
            columns: Names, or (name, type) pairs with the types `binary` and `string` for key and value. If empty, the
                batches have only a number of rows.
            batch_rows: Maximum number of rows of a batch.
            batch_bytes: Maximum bytes of a batch's Arrow buffers, up to 2**30. A larger row is a batch of its own.
            max_unpacked_bytes: Maximum decompressed bytes of one RecordBatch, up to 2**31 - 1.

        Raises:
            ValueError: A column or type is unknown, a column is named twice, or a limit is out of its range.
        """

    @property
    def num_rows(self) -> int:
        """Return the number of rows collected since the last `take`."""

    @property
    def num_bytes(self) -> int:
        """Return the bytes of these rows in Arrow buffers."""

    def append(self, record_set: RecordSet) -> bool:
        """Append records until the batch is full or `record_set` is done, without the GIL.

        Returns:
            True if the batch is full: `take` it and append the same record set again. False if the record set is done;
            then more records from other record sets can be appended.

        Raises:
            RecordsError: A record cannot be read; has topic, partition, offset and reason. The rows before it are in the
                builder and can be taken; `record_set.next_offset` is the first offset that was not read. Appending again
                raises the same error.
        """

    def take(self) -> Batch:
        """Return the batch, empty or not, and start the next one."""

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the schema of the batches (Arrow PyCapsule interface), for `pyarrow.schema(builder)`."""

@final
class Batch:
    """A finished batch. `pyarrow.record_batch(batch)` imports it without a copy (Arrow PyCapsule interface)."""

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""

    @property
    def num_bytes(self) -> int:
        """Return the bytes of the Arrow buffers, as counted for `batch_bytes`."""

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the schema."""

    def __arrow_c_array__(self, requested_schema: CapsuleType | None = None) -> tuple[CapsuleType, CapsuleType]:
        """Export the schema, and the data as a struct array. `requested_schema` is ignored: the consumer must cast."""

@final
class BatchEncoder:
    """Encodes rows into record batches (magic 2; KIP-98), by topic and partition. Use one encoder per producer id.

    Rows of a partition keep their order. Only one thread at a time may use it; otherwise it raises a RuntimeError. After
    any error of a method, create a new encoder.
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
        """Create an encoder without batches. Its batches are not idempotent until `identify` is called.

        Args:
            compression: none, gzip, snappy (snappy-java's framing, blocks of 32 KiB), lz4 (frames of independent 64 KiB
                blocks, like Java's) or zstd.
            level: The level for gzip (1 to 9, or -1) or zstd (-131072 to 22); None: the codec's default (6 or 3). The other
                codecs ignore it.
            batch_bytes: Maximum bytes of a batch's records before compression, without the header of 61 bytes, up to
                2**30. A larger record is a batch of its own.
            record_bytes: Maximum bytes of a batch with a single record before compression, with the header of 61 bytes; up
                to 2**30.
            sticky: The first sticky partition for records without a key, modulo the topic's number of partitions.

        Raises:
            ValueError: The compression or level is unknown, or a size is out of its range.
        """

    def identify(self, producer_id: int, epoch: int, *, transactional: bool = False) -> None:
        """Set the producer of all batches that are sealed after this call, and restart every partition's sequence at 0.

        This includes the open batches, so call `take(all=True)` first if they belong to another producer.

        Args:
            producer_id: The producer id from the broker; -1: not idempotent, base sequences are then -1.
            epoch: The producer epoch from the broker; -1: none.
            transactional: The batches belong to a transaction. A broker appends batches without this flag as
                non-transactional.
        """

    def append(self, topic: int, partitions: int, rows: _ArrowArray, timestamp_ms: int) -> None:
        """Append rows to the open batches of one topic's partitions, without the GIL.

        A row goes to its explicit partition; without one, to the partition of its key (murmur2, like Java's producer; an
        empty key counts as a key); without a key, to the topic's sticky partition, which changes to the next partition each
        time its batch is sealed. A batch is sealed before a record that would exceed `batch_bytes`.

        Args:
            topic: The caller's number for the topic.
            partitions: The number of the topic's partitions, up to 2**20.
            rows: A record batch, or a struct array without nulls, whose buffers are read without a copy. All columns except
                `value` are optional:

                - `value`: binary or string; null is a record without a value (a tombstone).
                - `key`: binary or string.
                - `partition`: int32; null if the partitioner chooses.
                - `headers`: list<struct<key, value>>, both binary or string; null and empty lists mean no headers, and a
                  header's value may be null.

                Strings are stored as their bytes. Values, offsets and nulls are checked row by row. The lengths of the
                buffers cannot be checked here; the library that created them must ensure them. pyarrow's `validate()` checks
                them.
            timestamp_ms: The create time of all rows, in milliseconds since 1970; not negative.

        Raises:
            UnknownPartition: An explicit partition is negative or too large.
            RecordTooLarge: A record is larger than `record_bytes`.
            TypeError: `rows` does not export an Arrow array.
            ValueError: A column has an unknown name or another type, a column's offsets do not ascend within its buffers, a
                header has no key, or a number is out of its range.
        """

    def take(self, *, all: bool) -> list[tuple[int, int, int, bytes]]:
        """Return and remove the sealed batches as (topic, partition, number of records, batch), in the order of sealing.

        A batch is complete, with length and CRC-32C: it is the `records` field of a Produce request, or a part of it.

        Args:
            all: Seal the open batches first, by topic and partition.
        """

    def split(self, batch: bytes) -> tuple[bytes, bytes]:
        """Split a batch of several records into two, for example because it exceeds the topic's `max.message.bytes`.

        The records keep their sequence numbers, so that an idempotent producer can send both halves instead of the
        batch. Batches that are sealed later have at most half of its bytes.

        Args:
            batch: A batch that `take` or `split` returned.

        Raises:
            RuntimeError: `batch` is not a batch, or the codec failed.
        """

    @property
    def pending_bytes(self) -> int:
        """Return the bytes of the open batches (not compressed yet) and of sealed ones that were not taken."""

@final
class AvroDecoder:
    """Decodes Avro values into an Arrow array of the reader schema, each value by its own writer schema.

        decoder = AvroDecoder(reader_schema)
        for schema_id in decoder.missing_ids(values):
            decoder.add_writer_schema(schema_id, registry[schema_id])
        decoded = decoder.decode(values)
        column, bad = pyarrow.array(decoded), decoded.bad

    The schemas are resolved as Java's Avro 1.12 does it (`org.apache.avro.Resolver`): aliases, defaults, promotions,
    unions, enums with a default. The types are those of Spark's `SchemaConverters.toSqlType` (4.1): a union with null is
    nullable, int and long are long, float and double are double, another union is a struct of `member0`, `member1`, …;
    an enum is a string, a fixed is binary, `decimal`, `date`, `timestamp-millis` and `-micros` (UTC) and
    `local-timestamp-millis` and `-micros` have their types, with microseconds; all other logical types are ignored.

    A decoder may be used by one thread at a time.
    """

    def __new__(
        cls,
        reader_schema: str,
        *,
        wanted: _ArrowType | None = None,
        framing: str = "confluent",
        recursive_depth: int = 0,
        max_decoded_bytes: int = 67108864,
    ) -> AvroDecoder:
        """Make a decoder without writer schemas.

        Args:
            reader_schema: The schema of the column, as JSON.
            wanted: A type whose structs name the fields that are decoded, at any depth and in this order; None: all. Others
                are checked and skipped. All else about it is of no interest.
            framing: What precedes a datum. `confluent`: a zero byte and the schema id of 4 bytes. `apicurio`: a zero byte
                and the id of 8 bytes. `single-object`: C3 01 and the CRC-64-AVRO fingerprint of the schema, which is its
                id. `glue`: a byte 3, the compression (0, or 5 for zlib) and a UUID of 16 bytes; `none`: nothing; in both
                the id of the writer schema is 0. Ids are unsigned.
            recursive_depth: How often a record may contain itself, from 1 to 15, as Spark's `recursiveFieldMaxDepth`;
                fields below are left out. With less, a record in itself is a string with its JSON.
            max_decoded_bytes: What a record may take when it is decoded, below 2^30. A larger one is bad.

        Raises:
            ValueError: The schema is not valid or cannot be a column, there is no such field, or no such framing.
        """

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the type of the decoded array (Arrow PyCapsule interface): a struct for a record."""

    def add_writer_schema(self, schema_id: int, schema: str) -> None:
        """Add a writer schema, as JSON, or replace the one with this id.

        Raises:
            ValueError: No value of this writer schema can be read with the reader schema; the message has the path. If
                only some values cannot, such as those of a branch of a union, these are bad records.
        """

    def missing_ids(self, values: _ArrowArray) -> tuple[list[int], int]:
        """Return the ids of the values without a writer schema, each once, in ascending order.

        The 500 schemas that were met last are kept. The second number says how many of the values, from the first one
        on, have no more schemas than that: decode these before the others are looked at.

        Raises:
            ValueError: `values` is not an array of binary or large_binary.
        """

    def decode(self, values: _ArrowArray, *, batch_bytes: int = 1073741823) -> DecodedValues:
        """Decode values, one at least, until they take `batch_bytes`; the rows of the result are in the same order.

        A null value, and a value that cannot be decoded, is null. Bytes after a datum are ignored, as in Java.

        Raises:
            ValueError: `values` is not an array of binary or large_binary.
        """

@final
class ProtobufDecoder:
    """Decodes Protobuf values into an Arrow array of the fields of one message.

        decoder = ProtobufDecoder(schema)
        for schema_id in decoder.missing_ids(values):
            decoder.add_writer_schema(schema_id, registry[schema_id])
        decoded = decoder.decode(values)
        column, bad = pyarrow.array(decoded), decoded.bad

    The types are those of spark-protobuf's `SchemaConverters`: int32 is int32, all numbers of 64 bits are int64 (a uint64
    above 2^63 is negative, as in Java), an enum is a string, a message is a struct, and `google.protobuf.Timestamp` and
    `Duration` are a timestamp (UTC) and a duration in microseconds. uint32 is int64, so that it never is negative. A
    field without presence has its default where a record does not have it; one with presence is null.

    Fields are found by number, whichever schema wrote a record. A field with another wire type than the schema says is
    passed over, as one that the schema does not have. A record without a required field, a string that is not UTF-8 and
    bytes that are no message are bad. A decoder may be used by one thread at a time.
    """

    def __new__(
        cls,
        schema: str | bytes,
        *,
        imports: Mapping[str, str] | None = None,
        message: str | None = None,
        wanted: _ArrowType | None = None,
        framing: str = "confluent",
        recursive_depth: int = 0,
        max_decoded_bytes: int = 67108864,
    ) -> ProtobufDecoder:
        """Make a decoder without writer schemas.

        Args:
            schema: The schema of the column: the text of a `.proto` file, or a `FileDescriptorSet` with all imports.
            imports: The texts of the files that the text imports, by name. Those that Confluent's
                registry knows need none: `google/protobuf/…`, `google/type/…`, `confluent/…`. Custom options are ignored.
            message: The full name of the message; None: the first one of the schema.
            wanted: A type whose structs name the fields that are decoded, as in `AvroDecoder`.
            framing: What precedes a message, as in `AvroDecoder`. After an id come the message indexes of Confluent's
                framing.
            recursive_depth: As in `AvroDecoder`.
            max_decoded_bytes: As in `AvroDecoder`.

        Raises:
            ValueError: The schema is not valid or cannot be a column, there is no such message or field, or no such
                framing.
        """

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the type of the decoded array (Arrow PyCapsule interface): a struct."""

    def add_writer_schema(self, schema_id: int, schema: str) -> None:
        """Add a writer schema, the text of a `.proto` file, or replace the one with this id.

        The text says which message the indexes of a record mean, so its imports are not needed.

        Raises:
            ValueError: The text is not valid, or has no message with the name of the column's.
        """

    def message_of(self, value: bytes) -> str:
        """Return the full name of a value's message, which its indexes name, in the package of the column's message.

        Raises:
            ValueError: The value has no frame or no such indexes, or no writer schema was added for its id.
        """

    def missing_ids(self, values: _ArrowArray) -> tuple[list[int], int]:
        """Return the ids of the values without a writer schema, each once, in ascending order.

        The 500 schemas that were met last are kept. The second number says how many of the values, from the first one
        on, have no more schemas than that: decode these before the others are looked at.

        Raises:
            ValueError: `values` is not an array of binary or large_binary.
        """

    def decode(self, values: _ArrowArray, *, batch_bytes: int = 1073741823) -> DecodedValues:
        """Decode values, one at least, until they take `batch_bytes`; the rows of the result are in the same order.

        A null value, and a value that cannot be decoded, is null.

        Raises:
            ValueError: `values` is not an array of binary or large_binary.
        """

@final
class JsonDecoder:
    """Decodes JSON values into an Arrow array of a type, as Spark's `from_json` does.

        decoded = JsonDecoder(pyarrow.struct({"id": pyarrow.int64()})).decode(values)
        column, bad = pyarrow.array(decoded), decoded.bad

    Types are boolean, int32, int64, float32, float64, decimal128, date32, timestamp in microseconds (UTC or without a
    zone), string, binary (Base64), list, map with strings as keys, and struct. All may be null. A field that the type does
    not have is checked and skipped, one that a value does not have is null, and of one that comes twice the last one counts.

    A decoder may be used by one thread at a time.
    """

    def __new__(
        cls, kind: _ArrowType, *, framing: str = "none", checks_ids: bool = False, max_decoded_bytes: int = 67108864
    ) -> JsonDecoder:
        """Make a decoder.

        Args:
            kind: The type of the array.
            framing: What precedes the text of each value; see `AvroDecoder`.
            checks_ids: Whether a value with an id of `confluent` or `apicurio` is bad unless its schema was added.
            max_decoded_bytes: As in `AvroDecoder`.

        Raises:
            ValueError: JSON cannot be read as this type; the message has the path. Or the framing is not known.
        """

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the type of the decoded array (Arrow PyCapsule interface), in which all may be null."""

    def add_writer_schema(self, schema_id: int, schema: str) -> None:
        """Add the id of a schema that values may name. The schema does not change how values are read."""

    def missing_ids(self, values: _ArrowArray) -> tuple[list[int], int]:
        """Return the ids that were not added, as `AvroDecoder` does; none unless the decoder checks ids."""

    def decode(self, values: _ArrowArray, *, batch_bytes: int = 1073741823) -> DecodedValues:
        """Decode values, one at least, until they take `batch_bytes`; the rows of the result are in the same order.

        A null value, a JSON null, and a value that cannot be decoded, is null.

        Raises:
            ValueError: `values` is not an array of binary or large_binary.
        """

@final
class AvroEncoder:
    """Encodes the rows of Arrow arrays, each as an Avro value of one schema.

        encoder = AvroEncoder(schema, schema_id=7)
        encoder.check(column.type)
        values = pyarrow.array(encoder.encode(column))

    A column fits as in Spark's `AvroSerializer` (4.1): fields are found by their names, in any case if that is clear;
    integers, date and timestamps are written as int and long, a timestamp as milliseconds if the long has no logical type,
    strings as string or enum, binary as bytes or fixed, a struct of `member0`, `member1`, … as a union. Besides, an int is
    written as a long, a float as a double, a decimal as any decimal of its scale, and a field that the column does not have
    as its default, or else as null. Maps, lists and strings may have 64-bit offsets.

    Threads may share an encoder.
    """

    def __new__(cls, schema: str, *, schema_id: int | None) -> AvroEncoder:
        """Make an encoder.

        Args:
            schema: The schema, as JSON.
            schema_id: Its id, which precedes each value as in Confluent's framing; None: nothing precedes it.

        Raises:
            ValueError: The schema is not valid.
        """

    def check(self, kind: _ArrowType) -> None:
        """Check whether arrays of a type can be encoded.

        Raises:
            ValueError: They cannot; the message has the path, the type in Spark's SQL and the type of the schema.
        """

    def encode(self, values: _ArrowArray) -> EncodedValues:
        """Encode all rows, in the same order; a null row stays null.

        Raises:
            UnfitValue: The value of a row does not fit: a null where the schema has none, a string that is no symbol of
                the enum or no UTF-8, bytes of another length than the fixed, a decimal with too many digits. The message
                has the path, and never a part of the value.
            ValueError: See `check`; or the values have more than 2^31 bytes.
        """

@final
class ProtobufEncoder:
    """Encodes the rows of Arrow arrays of structs, each as a Protobuf message.

        encoder = ProtobufEncoder(schema, schema_id=7)
        encoder.check(column.type)
        values = pyarrow.array(encoder.encode(column))

    A column fits as in spark-protobuf's `ProtobufSerializer`: fields are found by their names, in any case if that is clear.
    Integers are written as any integer that is not narrower, a timestamp (of an instant) and a duration as
    `google.protobuf.Timestamp` and `Duration`, a string as string or enum, a list as a repeated field. Besides, a float is
    written as a double, and an int64 as a uint32 or fixed32 if it is one. Integers keep their bits in unsigned fields of
    the same size, as in Java. A null is a field that is not set.

    Threads may share an encoder.
    """

    def __new__(
        cls,
        schema: str | bytes,
        *,
        schema_id: int | None,
        imports: Mapping[str, str] | None = None,
        message: str | None = None,
    ) -> ProtobufEncoder:
        """Make an encoder.

        Args:
            schema: The text of a `.proto` file, or a `FileDescriptorSet` with all imports.
            schema_id: The id of the schema, which precedes each message with its indexes, as in Confluent's framing; None:
                nothing precedes it.
            imports: The texts of the files that the text imports, by name. Those of `google/protobuf` are known.
            message: The full name of the message; None: the first one of the schema.

        Raises:
            ValueError: The schema is not valid or has no such message; or, with an id, the message is in an imported file.
        """

    def check(self, kind: _ArrowType) -> None:
        """Check whether arrays of a type can be encoded; raises as `AvroEncoder.check`."""

    def encode(self, values: _ArrowArray) -> EncodedValues:
        """Encode all rows, in the same order; a null row stays null.

        Raises:
            UnfitValue: The value of a row does not fit: a null in a list, a map or a required field, several members of a
                oneof, a string that is no symbol of the enum or no UTF-8, a number that is none of uint32. The message has
                the path, and never a part of the value.
            ValueError: See `check`; or the values have more than 2^31 bytes.
        """

@final
class JsonEncoder:
    """Encodes the rows of Arrow arrays of structs, lists or maps, each as a JSON text, as Spark's `to_json` does.

    Nulls of structs are left out. Numbers have the texts of Java, infinities and NaN are strings. Bytes are strings in
    Base64, dates and timestamps strings of ISO 8601; an instant is in UTC, and has microseconds where they are not 0.

    Threads may share an encoder.
    """

    def __new__(cls, *, schema_id: int | None) -> JsonEncoder:
        """Make an encoder.

        Args:
            schema_id: The id of a JSON Schema, which precedes each text as in Confluent's framing; None: nothing does.
        """

    def check(self, kind: _ArrowType) -> None:
        """Check whether arrays of a type can be encoded; raises as `AvroEncoder.check`."""

    def encode(self, values: _ArrowArray) -> EncodedValues:
        """Encode all rows, in the same order; a null row stays null.

        Raises:
            UnfitValue: The value of a row does not fit: a string that is no UTF-8. The message has the path.
            ValueError: See `check`; or the values have more than 2^31 bytes.
        """

@final
class EncodedValues:
    """The encoded values, as an Arrow array of binary."""

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the array's type (Arrow PyCapsule interface)."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]:
        """Export the array without a copy (Arrow PyCapsule interface)."""

@final
class DecodedValues:
    """The decoded column, and which of its values are bad."""

    @property
    def bad(self) -> list[tuple[int, int | None, str]]:
        """Return the row, the schema id and the reason of each value that could not be decoded.

        The id is None if the value has none. The reason has the path of the field and never a part of the value.
        """

    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the type (Arrow PyCapsule interface)."""

    def __arrow_c_array__(self, requested_schema: CapsuleType | None = None) -> tuple[CapsuleType, CapsuleType]:
        """Export the array (Arrow PyCapsule interface); `requested_schema` is ignored."""

class UnknownPartition(ValueError):
    """A row's explicit partition does not exist in its topic."""

    topic: int
    """The caller's number for the topic."""
    partition: int
    """The explicit partition."""
    partitions: int
    """The number of partitions of the topic."""
    row: int
    """The row, from 0 in this `append`."""

class RecordTooLarge(ValueError):
    """A row's record is larger than `record_bytes`."""

    topic: int
    """The caller's number for the topic."""
    partition: int
    """The partition of the record."""
    row: int
    """The row, from 0 in this `append`."""
    size: int
    """The size in bytes, counted as for `record_bytes`. With many headers, counting stops above the limit."""
    limit: int
    """The value of `record_bytes`."""

class UnfitValue(ValueError):
    """The value of a row does not fit the schema with which it is written."""

    row: int
    """The row, from 0 in this `encode`."""

class RecordsError(ValueError):
    """A record set cannot be read any further; the base of all errors in reading."""

    topic: str
    """The topic."""
    partition: int
    """The partition number."""
    offset: int
    """The first offset that could not be read."""
    reason: str
    """The reason, without topic, partition and offset."""

class CorruptRecords(RecordsError):
    """The bytes are not valid: a wrong CRC, a field out of its bounds, data that cannot be decompressed."""

class OldMessageFormat(RecordsError):
    """A message set with magic 0 or 1, written before Kafka 0.11: use another engine for this partition."""

class UnreadableRecord(RecordsError):
    """A valid record that the requested columns cannot represent.

    A string column is not UTF-8, a timestamp is too large for microseconds, or a row is too large for Arrow's 32-bit
    offsets.
    """

class BatchTooLarge(RecordsError):
    """A compressed batch decompresses to more than `max_unpacked_bytes`."""
