"""How far a micro-batch reads: never backwards, never beyond what exists, and within the limits that apply."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.quota.server import CONSUMER_RATE, StreamQuota
from kafka_source.quota.task_pacer import pacer_of
from kafka_source.source.plan import Admission, available_ends, rate_limit

A, B, NEW = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 5))
bounds = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(sorted)
available = st.dictionaries(partitions, bounds, max_size=12)
offsets = st.integers(0, 10**6)


def parsed(**given: object) -> ReadOptions:
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    return read_options({**base, **{name.replace("_", "."): str(value) for name, value in given.items()}}, Where.STREAM)


class Clock:
    """The time as a test sets it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@given(available, st.integers(1, 10**6))
def test_the_bound_holds_but_no_partition_starves(found, most):
    ends = rate_limit(found, most)
    new = {tp: ends[tp] - start for tp, (start, _) in found.items()}
    assert all(0 <= new[tp] <= end - start for tp, (start, end) in found.items())
    assert all(new[tp] > 0 for tp, (start, end) in found.items() if end > start)
    assert sum(new.values()) <= most + len(found)


def test_shares_are_rounded_as_in_spark():
    # 100 * (29 / 100.0) is 28.999999999999996, also in Java.
    assert rate_limit({A: (0, 29), B: (0, 71)}, 100) == {A: 28, B: 71}
    assert rate_limit({A: (0, 29), B: (0, 71)}, 101) == {A: 29, B: 71}
    assert rate_limit({A: (5, 5), B: (0, 71)}, 2**63 - 1) == {A: 5, B: 71}


def test_without_a_bound_everything_is_taken():
    assert rate_limit({TopicPartition("t", 0): (3, 9)}, None) == {TopicPartition("t", 0): 9}


@given(st.dictionaries(partitions, st.tuples(offsets, offsets, st.none() | offsets), max_size=12), st.booleans())
def test_nothing_is_read_backwards_or_beyond_the_latest_offset_and_the_target(found, available_now):
    starts = {tp: start for tp, (start, _, _) in found.items()}
    latest = {tp: end for tp, (_, end, _) in found.items()}
    target = {tp: end for tp, (_, _, end) in found.items() if end is not None} if available_now else None
    ends = available_ends(starts, latest, target)
    assert ends.keys() == starts.keys()
    for tp, end in ends.items():
        limit = latest[tp] if target is None else min(latest[tp], target.get(tp, 0))
        assert end == max(starts[tp], limit)


def test_an_available_now_run_leaves_new_records_and_new_partitions_to_the_next_run():
    admission = Admission(parsed())
    admission.stop_at({A: 5, B: 9})
    found = admission.ends({A: 3, B: 0, NEW: 0}, {A: 8, B: 9, NEW: 4}, limited=False)
    assert found == {A: 5, B: 9, NEW: 0}


def test_limits_apply_only_where_spark_says_so():
    admission = Admission(parsed(maxOffsetsPerTrigger=10))
    assert admission.ends({A: 0, B: 0}, {A: 30, B: 10}, limited=True) == {A: 7, B: 2}
    assert admission.ends({A: 0, B: 0}, {A: 30, B: 10}, limited=False) == {A: 30, B: 10}


def test_a_limit_of_0_stands_still_as_in_spark():
    admission = Admission(parsed(maxOffsetsPerTrigger=0))
    assert admission.ends({A: 3, B: 0}, {A: 30, B: 10}, limited=True) == {A: 3, B: 0}


def test_a_trigger_waits_for_the_minimum_until_the_delay_is_over():
    clock = Clock()
    admission = Admission(parsed(minOffsetsPerTrigger=10, maxTriggerDelay="60s"), clock=clock)
    # No batch has been planned yet, so the delay is over.
    assert admission.ends({A: 0}, {A: 3}, limited=True) == {A: 3}
    admission.batch_planned(3)
    assert admission.ends({A: 3}, {A: 12}, limited=True) == {A: 3}
    assert admission.ends({A: 3}, {A: 13}, limited=True) == {A: 13}
    assert admission.ends({A: 3}, {A: 12}, limited=False) == {A: 12}
    clock.seconds += 59.9
    assert admission.ends({A: 3}, {A: 12}, limited=True) == {A: 3}
    clock.seconds += 0.2
    assert admission.ends({A: 3}, {A: 12}, limited=True) == {A: 12}


def test_the_number_of_offsets_follows_how_long_a_trigger_takes_within_the_other_limits():
    clock = Clock()

    def started(**options: object) -> Admission:
        return Admission(parsed(targetTriggerDuration="10s", **options), clock=clock, wall_clock=lambda: 0.5)

    def triggered(admission: Admission, seconds: float) -> int:
        end = admission.ends({A: 0}, {A: 10**7}, limited=True)[A]
        admission.batch_planned(end)
        clock.seconds += seconds
        admission.trigger_started()
        return end

    free, bounded, wide = started(), started(maxOffsetsPerTrigger=5000), started(minOffsetsPerTrigger=2000)
    assert [triggered(free, seconds) for seconds in (1, 10, 40, 1, 1)] == [1000, 10_000, 10_000, 2500, 10_000]
    assert [triggered(bounded, 1) for _ in range(3)] == [1000, 5000, 5000]
    assert [triggered(wide, seconds) for seconds in (100, 1)] == [2000, 2000]
    assert free.ends({A: 0}, {A: 10**7}, limited=False) == {A: 10**7}


