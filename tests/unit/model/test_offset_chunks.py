"""Offsets are split into commits that a coordinator accepts."""

from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.model.commits import CommitOffset, chunks


@given(st.integers(0, 200), st.integers(1, 5_000), st.integers(0, 300))
def test_each_offset_is_in_one_part_and_no_part_is_larger_than_allowed(count: int, most: int, text: int) -> None:
    offsets = {TopicPartition("t", number): CommitOffset(number, metadata="x" * text) for number in range(count)}
    parts = list(chunks("group", offsets, most))
    assert all(parts)
    assert [tp for part in parts for tp in part] == sorted(offsets)
    assert {tp: entry for part in parts for tp, entry in part.items()} == offsets
    record = 80 + len("group") + len("t") + text
    assert all(len(part) * record <= most or len(part) == 1 for part in parts)


def test_few_offsets_are_one_commit() -> None:
    offsets = {TopicPartition("orders", number): CommitOffset(number) for number in range(1_000)}
    assert list(chunks("billing", offsets)) == [offsets]


def test_ten_thousand_partitions_are_a_few_commits() -> None:
    text = "x" * 195  # as long as the entries of a hand-off
    offsets = {TopicPartition("orders", number): CommitOffset(number, metadata=text) for number in range(10_000)}
    parts = list(chunks("billing-read-by-query", offsets))
    assert len(parts) == 12
    assert sum(map(len, parts)) == 10_000
