"""Arrow rows to record batches: the bytes that kafka-python would make, in batches that a model of the rules makes."""

import io
import platform
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafkagroup.partitioner import partition_of
from tests.support.native import kernel, lets_threads_run
from tests.unit.native.batches import HEADER, Row, batch, decode, with_crc

kafkagroup_native = kernel()

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """A row as a user gives it."""

    value: bytes | None = b"v"
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


def columns(rows: Sequence[Record], before: int = 0, after: int = 0) -> pa.RecordBatch:
    """The rows as `append` takes them, as slices of longer arrays."""
    padding = Record(b"none of the rows", b"k", 0, (("not", b"mine"),))
    longer = [*[padding] * before, *rows, *[padding] * after]

    def sliced(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).slice(before, len(rows))

    headers = [row.headers and [{"key": key, "value": value} for key, value in row.headers] for row in longer]
    return pa.record_batch(
        {
            "value": sliced([row.value for row in longer], pa.binary()),
            "key": sliced([row.key for row in longer], pa.binary()),
            "partition": sliced([row.partition for row in longer], pa.int32()),
            "headers": sliced(headers, HEADERS),
        }
    )


def values_of(*values: bytes | None) -> pa.RecordBatch:
    """Rows of a value only."""
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def size_of(row: Record, number: int, delay: int) -> int:
    """Bytes of the record at place `number` of its batch, `delay` ms after the first."""
    return DefaultRecordBatchBuilder.size_in_bytes(number, delay, row.key, row.value, list(row.headers or ()))


@dataclass(slots=True)
class Model:
    """The rules, slowly."""

    batch_bytes: int
    sticky: int
    producer: tuple[int, int, bool]
    filling: dict[tuple[int, int], list[tuple[Record, int]]] = field(default_factory=dict)
    stuck: dict[int, int] = field(default_factory=dict)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    partitions: dict[int, int] = field(default_factory=dict)
    sealed: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def append(self, topic: int, partitions: int, rows: Sequence[Record], now: int) -> None:
        self.partitions[topic] = partitions
        self.stuck[topic] = self.stuck.get(topic, self.sticky) % partitions
        for row in rows:
            fixed = row.partition
            if fixed is None and row.key is not None:
                fixed = partition_of(row.key, partitions)
            while True:
                place = topic, self.stuck[topic] if fixed is None else fixed
                records = self.filling.setdefault(place, [])
                used = sum(size_of(r, i, at - records[0][1]) for i, (r, at) in enumerate(records))
                more = size_of(row, len(records), now - records[0][1] if records else 0)
                if not records or used + more <= self.batch_bytes:
                    records.append((row, now))
                    break
                self.seal(*place)

    def seal(self, topic: int, partition: int) -> None:
        records = self.filling.pop((topic, partition), [])
        if not records:
            return
        identity, epoch, transactional = self.producer
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(records)
        builder = DefaultRecordBatchBuilder(
            2, 0, transactional, identity, epoch, -1 if identity < 0 else sequence, 1 << 31
        )
        for i, (row, at) in enumerate(records):
            builder.append(i, at, row.key, row.value, list(row.headers or ()))
        self.sealed.append((topic, partition, len(records), bytes(builder.build())))
        if self.stuck[topic] == partition:
            self.stuck[topic] = (partition + 1) % self.partitions[topic]

    def take(self) -> list[tuple[int, int, int, bytes]]:
        for place in sorted(self.filling):
            self.seal(*place)
        taken, self.sealed = self.sealed, []
        return taken


def varint_bytes(data: bytes) -> int:
    return next(i for i, byte in enumerate(data, 1) if byte < 0x80)


def unpacked(codec: str, data: bytes) -> bytes:
    """Records as other libraries than the encoder's unpack them."""
    if codec == "none":
        return data
    if codec == "gzip":
        return zlib.decompress(data, 16 + zlib.MAX_WBITS)
    if codec in ("lz4", "zstd"):
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())
    assert data[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    blocks, stream = [], io.BytesIO(data[16:])
    while head := stream.read(4):
        block = stream.read(int.from_bytes(head, "big"))
        claimed = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(block[: varint_bytes(block)]))
        assert claimed <= 32 << 10
        blocks.append(pa.decompress(block, decompressed_size=claimed, codec="snappy", asbytes=True))
    return b"".join(blocks)