def test_time_without_a_micro_batch_under_way_does_not_count():
    clock = Clock()
    admission = Admission(parsed(targetTriggerDuration="10s"), clock=clock, wall_clock=lambda: 0.5)
    admission.batch_planned(1000)
    clock.seconds += 5
    admission.trigger_started()
    # No records come for an hour, and an empty micro-batch is planned.
    for _ in range(2):
        clock.seconds += 1800
        admission.trigger_started()
        admission.batch_planned(0)
    assert admission.max_offsets == 2000


def test_the_time_after_the_last_task_does_not_count_where_spark_waited_for_its_interval():
    options = parsed(targetTriggerDuration="10s")
    wall = Clock()
    wall.seconds = 60.0
    with reported(options) as (quota, done):
        clock = Clock()
        clock.seconds = done - 2
        admission = Admission(options, quota, clock, wall)
        admission.batch_planned(1000)
        clock.seconds = done + 58
        admission.trigger_started()
        assert admission.max_offsets == 5000


def test_an_available_now_run_ends_where_a_partition_ends_when_it_has_a_leader_again():
    admission = Admission(parsed())
    admission.stop_at({A: 5}, {B})
    assert admission.ends({A: 3, B: 2}, {A: 8}, limited=False) == {A: 5, B: 2}
    assert admission.ends({A: 5, B: 2}, {A: 9, B: 7}, limited=False) == {A: 5, B: 7}
    assert admission.ends({A: 5, B: 7}, {A: 9, B: 11}, limited=False) == {A: 5, B: 7}


def test_an_available_now_run_does_not_wait_for_the_minimum():
    admission = Admission(parsed(minOffsetsPerTrigger=10))
    admission.batch_planned(3)
    admission.stop_at({A: 3})
    assert admission.ends({A: 0}, {A: 12}, limited=True) == {A: 3}


def test_bytes_are_a_limit_by_what_an_offset_has_on_the_average_of_those_measured():
    options = parsed(maxBytesPerTrigger="1000")
    # Nothing is measured yet: an offset counts so much that each partition gets one.
    assert Admission(options).ends({A: 0, B: 0}, {A: 30, B: 10}, limited=True) == {A: 1, B: 1}
    with measured(options, {A: 20.0, B: 40.0}) as quota:
        # Half of 60 x 20 + 20 x 40 bytes.
        found = Admission(options, quota).ends({A: 0, B: 0}, {A: 60, B: 20}, limited=True)
        assert found == {A: 30, B: 10}
        assert Admission(options, quota).ends({A: 0}, {A: 10**6}, limited=False) == {A: 10**6}
        # A partition that nobody has measured is taken for one like the others.
        found = Admission(options, quota).ends({NEW: 0, A: 0}, {NEW: 100, A: 0}, limited=True)
        assert found == {NEW: 50, A: 0}


def test_the_smaller_one_of_the_limits_in_bytes_and_offsets_holds():
    options = parsed(maxBytesPerTrigger="1000", maxOffsetsPerTrigger=20)
    with measured(options, {A: 20.0}) as quota:
        assert Admission(options, quota).ends({A: 0}, {A: 100}, limited=True) == {A: 20}
    with measured(options, {A: 200.0}) as quota:
        assert Admission(options, quota).ends({A: 0}, {A: 100}, limited=True) == {A: 5}


def test_a_minimum_of_offsets_is_waited_for_also_with_a_limit_in_bytes():
    options = parsed(maxBytesPerTrigger="1000", minOffsetsPerTrigger=50)
    with measured(options, {A: 100.0}) as quota:
        admission = Admission(options, quota)
        admission.batch_planned(3)
        assert admission.ends({A: 0}, {A: 49}, limited=True) == {A: 0}
        assert admission.ends({A: 0}, {A: 50}, limited=True) == {A: 10}


@contextmanager
def measured(options: ReadOptions, sizes: dict[TopicPartition, float]) -> Iterator[StreamQuota]:
    """A quota without bounds, to which a task has reported the bytes of an offset in each partition."""
    settings = Settings({"bootstrap.servers": "127.0.0.1:1"})
    with closing(StreamQuota(QuotaSettings.measuring(options), settings)) as quota:
        ticket = quota.ticket(0, 1.0)
        assert not ticket.settings.limits
        with pacer_of(ticket, options.settings, CONSUMER_RATE) as pacer:
            for tp, size in sizes.items():
                pacer.measured(tp, size * 10, 10)
        yield quota


@contextmanager
def reported(options: ReadOptions) -> Iterator[tuple[StreamQuota, float]]:
    """A quota without bounds, to which a task has reported its end, and when that was."""
    with measured(options, {}) as quota:
        done = quota.tasks_done_at()
        assert done is not None
        yield quota, done


@pytest.fixture
def quota():
    options = parsed(quota_records_per_second=10)
    settings = QuotaSettings.of(options)
    assert settings is not None
    with closing(StreamQuota(settings, Settings({"bootstrap.servers": "127.0.0.1:1"}))) as started:
        yield started


def test_the_quota_is_a_limit_that_spark_can_lift(quota):
    admission = Admission(parsed(), quota)
    limited = admission.ends({A: 0, B: 0}, {A: 10**6, B: 10**6}, limited=True)
    assert limited is not None
    assert all(0 < limited[tp] < 10**5 for tp in (A, B))
    assert admission.ends({A: 0, B: 0}, {A: 10**6, B: 10**6}, limited=False) == {A: 10**6, B: 10**6}
