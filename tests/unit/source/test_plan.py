"""Plans: pieces cover what is to be read without gap or overlap, and a replay gives the same plan."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.source.plan import bundles, plan, split

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 5))
bounds = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(lambda pair: (min(pair), max(pair)))
available = st.dictionaries(partitions, bounds, max_size=12)
ranges = available.map(lambda found: [Range(tp.topic, tp.partition, *pair) for tp, pair in sorted(found.items())])


def offsets_of(pieces):
    covered: dict[TopicPartition, list[tuple[int, int]]] = {}
    for r in pieces:
        covered.setdefault(r.topic_partition, []).append((r.start, r.end))
    return covered


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 10**6))
def test_pieces_cover_every_range_in_order_without_gap(whole, at_least, at_most):
    if at_most is not None:
        at_most = max(at_most, max((r.size for r in whole), default=1) // 50 + 1)
    pieces = split(whole, at_least, at_most)
    covered = offsets_of(pieces)
    assert set(covered) == {r.topic_partition for r in whole if r.size}
    for r in whole:
        if not r.size:
            continue
        parts = covered[r.topic_partition]
        assert parts[0][0] == r.start and parts[-1][1] == r.end
        assert all(left[1] == right[0] for left, right in itertools.pairwise(parts))
        assert all(low < high for low, high in parts)
        if at_most is not None:
            assert all(high - low <= at_most for low, high in parts)


def test_a_range_is_cut_in_proportion_to_its_share():
    pieces = split([Range("t", 0, 0, 30), Range("t", 1, 0, 10), Range("t", 2, 5, 5)], 4, None)
    assert [(r.partition, r.start, r.end) for r in pieces] == [(0, 0, 10), (0, 10, 20), (0, 20, 30), (1, 0, 10)]


stream_offsets = st.integers(0, 4).flatmap(
    lambda slots: st.builds(
        StreamOffset,
        partitions=st.dictionaries(
            partitions,
            st.tuples(bounds, st.integers(0, slots - 1) if slots else st.just(-1)).map(
                lambda v: Span(v[0][0], v[0][1], v[1])
            ),
            max_size=12,
        ),
        cluster=st.none() | st.text(max_size=5),
        generation=st.integers(-1, 100),
        slots=st.just(slots),
        min_partitions=st.none() | st.integers(1, 10),
        max_records=st.none(),
        task_records=st.integers(1, 2000),
    )
)


@given(stream_offsets)
def test_a_plan_depends_on_the_end_offset_alone_through_the_checkpoint(end):
    replayed = StreamOffset.from_json(json.loads(json.dumps(end.to_json())))
    assert replayed == end
    assert plan(replayed) == plan(end)
    covered = offsets_of([r for _, inputs in plan(end) for r in inputs])
    assert set(covered) == {tp for tp, span in end.partitions.items() if span.start < span.end}
    assert all(0 <= slot < end.slots for slot, _ in plan(end)) or end.slots == 0


# The bundles are 0-25, then 25-51 with 0-19, then 19-38: the first and the last have room for one another, but an input
# joins the bundle before it or none, so that the order stays.
@example(
    StreamOffset(
        {TopicPartition("a", 0): Span(0, 51, 0), TopicPartition("a", 1): Span(0, 38, 0)}, slots=1, min_partitions=4
    ),
    39,
)
@given(stream_offsets, st.integers(1, 10**6))
def test_small_inputs_share_tasks_and_large_ones_stay_alone(end, least):
    def ranges_of(bundle):
        return [r for one in bundle for r in one.ranges]

    def copies(bundle):
        return {(r.topic_partition, r.replica) for r in ranges_of(bundle)}

    inputs = plan(end)
    found = bundles(inputs, least)
    assert sorted(r for bundle in found for r in ranges_of(bundle)) == sorted(ranges_of(inputs))
    assert all(len(copies(bundle)) == len(ranges_of(bundle)) for bundle in found)
    # In a group inputs keep their slots; without one a bundle is one read.
    assert end.slots > 0 or all(len(bundle) == 1 for bundle in found)
    large = [one for one in inputs if one.size >= least]
    assert all([one] in found for one in large)
    # A bundle is closed because it has enough, or because the next input has a piece of one of its partitions.
    shared = [bundle for bundle in found if not (len(bundle) == 1 and bundle[0] in large)]
    for one, two in itertools.pairwise(shared):
        assert sum(part.size for part in one) >= least or copies(one) & copies(two)
    assert bundles(inputs, 1) == [[one] for one in inputs]


def test_no_more_pieces_are_made_than_there_are_offsets():
    pieces = split([Range("t", 0, 5, 7), Range("t", 1, 0, 1)], 2**31 - 1, None)
    assert [(r.partition, r.start, r.end) for r in pieces] == [(0, 5, 6), (0, 6, 7), (1, 0, 1)]


def test_the_larger_pieces_of_a_range_come_last():
    assert [r.end for r in split([Range("t", 0, 0, 7)], 5, None)] == [1, 2, 3, 5, 7]


def test_an_offset_of_sparks_own_source_says_how_far_each_partition_was_read():
    found = StreamOffset.from_json({"orders": {"0": 5, "1": 0}, "payments": {"0": 7}})
    assert found.of_spark
    assert found.ends == {
        TopicPartition("orders", 0): 5,
        TopicPartition("orders", 1): 0,
        TopicPartition("payments", 0): 7,
    }
    assert plan(found) == []
    assert not StreamOffset.from_json(StreamOffset().to_json()).of_spark


def test_a_slot_reads_all_its_partitions_in_one_input_partition():
    end = StreamOffset(
        {TopicPartition("t", p): Span(0, 10, slot) for p, slot in [(0, 0), (1, 1), (2, 0), (3, 2)]}, slots=3
    )
    assert [(slot, [r.partition for r in inputs]) for slot, inputs in plan(end)] == [(0, [0, 2]), (1, [1]), (2, [3])]


def test_what_is_done_is_not_read_again_when_spark_does_not_say_where_it_stands():
    tp = TopicPartition("t", 0)
    start, end = StreamOffset({tp: Span(0, 7, -1)}), StreamOffset({tp: Span(0, 9, -1)})
    assert plan(end, start) == [(-1, (Range("t", 0, 7, 9),))]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"logOffset": 5}, "neither one of kafkagroup nor one of Spark's"),
        ({"orders": {"0": "5"}}, "neither one of kafkagroup nor one of Spark's"),
        ({**StreamOffset().to_json(), "version": 9}, "version 9"),
        ({"version": 1, "partitions": {}}, "damaged"),
    ],
)
def test_a_foreign_or_newer_offset_is_refused(found, message):
    with pytest.raises(InvalidConfigurationError, match=message):
        StreamOffset.from_json(found)


def test_a_plan_looks_at_the_start_offset_once_and_not_for_each_partition():
    walks = []

    class CountsWalks(dict[TopicPartition, Span]):
        def items(self):
            walks.append("items")
            return super().items()

    many = {TopicPartition("t", number): Span(0, 10, 0) for number in range(100)}
    (planned,) = plan(
        StreamOffset({tp: Span(5, 20, 0) for tp in many}, slots=1), StreamOffset(CountsWalks(many), slots=1)
    )
    assert {(r.start, r.end) for r in planned.ranges} == {(10, 20)}
    assert len(planned.ranges) == 100
    assert len(walks) == 1
