"""What a side group's entries say of a halt."""

from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.model.halt import Halt, HaltKind, halt_of

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9))
halts = st.builds(
    Halt,
    st.sampled_from(HaltKind),
    st.text(max_size=200),
    st.integers(0, 2**41),
    st.integers(1, 10**6),
    st.dictionaries(partitions, st.integers(1, 10**14)),
)


@given(halt=halts, older=halts, group=st.sets(partitions, min_size=1))
def test_the_newest_halt_comes_back_whole_and_nothing_of_an_older_one(halt, older, group):
    before = Halt(older.kind, older.author, older.at_ms, halt.number - 1, older.boundaries)
    assert halt_of({**before.entries(group), **halt.entries(group)}) == halt


@given(halt=halts, group=st.sets(partitions, min_size=1))
def test_a_halt_without_boundaries_outlives_the_deletion_of_all_topics_but_one(halt, group):
    plain = Halt(halt.kind, halt.author, halt.at_ms, halt.number)
    for topic in {tp.topic for tp in group}:
        left = {tp: entry for tp, entry in plain.entries(group).items() if tp.topic == topic}
        assert halt_of(left) == plain


def test_entries_that_describe_no_halt_do_not_count():
    pause = Halt(HaltKind.PAUSE, "ann@here", 1_700_000_000_000)
    foreign = {A: (5, "a note"), B: (7, '{"halt": "dance", "n": 9, "at": 1, "by": "x"}')}
    assert halt_of(foreign) is None
    assert halt_of({**foreign, TopicPartition("orders", 2): (0, pause.to_json())}) == pause


def test_a_halt_names_its_author_and_time():
    assert str(Halt(HaltKind.STOP, "ann@here", 1_700_000_000_000)) == (
        "stopped by ann@here at 2023-11-14 22:13:20+00:00"
    )
