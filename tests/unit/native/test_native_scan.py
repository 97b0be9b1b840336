"""The scan of a record set's headers, against a model of it in Python and against the decoder."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native import kernel
from tests.unit.native.batches import Row, batch, decode

kafkagroup_native = kernel()

LENGTH = struct.Struct(">qi")  # base offset, length
HEAD = struct.Struct(">qiibihi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
OVERHEAD = LENGTH.size
NAMES = ("next_offset", "cut_off", "size", "batches", "offsets", "leader_epoch")


def model(data: bytes, position: int) -> tuple[int, ...]:
    """The rules, slowly: next offset, size of a first batch that is cut off, bytes, batches, offsets, leader epoch."""
    if 0 < len(data) < OVERHEAD:
        return position, OVERHEAD, 0, 0, 0, -1
    at, batches, first, last, epoch = 0, 0, 0, -1, -1
    while len(data) - at >= OVERHEAD:
        _, length = LENGTH.unpack_from(data, at)
        size = OVERHEAD + length
        if at + size > len(data):
            return position, 0 if at else size, at, batches, last + 1 - first, epoch
        if size < HEAD.size:
            break
        base, _, written_in, magic, _, _, delta = HEAD.unpack_from(data, at)
        if magic != 2 or base < 0 or delta < 0 or base + delta >= 2**63 - 1:
            break
        epoch = written_in
        first, last = first if batches else base, base + delta
        position = max(position, last + 1)
        at += size
        batches += 1
    return position, 0, at, batches, last + 1 - first, epoch


def scanned(data: Any, position: int, **part: int) -> tuple[int, ...]:
    scan = kafkagroup_native.scan(data, position, **part)
    return tuple(getattr(scan, name) for name in NAMES)


INT64 = st.integers(-(2**63), 2**63 - 1)
POSITIONS = st.integers(0, 100) | st.integers(0, 2**63 - 1)
# Headers as they are, and with fields that no broker writes; more or fewer bytes may follow than they claim.
HEADS = st.builds(
    lambda base, length, epoch, magic, delta, body: HEAD.pack(base, length, epoch, magic, 7, 0, delta) + bytes(body),
    st.integers(0, 200) | st.sampled_from([-1, 2**63 - 1, 2**63 - 3]) | INT64,
    st.sampled_from([15, 20, 49]) | st.integers(-20, 80) | st.integers(-(2**31), 2**31 - 1),
    st.integers(-1, 9),
    st.sampled_from([2] * 8 + [0, 1, -1, 3]),
    st.integers(0, 5) | st.sampled_from([-1, 2**31 - 1, -(2**31)]),
    st.sampled_from([0, 5, 34]),
)


def sound(base: int, delta: int, body: int) -> bytes:
    return HEAD.pack(base, HEAD.size + body - OVERHEAD, 4, 2, 7, 0, delta) + bytes(body)


SOUND = st.builds(sound, st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 40))
PARTS = st.lists(SOUND | HEADS | st.binary(max_size=40), max_size=6).map(b"".join)


@settings(max_examples=500)
@given(PARTS | st.binary(max_size=100), POSITIONS, st.data())
def test_any_bytes_give_what_the_model_gives(data, position, draw):
    assert scanned(data, position) == model(data, position)
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    assert scanned(bytearray(data), position, start=start, end=end) == model(data[start:end], position)


ROWS = st.integers(1, 4)


@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from(["none", "lz4", "zstd"]), st.data())
def test_the_decoder_ends_where_the_scan_says(counts, codec, data):
    batches, offset = [], 100
    for count in counts:
        batches.append(batch([Row(offset + i) for i in range(count)], codec=codec))
        offset += count
    record_set = b"".join(batches)
    end = data.draw(st.integers(0, len(record_set)))
    scan = kafkagroup_native.scan(record_set, 100, end=end)
    decoded = decode(record_set, end=end, from_offset=100)
    assert decoded.error is None
    assert scan.next_offset == decoded.records.next_offset == 100 + len(decoded.rows)
    assert scan.size == decoded.records.consumed and scan.offsets == len(decoded.rows)
    # The decoder does not know a size of which it has a part only; the scan asks for that much at least.
    partial = decoded.records.partial_batch_bytes
    assert scan.cut_off == (0 if scan.batches or partial is None else partial or OVERHEAD)


@pytest.mark.parametrize("part", [{"start": 2, "end": 1}, {"end": 62}, {"start": 62}])
def test_what_is_no_part_of_the_buffer_is_refused(part):
    with pytest.raises(ValueError, match="no part of a buffer of 61 bytes"):
        kafkagroup_native.scan(bytes(61), 0, **part)


def test_the_buffer_is_released():
    data = bytearray(batch([Row(0)]))
    scan = kafkagroup_native.scan(data, 0)
    data += b"more"  # A bytearray cannot be resized while its buffer is in use.
    assert scan.batches == 1
    with pytest.raises(TypeError):
        kafkagroup_native.scan("text", 0)
