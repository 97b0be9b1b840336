"""Control batches are never rows, and aborted transactions are left out (KIP-98)."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native import kernel
from tests.unit.native.batches import ABORT, COMMIT, Row, batch, decode, marker

kafkagroup_native = kernel()


def data(offset: int, producer_id: int, count: int = 1, *, transactional: bool = True) -> bytes:
    return batch([Row(offset + i) for i in range(count)], producer_id=producer_id, transactional=transactional)


def offsets(encoded: bytes, aborted=None, **cursor) -> list[int]:
    decoded = decode(encoded, aborted_transactions=aborted, **cursor)
    assert decoded.error is None
    return [row.offset for row in decoded.rows]


def test_a_range_that_ends_in_markers_ends():
    encoded = data(0, 1, 3) + marker(3, 1, COMMIT) + data(4, 2) + marker(5, 2, ABORT)
    decoded = decode(encoded, aborted_transactions=[(2, 4)], to_offset=6)
    assert [row.offset for row in decoded.rows] == [0, 1, 2]
    assert decoded.records.next_offset == 6 and decoded.records.done


def test_a_transaction_that_began_before_the_fetch():
    encoded = data(10, 1, 2) + marker(12, 1, ABORT) + data(13, 1) + marker(14, 1, COMMIT)
    assert offsets(encoded, [(1, 4)], from_offset=11) == [13]


def test_a_marker_that_compaction_emptied_ends_nothing():
    emptied = batch([], base_offset=2, last_offset=2, producer_id=1, transactional=True, control=True)
    encoded = data(0, 1) + emptied + data(3, 1) + marker(4, 1, ABORT) + data(5, 1)
    assert offsets(encoded, [(1, 0)]) == [5]


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip"])
def test_a_control_record_without_a_type_is_an_error(codec):
    broken = batch([Row(1, key=b"\0\0\0")], producer_id=1, transactional=True, control=True, codec=codec)
    # Markers are parsed only where a transaction is aborted.
    assert offsets(data(0, 2) + broken) == [0]
    decoded = decode(data(0, 2) + broken, aborted_transactions=[(1, 0)])
    assert isinstance(decoded.error, kafkagroup_native.CorruptRecords)
    assert decoded.error.offset == 1 and [row.offset for row in decoded.rows] == [0]


def test_other_control_types_are_passed_over():
    leader_change = batch([Row(1, key=struct.pack(">hh", 0, 2))], producer_id=-1, control=True)
    assert offsets(data(0, 1) + leader_change + data(2, 1) + marker(3, 1, ABORT), [(1, 0)]) == []
    assert offsets(leader_change + data(2, 1)) == [2]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "data", "plain", "abort", "commit"])), max_size=30)
)
def test_exactly_the_committed_and_the_plain_rows(steps):
    """A log as a broker would hold it, against transactions followed by hand."""
    encoded = b""
    open_since: dict[int, int] = {}
    pending: dict[int, list[int]] = {}
    expected, aborted, rows_at = [], [], []
    for offset, (producer, step) in enumerate([*steps, (1, "abort"), (2, "commit"), (3, "abort")]):
        rows_at += [offset] * (step in ("data", "plain"))
        if step == "data":
            encoded += data(offset, producer)
            open_since.setdefault(producer, offset)
            pending.setdefault(producer, []).append(offset)
        elif step == "plain":
            encoded += data(offset, producer, transactional=False)
            expected.append(offset)
        else:
            encoded += marker(offset, producer, ABORT if step == "abort" else COMMIT)
            rows, start = pending.pop(producer, []), open_since.pop(producer, None)
            if step == "commit":
                expected += rows
            elif start is not None:
                aborted.append((producer, start))
    assert offsets(encoded, aborted[::-1]) == sorted(expected)
    # As `read_uncommitted` reads it: no markers.
    assert offsets(encoded) == rows_at
