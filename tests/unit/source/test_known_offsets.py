"""What the driver knows of the group's offsets: it spares commits, and forgets what others may have changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.model.commits import CommitOffset
from kafka_source.source.known_offsets import KnownOffsets, not_below

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OFFSETS = st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 3))


@given(OFFSETS, OFFSETS)
def test_only_what_has_changed_since_the_last_commit_is_missing(
    before: dict[TopicPartition, int], now: dict[TopicPartition, int]
) -> None:
    known = KnownOffsets()
    known.committed(before)
    assert known.missing(now) == dict(now.items() - before.items())
    known.committed(known.missing(now))
    assert known.missing(now) == {}


def test_a_topic_created_again_is_not_compared_until_it_is_committed() -> None:
    known = KnownOffsets()
    known.committed({A0: 5, B0: 7})
    known.forget_topics({"a"})
    assert A0 not in known
    assert B0 in known
    assert known.missing({A0: 5, B0: 7}) == {A0: 5}
    assert known.comparable([B0, A1, A0]) == [B0]
    known.committed({A0: 1})
    assert known.comparable([B0, A1, A0]) == [A0, A1, B0]


def test_of_a_rewound_partition_everything_is_missing_again() -> None:
    known = KnownOffsets()
    known.committed({A0: 5, A1: 5})
    known.forget([A0, B0])
    assert known.missing({A0: 5, A1: 5}) == {A0: 5}


def test_what_was_committed_an_hour_ago_is_old_until_it_is_committed_again() -> None:
    now = 0.0
    known = KnownOffsets(lambda: now)
    known.committed({A0: 5})
    now = 3599.0
    known.committed({A1: 6})
    assert known.old() == {}
    now = 3600.0
    assert known.old() == {A0: 5}
    known.committed({A0: 5})
    now = 7199.0
    assert known.old() == {A1: 6}
    known.forget([A1])
    assert known.old() == {}


@given(
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 9)),
)
def test_a_group_is_set_back_and_never_forward(
    starts: dict[TopicPartition, int], there: dict[TopicPartition, int]
) -> None:
    committed = {tp: CommitOffset(offset) for tp, offset in there.items()}
    assert not_below(starts, committed) == {tp: at for tp, at in starts.items() if there.get(tp, at) >= at}
