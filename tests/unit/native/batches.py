"""Record batches made without the native engine's libraries (kafka-python, zlib, pyarrow), and rows out of Arrow."""

import gzip
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from tests.support.native import kernel

if TYPE_CHECKING:
    import kafkagroup_native
else:
    kafkagroup_native = kernel()

HEADER = DefaultRecordBatch.HEADER_STRUCT
ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
TOPIC, PARTITION = "orders", 5
ABORT, COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class Row:
    """A record as a reader should see it; `timestamp` in ms."""

    offset: int
    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: int = 0


def _framed_snappy(data: bytes) -> bytes:
    blocks = [_packed("snappy", data[i : i + 50]) for i in range(0, len(data), 50)]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def _packed(codec: str, data: bytes) -> bytes:
    return bytes(pa.compress(data, codec=codec, asbytes=True))


def _stream(codec: str, data: bytes) -> bytes:
    """As streaming writers (zstd-jni) do: no content size in the frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy": (2, lambda data: _packed("snappy", data)),
    "framed snappy": (2, _framed_snappy),
    "lz4": (3, lambda data: _packed("lz4", data)),
    "lz4 stream": (3, lambda data: _stream("lz4", data)),
    "zstd": (4, lambda data: _packed("zstd", data)),
    "zstd stream": (4, lambda data: _stream("zstd", data)),
}


def batch(
    rows: Sequence[Row],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: str = "none",
    log_append_time: int | None = None,
    producer_id: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A batch as a broker stores it; `base_offset` and `last_offset` may lie beyond the rows, as after compaction."""
    base = base_offset if base_offset is not None else rows[0].offset
    last = last_offset if last_offset is not None else rows[-1].offset
    builder = DefaultRecordBatchBuilder(2, 0, transactional, producer_id, 0, 0, 1 << 31)
    for row in rows:
        builder.append(row.offset - base, row.timestamp, row.key, row.value, list(row.headers))
    plain = bytes(builder.build())
    fields = list(HEADER.unpack_from(plain))
    number, pack = CODECS[codec]
    records = pack(plain[HEADER.size :]) if rows else b""
    fields[0], fields[1], fields[6] = base, 49 + len(records), last - base
    fields[5] |= number | (0x20 if control else 0) | (0x08 if log_append_time is not None else 0)
    if log_append_time is not None:
        fields[8] = log_append_time
    return with_crc(HEADER.pack(*fields) + records)


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    """The control batch that ends a transaction."""
    row = Row(offset, key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 1))
    return batch([row], producer_id=producer_id, transactional=True, control=True)


def with_crc(data: bytes) -> bytes:
    """The batch with its CRC made right."""
    return data[:17] + struct.pack(">I", calc_crc32c(data[21:])) + data[21:]


@dataclass(slots=True)
class Decoded:
    """What came out, the cursor as it was left, and the error that ended it."""

    rows: list[Row]
    records: kafkagroup_native.RecordSet
    batches: list[pa.RecordBatch] = field(default_factory=list)
    error: kafkagroup_native.RecordsError | None = None


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch of all columns; checks that topic and partition are right."""
    batch.validate(full=True)
    columns = [batch.column(name) for name in ALL]
    columns[5] = columns[5].cast(pa.int64())
    rows = []
    for key, value, topic, partition, offset, timestamp, kind, headers in zip(
        *(column.to_pylist() for column in columns), strict=True
    ):
        assert (topic, partition, timestamp % 1000) == (TOPIC, PARTITION, 0)
        assert headers is None or headers
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        rows.append(Row(offset, value, key, timestamp // 1000, pairs, kind))
    return rows


def decode(data: Any, *, builder: dict[str, Any] | None = None, **cursor: Any) -> Decoded:
    """Reads a record set to its end, or to an error, in all columns."""
    arrow = kafkagroup_native.BatchBuilder(ALL, **(builder or {}))
    decoded = Decoded([], kafkagroup_native.RecordSet(data, TOPIC, PARTITION, **cursor))
    more = True
    while more:
        try:
            more = arrow.append(decoded.records)
        except kafkagroup_native.RecordsError as error:
            decoded.error, more = error, False
        decoded.batches.append(pa.record_batch(arrow.take()))
        decoded.rows += rows_of(decoded.batches[-1])
    return decoded