def plain(codec: str, encoded: bytes) -> bytes:
    """The same batch without its codec; checks length, codec and CRC of what it is made from."""
    assert with_crc(encoded) == encoded and len(encoded) == 12 + int.from_bytes(encoded[8:12], "big")
    fields = list(HEADER.unpack_from(encoded))
    assert fields[5] & 7 == CODECS[codec] and fields[2] == -1
    records = unpacked(codec, encoded[HEADER.size :])
    fields[2] = 0  # The leader's epoch is the broker's to write; kafka-python leaves 0 there.
    fields[1], fields[5] = 49 + len(records), fields[5] & ~7
    return with_crc(HEADER.pack(*fields) + records)


binaries = st.binary(max_size=30) | st.sampled_from([b"x" * 100, b"y" * 9000])
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
PARTITIONS = 4
records = st.builds(
    Record,
    st.none() | binaries,
    st.none() | binaries,
    st.none() | st.none() | st.integers(0, PARTITIONS - 1),
    st.none() | header_lists,
)
calls = st.tuples(
    st.integers(0, 2), st.lists(records, max_size=12), st.integers(0, 9), st.integers(0, 3), st.integers(-5, 300)
)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(calls, max_size=6),
    st.sampled_from(sorted(CODECS)),
    st.integers(1, 400) | st.just(100_000),
    st.integers(0, 7),
    st.sampled_from([(-1, -1, False), (4711, 3, False), (1 << 40, 0, True)]),
    st.sets(st.integers(0, 6)),
)
def test_batches_are_those_of_the_model_and_kafka_pythons_bytes(calls, codec, batch_bytes, sticky, producer, takes):
    model = Model(batch_bytes, sticky, producer)
    encoder = kafkagroup_native.BatchEncoder(compression=codec, batch_bytes=batch_bytes, sticky=sticky)
    identity, epoch, transactional = producer
    encoder.identify(identity, epoch, transactional=transactional)
    expected, given_out = [], []
    for i, (topic, rows, before, after, delay) in enumerate(calls):
        encoder.append(topic, PARTITIONS, columns(rows, before, after), NOW + delay)
        model.append(topic, PARTITIONS, rows, NOW + delay)
        if i in takes:
            expected += model.take()
            given_out += encoder.take(all=True)
            assert encoder.pending_bytes == 0
    given_out += encoder.take(all=False)
    given_out += encoder.take(all=True)
    assert [
        (topic, partition, count, plain(codec, encoded)) for topic, partition, count, encoded in given_out
    ] == expected + model.take()


@pytest.mark.parametrize(
    ("codec", "level"), [*((codec, None) for codec in CODECS), ("gzip", 1), ("gzip", -1), ("zstd", 19), ("zstd", -7)]
)
def test_large_batches_of_every_codec_unpack_elsewhere(codec, level):
    rows = [Record(b"%d " % i * (i % 300), b"key") for i in range(3000)]
    encoder = kafkagroup_native.BatchEncoder(compression=codec, level=level)
    encoder.append(0, 1, columns(rows), NOW)
    batches = encoder.take(all=True)
    assert len(batches) > 1 and sum(count for _, _, count, _ in batches) == len(rows)
    start = 0
    for _, _, count, encoded in batches:
        expected = [Row(i, row.value, row.key, NOW) for i, row in enumerate(rows[start : start + count])]
        assert plain(codec, encoded) == with_identity(batch(expected, producer_id=-1))
        start += count
    if codec == "lz4":  # Magic, independent blocks of 64 KiB, the sum of these flags: as Java writes it.
        assert batches[0][3][61:68] == bytes.fromhex("04224d18604082")


def with_identity(encoded: bytes, epoch: int = -1, sequence: int = -1) -> bytes:
    return with_crc(encoded[:51] + struct.pack(">hi", epoch, sequence) + encoded[57:])


def no_rows(kind: pa.DataType) -> pa.Array:
    """An array without rows and, as Arrow allows there, without offsets."""
    return pa.Array.from_buffers(kind, 0, [None, None, pa.py_buffer(b"")])


