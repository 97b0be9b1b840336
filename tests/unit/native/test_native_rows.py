"""Every record comes out once, as it was written, in every codec, and only those asked for."""

import datetime
import struct
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.schema import columns_of, source_schema
from tests.support.native import kernel
from tests.unit.native.batches import ALL, CODECS, HEADER, Row, batch, decode, with_crc

kafkagroup_native = kernel()

headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
times = st.integers(min_value=-1, max_value=2**42)


@st.composite
def row_lists(draw: st.DrawFn, start: int = 0) -> list[Row]:
    """Rows with gaps between their offsets, as compaction leaves them."""
    rows, offset = [], start
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 70, 10_000]))
        value, key = draw(st.none() | st.binary(max_size=300)), draw(st.none() | st.binary(max_size=80))
        rows.append(Row(offset, value, key, draw(times), draw(headers)))
        offset += 1
    return rows


@st.composite
def record_sets(draw: st.DrawFn) -> tuple[bytes, list[Row]]:
    """Some batches, each with its codec and kind of timestamps, and their rows."""
    data, expected, offset = b"", [], draw(st.sampled_from([0, 5, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(row_lists(offset))
        log_append_time = draw(st.none() | times)
        last = rows[-1].offset + draw(st.sampled_from([0, 0, 3]))
        codec = draw(st.sampled_from(sorted(CODECS)))
        data += batch(rows, base_offset=offset, last_offset=last, codec=codec, log_append_time=log_append_time)
        if log_append_time is not None:
            rows = [replace(row, timestamp=log_append_time, timestamp_type=1) for row in rows]
        expected += rows
        offset = last + 1
    return data, expected


@settings(deadline=None, max_examples=60)
@given(record_sets(), st.integers(1, 9), st.sampled_from([1, 300, 1 << 20]), st.data())
def test_rows_come_out_as_they_went_in(record_set, batch_rows, batch_bytes, data):
    encoded, expected = record_set
    builder = {"batch_rows": batch_rows, "batch_bytes": batch_bytes}
    whole = decode(encoded, builder=builder)
    assert whole.error is None and whole.rows == expected
    assert whole.records.done and whole.records.consumed == len(encoded)
    assert whole.records.partial_batch_bytes is None and whole.records.next_offset > expected[-1].offset
    assert all(part.num_rows <= batch_rows for part in whole.batches)

    bounds = st.integers(expected[0].offset - 2, expected[-1].offset + 2)
    start, end = sorted((data.draw(bounds), data.draw(bounds)))
    part = decode(encoded, builder=builder, from_offset=start, to_offset=end)
    assert part.error is None and part.rows == [row for row in expected if start <= row.offset < end]
    assert part.records.next_offset <= max(end, start)
    if end <= expected[-1].offset:
        assert part.records.next_offset == max(end, start)


@settings(deadline=None, max_examples=60)
@given(record_sets(), st.data())
def test_any_subset_and_order_of_columns(record_set, data):
    encoded, _ = record_set
    names = data.draw(st.permutations(ALL).flatmap(lambda names: st.integers(0, 8).map(lambda n: names[:n])))
    everything = decode(encoded).batches[0]
    builder = kafkagroup_native.BatchBuilder(names)
    assert builder.append(kafkagroup_native.RecordSet(encoded, "orders", 5)) is False
    part = pa.record_batch(builder.take())
    assert part.num_rows == everything.num_rows and part.schema.names == list(names)
    assert all(part.column(name).equals(everything.column(name)) for name in names)


def test_the_schema_is_the_one_that_spark_expects():
    columns = columns_of(source_schema(headers=True))
    assert pa.schema(kafkagroup_native.BatchBuilder([column.name for column in columns])).equals(arrow_schema(columns))
    text = pa.schema(kafkagroup_native.BatchBuilder([("key", "string"), ("value", "string")]))
    assert text.types == [pa.string(), pa.string()]
    assert decode(batch([Row(0)])).batches[0].schema.equals(arrow_schema(columns))


def test_partitions_share_a_batch():
    builder = kafkagroup_native.BatchBuilder(["topic", "partition", "offset", "timestampType", ("value", "string")])
    sets = [
        ("a", 0, batch([Row(3), Row(4)])),
        ("a", 1, batch([Row(0)], log_append_time=9)),
        ("long-name", 1, batch([Row(8), Row(9)])),
        ("empty", 0, b""),
    ]
    for topic, partition, data in sets:
        assert builder.append(kafkagroup_native.RecordSet(data, topic, partition)) is False
    assert builder.num_rows == 5
    assert pa.record_batch(builder.take()).to_pydict() == {
        "topic": ["a", "a", "a", "long-name", "long-name"],
        "partition": [0, 0, 1, 1, 1],
        "offset": [3, 4, 0, 8, 9],
        "timestampType": [0, 0, 1, 0, 0],
        "value": ["v"] * 5,
    }
    assert builder.num_rows == builder.num_bytes == 0 and pa.record_batch(builder.take()).num_rows == 0


def test_a_batch_that_compaction_emptied_moves_the_position():
    data = batch([], base_offset=10, last_offset=19) + batch([Row(25)], base_offset=20, last_offset=29)
    decoded = decode(data, from_offset=10)
    assert [row.offset for row in decoded.rows] == [25] and decoded.records.next_offset == 30
    to_the_gap = decode(data, from_offset=10, to_offset=28)
    assert to_the_gap.records.done and to_the_gap.records.next_offset == 28
    beyond = decode(batch([Row(50)]), from_offset=10, to_offset=40)
    assert (beyond.rows, beyond.records.next_offset, beyond.records.done) == ([], 40, True)


def test_a_batch_with_a_delete_horizon_keeps_its_timestamps():
    # KIP-534: the base timestamp is then the horizon, and deltas count from it, often backwards.
    rows = [Row(0, timestamp=2_000), Row(1, timestamp=500)]
    data = bytearray(batch(rows))
    data[22] |= 0x40
    assert decode(with_crc(bytes(data))).rows == rows


def test_no_timestamp_is_one_ms_before_1970_as_in_the_built_in_source():
    table = pa.table(decode(batch([Row(0, timestamp=-1)])).batches[0])
    assert table["timestamp"].to_pylist() == [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.timezone.utc)
    ]


def test_header_keys_that_are_not_utf8_are_replaced_as_java_does():
    # The last is an encoded surrogate, which Java replaces as a whole.
    data = batch([Row(0, headers=(("kXY", b"v"), ("kXYZ", None)))])
    data = data.replace(b"kXYZ", b"k\xed\xa0\x80").replace(b"kXY", b"k\xff\xc3")
    assert decode(with_crc(data)).rows[0].headers == (("k��", b"v"), ("k�", None))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_part_of_any_buffer(kind):
    data = batch([Row(0), Row(1)])
    decoded = decode(kind(b"response" + data + b"trailer"), start=8, end=8 + len(data))
    assert [row.offset for row in decoded.rows] == [0, 1] and decoded.records.consumed == len(data)


def test_a_buffer_may_be_used_again_once_its_records_are_out():
    buffer = bytearray(batch([Row(0, b"first")]))
    first = decode(buffer)
    buffer[:] = batch([Row(7, b"other")])
    buffer.extend(b"longer")
    assert first.rows[0].value == b"first" and first.batches[0].column("value").to_pylist() == [b"first"]
    held = kafkagroup_native.RecordSet(buffer, "t", 0)
    with pytest.raises(BufferError):
        buffer.clear()
    del held
    buffer.clear()


def test_wrong_arguments_name_what_they_take():
    builder, cursor = kafkagroup_native.BatchBuilder, kafkagroup_native.RecordSet
    with pytest.raises(ValueError, match="unknown column body; there are key, value"):
        builder(["body"])
    with pytest.raises(ValueError, match="column value is binary or string, not int"):
        builder([("value", "int")])
    with pytest.raises(ValueError, match="column offset has one type only"):
        builder([("offset", "string")])
    with pytest.raises(ValueError, match="column key is asked for twice"):
        builder(["key", "value", ("key", "string")])
    with pytest.raises(ValueError, match="batch_rows"):
        builder(["key"], batch_rows=0)
    with pytest.raises(ValueError, match="batch_bytes"):
        builder(["key"], batch_bytes=2**31)
    with pytest.raises(ValueError, match="max_unpacked_bytes"):
        builder(["key"], max_unpacked_bytes=0)
    for start, end in [(0, 4), (2, 1), (4, None)]:
        with pytest.raises(ValueError, match="no part of a buffer of 3 bytes"):
            cursor(b"abc", "t", 0, start=start, end=end)
    for no_buffer in (3, None, "text", [1]):
        with pytest.raises(TypeError):
            cursor(no_buffer, "t", 0)
