"""A group is stalled where it has a lag and its committed offset does not move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import TopicPartition
from kafkagroup.admin.health import PartitionSeen, from_text, look_again, sentence, stalled, to_text
from kafkagroup.admin.rows import PartitionLag

ONE = TopicPartition("orders", 0)


def row(committed: int | None, end: int | None, partition: int = 0) -> PartitionLag:
    return PartitionLag("orders", partition, committed, end, "app-0")


def looks(*rows: PartitionLag) -> dict[TopicPartition, PartitionSeen]:
    """Look once in ten seconds."""
    seen: dict[TopicPartition, PartitionSeen] = {}
    for number, one in enumerate(rows):
        seen = look_again(seen, [one], 10.0 * number)
    return seen


@pytest.mark.parametrize(
    ("rows", "since"),
    [
        pytest.param([row(5, 9)], 0, id="the first look"),
        pytest.param([row(5, 9), row(5, 9), row(5, 12)], 0, id="it stands still"),
        pytest.param([row(5, 9), row(6, 9), row(6, 9)], 10, id="it moved, and stands still"),
        pytest.param([row(9, 9), row(9, 9), row(9, 10)], 20, id="records have come"),
        pytest.param([row(9, 9), row(9, 10), row(9, 10)], 10, id="records came, and nobody reads them"),
        pytest.param([row(9, 12), row(4, 12)], 10, id="it was rewound"),
        pytest.param([row(None, 7), row(None, 7)], 0, id="nothing was committed"),
        pytest.param([row(None, 7), row(0, 7)], 10, id="the first commit"),
        pytest.param([row(None, 0), row(None, 0)], 10, id="an empty partition"),
        pytest.param([row(5, 9), row(5, None), row(5, 9)], 20, id="no leader for a while"),
    ],
)
def test_since_when_it_stands_still(rows: list[PartitionLag], since: float) -> None:
    assert looks(*rows)[ONE].since == since


def test_one_partition_that_stands_still_is_enough() -> None:
    first = look_again({}, [row(5, 9), row(5, 9, 1)], 0)
    seen = look_again(first, [row(7, 9), row(5, 9, 1)], 60)
    assert set(stalled(seen, 60, 60)) == {TopicPartition("orders", 1)}
    assert stalled(seen, 60, 61) == {}


def test_a_partition_without_a_leader_is_not_stalled() -> None:
    first = look_again({}, [row(5, 9)], 0)
    assert stalled(look_again(first, [row(5, None)], 60), 60, 60) == {}


def test_a_clock_that_went_back_starts_anew() -> None:
    seen = look_again(look_again({}, [row(5, 9)], 1000), [row(5, 9)], 10)
    assert seen[ONE].since == 10


def test_the_sentences() -> None:
    seen = look_again({}, [row(5, 9), row(9, 9, 1)], 0)
    assert sentence("billing", seen, {}, 5) == "Group billing makes progress: its lag is 4 in 2 partitions."
    assert sentence("billing", seen, stalled(seen, 75, 60), 75) == (
        "Group billing is stalled: for up to 75 s the committed offsets of orders:0 have not moved, and their lag is 4."
    )


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text(), st.integers(0, 2**31)),
        st.builds(PartitionSeen, st.none() | st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e10)),
    )
)
def test_a_state_file_says_what_was_seen(seen: dict[TopicPartition, PartitionSeen]) -> None:
    assert from_text("billing", to_text("billing", seen)) == seen
    assert from_text("other", to_text("billing", seen)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": 2}', '{"format": 1, "group": "billing"}'])
def test_another_file_is_none(text: str) -> None:
    assert from_text("billing", text) is None