def test_columns_may_be_left_out_and_empty():
    encoder = kafkagroup_native.BatchEncoder(sticky=2)
    encoder.append(0, 3, values_of(), NOW)
    encoder.append(1, 2**20, values_of(), 0)
    encoder.append(0, 3, pa.record_batch({"value": no_rows(pa.binary()), "key": no_rows(pa.string())}), NOW)
    assert encoder.take(all=True) == [] and encoder.pending_bytes == 0
    encoder.append(0, 3, values_of(b"a", b"b"), NOW)
    assert encoder.pending_bytes > 61
    entries = pa.StructArray.from_arrays([no_rows(pa.string()), no_rows(pa.binary())], fields=list(HEADERS.value_type))
    headers = pa.Array.from_buffers(HEADERS, 1, [None, pa.py_buffer(bytes(8))], children=[entries])
    encoder.append(0, 3, pa.record_batch({"value": pa.array([b"c"]), "headers": headers}), NOW)
    [(topic, partition, count, encoded)] = encoder.take(all=True)
    assert (topic, partition, count) == (0, 2, 3)
    assert [(row.value, row.headers) for row in decode(encoded).rows] == [(b"a", ()), (b"b", ()), (b"c", ())]


def one_batch(rows: Any) -> list[Row]:
    """The records that `rows` become, in the one partition that there is."""
    encoder = kafkagroup_native.BatchEncoder()
    encoder.append(0, 1, rows, NOW)
    [(_, _, _, encoded)] = encoder.take(all=True)
    return decode(encoded).rows


def test_strings_are_taken_as_their_bytes():
    headers = pa.array([[("h", b"x")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    rows = pa.record_batch({"value": pa.array(["grün"]), "key": pa.array(["k"]), "headers": headers})
    assert one_batch(rows) == [Row(0, "grün".encode(), b"k", NOW, (("h", b"x"),))]
    # Spark's strings hold what was cast to them.
    no_text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    assert one_batch(pa.record_batch({"value": no_text})) == [Row(0, b"\xff\xfe", None, NOW)]


def test_headers_may_have_keys_in_any_order_and_of_binary():
    kind = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.binary())]))
    headers = pa.array([[{"key": b"a", "value": b"1"}, {"key": b"b", "value": None}]], kind)
    rows = one_batch(pa.record_batch({"headers": headers, "value": pa.array([b"v"])}))
    assert rows == [Row(0, b"v", None, NOW, (("a", b"1"), ("b", None)))]


def test_a_struct_array_serves_and_so_does_a_part_of_it():
    rows = columns([Record(b"%d" % i, b"k") for i in range(20)], 3)
    assert one_batch(rows.to_struct_array().slice(5, 7)) == [Row(i, b"%d" % (5 + i), b"k", NOW) for i in range(7)]
    with_null = pa.StructArray.from_arrays([pa.array([b"a", b"b"])], ["value"], mask=pa.array([False, True]))
    with pytest.raises(ValueError, match="null as a whole"):
        one_batch(with_null)
    assert one_batch(with_null.slice(0, 1)) == [Row(0, b"a", None, NOW)]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (pa.record_batch({"key": pa.array([b"k"])}), "no column value"),
        (pa.record_batch({"value": pa.array([b"v"]), "topic": pa.array(["t"])}), "unknown column topic"),
        (pa.RecordBatch.from_arrays([pa.array([b"v"])] * 2, names=["value", "value"]), "value is there twice"),
        (pa.record_batch({"value": pa.array([1])}), "column value is binary, not Int64"),
        (pa.record_batch({"value": pa.array([b"v"], pa.large_binary())}), "column value is binary, not LargeBinary"),
        (pa.record_batch({"value": pa.array([b"v"]), "partition": pa.array([1])}), "column partition is int32"),
        (pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([["h"]])}), "column headers is list<struct"),
        (pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([[{"key": "h"}]])}), "column headers is list"),
        (pa.array([b"v"]), "not an array of Binary"),
    ],
)
def test_columns_of_another_kind_are_refused(rows, reason):
    with pytest.raises(ValueError, match=reason):
        kafkagroup_native.BatchEncoder().append(0, 1, rows, NOW)


