"""How a micro-batch is cut to what a quota has room for."""

from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.quota.batch_sizing import UNKNOWN_RECORD_BYTES, admit
from kafka_source.quota.bounds import Bounds

partitions = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))


@settings(deadline=None)
@given(
    st.dictionaries(partitions, st.tuples(st.integers(0, 100), st.integers(0, 10**6), st.floats(1, 1e6)), min_size=1),
    st.floats(1, 1e9),
    st.floats(1, 1e6),
)
def test_a_batch_fits_but_for_one_offset_of_each(available, max_bytes, most_records):
    starts = {tp: start for tp, (start, _, _) in available.items()}
    ends = {tp: start + size for tp, (start, size, _) in available.items()}
    sizes = {tp: size for tp, (_, _, size) in available.items()}
    admitted = admit(starts, ends, sizes, (max_bytes, most_records))
    assert sum((admitted[tp] - starts[tp] - 1) * sizes[tp] for tp in starts) <= max_bytes
    assert sum(admitted[tp] - starts[tp] - 1 for tp in starts) <= most_records
    for tp in starts:
        assert starts[tp] <= admitted[tp] <= ends[tp]
        assert (admitted[tp] > starts[tp]) == (ends[tp] > starts[tp])


def test_what_fits_is_left_as_it_is():
    tp = TopicPartition("t", 0)
    assert admit({tp: 0}, {tp: 100}, {tp: 10.0}, Bounds(1000).amounts(1)) == {tp: 100}
    assert admit({tp: 0}, {tp: 100}, {}, Bounds().amounts(1)) == {tp: 100}


def test_parts_of_offsets_are_not_lost_where_records_are_large():
    starts = {TopicPartition("t", number): 0 for number in range(4)}
    ends, sizes = dict.fromkeys(starts, 250), dict.fromkeys(starts, 100_000.0)
    assert sum(admit(starts, ends, sizes, Bounds(4_950_000).amounts(1)).values()) == 49
    # One that gets an offset though it has less of a share takes nothing from the others.
    ends[TopicPartition("t", 0)] = 1
    assert admit(starts, ends, sizes, Bounds(5_000_000).amounts(1))[TopicPartition("t", 3)] in (16, 17)


def test_an_unknown_partition_is_taken_to_be_as_the_others():
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    assert admit({one: 0, two: 0}, {one: 100, two: 100}, {one: 10.0}, Bounds(1000).amounts(1)) == {one: 50, two: 50}
    most = Bounds(10 * UNKNOWN_RECORD_BYTES).amounts(1)
    assert admit({one: 0, two: 0}, {one: 100, two: 100}, {}, most) == {one: 5, two: 5}
