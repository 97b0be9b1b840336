"""Damaged bytes are an error with topic, partition and offset: never a crash, never a wrong row."""

import pickle
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native import kernel
from tests.unit.native.batches import ALL, CODECS, PARTITION, TOPIC, Row, batch, decode, with_crc

kafkagroup_native = kernel()

ROWS = [
    Row(100, b"first value", b"key", headers=(("h", b"x"), ("n", None))),
    Row(101, None, None),
    Row(105, b"third " * 20, b""),
]
MORE = [Row(110, b"of the second batch"), Row(111, b"the last")]

codecs = st.sampled_from(sorted(CODECS))


def check(error, kind=None):
    """Every error tells the place."""
    assert isinstance(error, kind or kafkagroup_native.RecordsError)
    assert (error.topic, error.partition) == (TOPIC, PARTITION) and error.offset >= 0 and error.reason
    assert f"{TOPIC}-{PARTITION} at offset {error.offset}" in str(error) and error.reason in str(error)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_set_cut_at_any_byte_gives_its_whole_batches(codec):
    first, second = batch(ROWS, codec=codec), batch(MORE, codec=codec)
    for end in range(len(first) + len(second) + 1):
        decoded = decode((first + second)[:end], from_offset=100)
        assert decoded.error is None
        whole = (end >= len(first)) + (end == len(first) + len(second))
        assert decoded.rows == [[], ROWS, ROWS + MORE][whole]
        assert decoded.records.consumed == [0, len(first), len(first) + len(second)][whole]
        assert decoded.records.next_offset == [100, 106, 112][whole]
        left, size = end - decoded.records.consumed, [len(first), len(second), 0][whole]
        assert decoded.records.partial_batch_bytes == (None if left == 0 else 0 if left < 12 else size)


@settings(deadline=None, max_examples=200)
@given(codecs, st.booleans(), st.data())
def test_damage_under_a_right_crc_gives_an_error_or_rows_in_order(codec, text, data):
    damaged = bytearray(batch(ROWS, codec=codec))
    for at in data.draw(st.lists(st.integers(21, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    kind = "string" if text else "binary"
    builder = kafkagroup_native.BatchBuilder([("key", kind), ("value", kind), *ALL[2:]], max_unpacked_bytes=1 << 20)
    records = kafkagroup_native.RecordSet(with_crc(bytes(damaged)), TOPIC, PARTITION)
    try:
        builder.append(records)
    except kafkagroup_native.RecordsError as error:
        check(error)
    table = pa.record_batch(builder.take())
    table.validate(full=True)
    offsets = table.column("offset").to_pylist()
    assert offsets == sorted(set(offsets)) and all(100 <= offset < records.next_offset for offset in offsets)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_have_an_error_of_their_own(magic):
    body = struct.pack(">Ibb", 0, magic, 0) + (b"\0" * 8 if magic else b"") + struct.pack(">i", -1) + b"\0\0\0\1v"
    data = batch(ROWS) + struct.pack(">qi", 106, len(body)) + body
    decoded = decode(data)
    assert decoded.error is not None
    check(decoded.error, kafkagroup_native.OldMessageFormat)
    assert decoded.rows == ROWS and decoded.error.offset == 106
    assert f"message format {magic}" in decoded.error.reason


def test_errors_say_what_is_wrong_and_stay():
    data = bytearray(batch(ROWS) + batch(MORE))
    data[-1] ^= 1
    decoded = decode(data)
    assert decoded.error is not None
    check(decoded.error, kafkagroup_native.CorruptRecords)
    assert decoded.rows == ROWS and decoded.error.offset == 106 and "CRC" in decoded.error.reason
    assert not decoded.records.done and decoded.records.next_offset == 106
    again = kafkagroup_native.BatchBuilder(["value"])
    with pytest.raises(kafkagroup_native.CorruptRecords) as caught:
        again.append(decoded.records)
    assert str(caught.value) == str(decoded.error)
    copy = pickle.loads(pickle.dumps(decoded.error))
    check(copy, kafkagroup_native.CorruptRecords)
    assert issubclass(kafkagroup_native.RecordsError, ValueError)


@pytest.mark.parametrize("column", ["key", "value"])
def test_bytes_that_are_not_utf8_name_their_record(column):
    rows = [Row(7, b"fine \xc3\xbc", "schlüssel".encode()), Row(9, b"bad \xff", b"bad \xff")]
    builder = kafkagroup_native.BatchBuilder([(column, "string"), "offset"])
    records = kafkagroup_native.RecordSet(batch(rows, base_offset=5), TOPIC, PARTITION)
    with pytest.raises(kafkagroup_native.UnreadableRecord) as caught:
        builder.append(records)
    check(caught.value, kafkagroup_native.UnreadableRecord)
    assert caught.value.offset == 9 and f"the {column} is not UTF-8" in caught.value.reason
    assert pa.record_batch(builder.take()).column("offset").to_pylist() == [7]
    assert decode(batch(rows, base_offset=5)).rows == rows


def test_a_timestamp_in_nanoseconds_is_an_error_only_where_it_is_asked_for():
    data = batch([Row(0, timestamp=1_700_000_000_000_000_000)])
    decoded = decode(data)
    assert decoded.error is not None
    check(decoded.error, kafkagroup_native.UnreadableRecord)
    assert "timestamp" in decoded.error.reason
    builder = kafkagroup_native.BatchBuilder(["value"])
    assert builder.append(kafkagroup_native.RecordSet(data, TOPIC, PARTITION)) is False and builder.num_rows == 1