@pytest.mark.parametrize("rows", [None, b"v", [b"v"], pa.table({"value": pa.array([b"v"])})])
def test_what_is_no_arrow_array_is_a_type_error(rows):
    with pytest.raises(TypeError, match="an Arrow array or record batch is wanted"):
        kafkagroup_native.BatchEncoder().append(0, 1, rows, NOW)


class Exported:
    """Gives these capsules to whoever asks."""

    def __init__(self, capsules: Any) -> None:
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.capsules


def test_capsules_serve_once_and_under_their_names():
    schema, array = values_of(b"v").__arrow_c_array__()
    assert one_batch(Exported((schema, array))) == [Row(0, b"v", None, NOW)]
    with pytest.raises(ValueError, match="taken by another consumer"):
        one_batch(Exported((schema, array)))
    schema, array = values_of(b"v").__arrow_c_array__()
    for wrong in [(array, schema), (schema, schema), (array, array)]:
        with pytest.raises(ValueError, match="incorrect name"):
            one_batch(Exported(wrong))
    for no_pair in [None, (), (schema,), (schema, b"array"), (schema, array, array)]:
        with pytest.raises((TypeError, ValueError)):
            one_batch(Exported(no_pair))
    # None of these has taken the array.
    assert one_batch(Exported((schema, array))) == [Row(0, b"v", None, NOW)]


def test_buffers_are_let_go_of_with_the_call():
    data = bytes(range(256))
    ends = struct.pack("<iii", 0, 100, 256)
    counts = sys.getrefcount(data), sys.getrefcount(ends)

    def rows(name: str) -> pa.RecordBatch:
        column = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(ends), pa.py_buffer(data)])
        return pa.RecordBatch.from_arrays([column], names=[name])

    for name, record_bytes, reason in [("value", 200, "exceeds the limit"), ("text", 1000, "unknown column")]:
        with pytest.raises(ValueError, match=reason):
            kafkagroup_native.BatchEncoder(record_bytes=record_bytes).append(0, 1, rows(name), NOW)
    kafkagroup_native.BatchEncoder().append(0, 1, rows("value"), NOW)
    assert (sys.getrefcount(data), sys.getrefcount(ends)) == counts


def test_a_partition_that_is_not_there_names_its_row():
    for wrong in (-1, 3, 2**31 - 1):
        encoder = kafkagroup_native.BatchEncoder()
        with pytest.raises(kafkagroup_native.UnknownPartition, match=str(wrong)) as caught:
            encoder.append(9, 3, columns([Record(partition=2), Record(partition=wrong)], 5), NOW)
        unknown = caught.value
        assert issubclass(kafkagroup_native.UnknownPartition, ValueError)
        assert (unknown.topic, unknown.partition, unknown.partitions, unknown.row) == (9, wrong, 3, 1)


def test_a_record_over_the_limit_names_its_row_and_size():
    rows = [Record(b"x" * 930), Record(b"x" * 931)]  # 61 bytes of header and 9 of lengths and deltas.
    encoder = kafkagroup_native.BatchEncoder(record_bytes=1000)
    with pytest.raises(kafkagroup_native.RecordTooLarge, match="1001 bytes") as caught:
        encoder.append(9, 1, columns(rows), NOW)
    error = caught.value
    assert (error.topic, error.partition, error.row, error.size, error.limit) == (9, 0, 1, 1001, 1000)
    heavy = Record(headers=tuple((f"h{i}", b"x" * 100) for i in range(50)))
    with pytest.raises(kafkagroup_native.RecordTooLarge):
        kafkagroup_native.BatchEncoder(record_bytes=1000).append(9, 1, columns([heavy]), NOW)


def test_a_topic_may_grow():
    encoder = kafkagroup_native.BatchEncoder(sticky=0)
    encoder.append(0, 1, columns([Record()]), NOW)
    encoder.append(0, 5, columns([Record(key=b"k"), Record(partition=4)]), NOW)
    assert sorted({partition for _, partition, _, _ in encoder.take(all=True)}) == sorted({0, 4, partition_of(b"k", 5)})
    encoder.append(0, 5, columns([Record()]), NOW)
    assert encoder.take(all=True)[0][1] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"compression": "lzma"},
        {"compression": "gzip", "level": 0},
        {"compression": "zstd", "level": 23},
        {"batch_bytes": 0},
        {"batch_bytes": 2**30 + 1},
        {"record_bytes": 0},
        {"record_bytes": -1},
        {"sticky": -1},
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=r"not|unknown"):
        kafkagroup_native.BatchEncoder(**wrong)


@pytest.mark.parametrize(("partitions", "now"), [(0, NOW), (2**20 + 1, NOW), (-1, NOW), (1, -1)])
def test_numbers_out_of_range_are_refused(partitions, now):
    with pytest.raises(ValueError, match="not"):
        kafkagroup_native.BatchEncoder().append(0, partitions, values_of(b"v"), now)


def test_a_header_without_a_key_is_refused():
    headers = pa.array([[], [{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(ValueError, match="row 1: a header has no key"):
        one_batch(pa.record_batch({"value": pa.array([b"v", b"v"]), "headers": headers}))


@st.composite
def mangled(draw: st.DrawFn, kind: pa.DataType, rows: int) -> pa.Array:
    """An array whose validity and offsets are any, but for the first and the last offset, which pyarrow checks."""
    first = draw(st.integers(0, 9))
    if pa.types.is_list(kind):
        entries = draw(st.integers(0, 12))
        children = [draw(mangled(field.type, entries)) for field in kind.value_type]
        inner = [pa.StructArray.from_arrays(children, fields=list(kind.value_type))]
        most, data = entries, []
    else:
        content = draw(st.binary(max_size=40))
        most, data, inner = len(content), [pa.py_buffer(content)], []
    inside = st.integers(0, most)
    offsets = sorted(draw(st.lists(inside, min_size=first + rows + 1, max_size=first + rows + 1)))
    if rows > 1 and draw(st.booleans()):
        offsets[first + draw(st.integers(1, rows - 1))] = draw(st.integers(-(2**31), 2**31 - 1) | inside)
    bits = draw(st.none() | st.binary(min_size=4, max_size=4))
    buffers = [bits and pa.py_buffer(bits), pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets)), *data]
    return pa.Array.from_buffers(kind, rows, buffers, offset=first, children=inner)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(0, 8), st.booleans(), st.booleans())
def test_offsets_that_go_anywhere_are_a_value_error_or_records(data, rows, keyed, headed):
    kinds = {
        "value": pa.binary(),
        **({"key": pa.binary()} if keyed else {}),
        **({"headers": HEADERS} if headed else {}),
    }
    batch = pa.record_batch({name: data.draw(mangled(kind, rows)) for name, kind in kinds.items()})
    encoder = kafkagroup_native.BatchEncoder(batch_bytes=200, record_bytes=100_000)
    try:
        encoder.append(0, 3, batch, NOW)
    except ValueError as error:
        if "header has no key" not in str(error):
            assert "are not in their buffers" in str(error)
            with pytest.raises(pa.ArrowInvalid):
                batch.validate(full=True)
    for _, _, count, encoded in encoder.take(all=True):
        assert int.from_bytes(encoded[57:61], "big") == count
        assert with_crc(encoded) == encoded


FAULTS = """
import resource

import kafkagroup_native
import pyarrow as pa

rows = pa.record_batch({"value": pa.array([b"x" * 1000] * 10_000)})
encoder = kafkagroup_native.BatchEncoder()


def append(times):
    for _ in range(times):
        encoder.append(0, 6, rows, 0)
        encoder.take(all=False)


append(5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
append(20)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that returns large blocks to the system")
def test_the_memory_of_batches_that_were_taken_serves_the_next_ones():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    # 10 MB have 2,441 pages of 4 KiB. Each would be a page fault in each append if its memory came from the system.
    assert int(done.stdout) < 500


def test_other_threads_run_while_rows_are_encoded():
    values = values_of(*[b"x" * 100] * 500_000)
    assert lets_threads_run(lambda: kafkagroup_native.BatchEncoder().append(0, 1, values, NOW))
