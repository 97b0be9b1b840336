"""How the size of micro-batches follows `targetTriggerDuration`, on models of a query's speed."""

import math
import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kafka_source.quota.trigger_size import FIRST_OFFSETS, MAX_CHANGE, Measured, TriggerSize

BUSY, WAITED = 0.5, 20.0
"""When Spark asked: not at a whole second, and at one, as after waiting for an interval of 5, 10 or 20 s."""

targets = st.floats(0.5, 600)
speeds = st.floats(0.1, 1e7)
sizes = st.builds(
    TriggerSize,
    targets,
    st.integers(1, 10**9),
    st.floats(1, 100),
    st.floats(0, 600),
    st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-3, 600)), max_size=10).map(tuple),
    st.integers(0, 100),
)
measures = st.builds(
    Measured, st.integers(1, 10**9), st.floats(0, 1e5), st.none() | st.floats(0, 1e5), st.floats(0, 2e9)
)


def trigger(size: TriggerSize, *, fixed: float, speed: float, offsets: int | None = None) -> tuple[TriggerSize, float]:
    """Run a trigger with a micro-batch of the whole limit, or of what there is, and return its seconds."""
    taken = size.limit if offsets is None else min(offsets, size.limit)
    seconds = fixed + taken / speed
    return size.after(Measured(taken, seconds, asked_at=BUSY)), seconds


def settled(target: float, *, fixed: float, speed: float) -> TriggerSize:
    """The size of a query that has run for a long time."""
    size = TriggerSize(target)
    for _ in range(40):
        size, _ = trigger(size, fixed=fixed, speed=speed)
    return size


@given(sizes, measures)
def test_the_next_micro_batch_is_at_most_ten_times_as_large_or_as_small_as_the_last(size, batch):
    after = size.after(batch)
    assert after.target == size.target
    if after.points == size.points:  # far below the limit, and quick: it says nothing
        assert after.limit == size.limit
    else:
        assert 1 <= after.limit <= batch.offsets * MAX_CHANGE + 1
        assert after.limit >= batch.offsets // MAX_CHANGE


@given(targets, st.floats(0, 0.2), st.floats(1e3, 1e7), st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]))
def test_three_triggers_after_the_speed_has_changed_they_take_the_wished_time(target, part, speed, change):
    fixed = part * target
    size = settled(target, fixed=fixed, speed=speed)
    for _ in range(3):
        size, _ = trigger(size, fixed=fixed, speed=speed * change)
    for _ in range(20):
        size, seconds = trigger(size, fixed=fixed, speed=speed * change)
        assert 0.75 * target <= seconds <= 1.1 * target + 1 / (speed * change)


@given(targets, st.floats(0, 0.7), speeds)
def test_at_a_steady_speed_the_time_comes_near_from_below_and_does_not_swing(target, part, speed):
    fixed, size, times, limits = part * target, TriggerSize(target), [], []
    for _ in range(40):
        limits.append(size.limit)
        size, seconds = trigger(size, fixed=fixed, speed=speed)
        times.append(seconds)
    # The first micro-batches, or one offset, may take longer than the target.
    late = next(at for at, seconds in enumerate(times) if seconds <= 1.05 * target + 1 / speed or limits[at] == 1)
    # The slowest of 300,000 draws: 9, with a large fixed part and some ten offsets in a trigger.
    assert late <= 10
    for before, now in zip(times[late:], times[late + 1 :], strict=False):
        assert min(before, target) - 2 / speed <= now <= 1.01 * max(before, target) + 2 / speed


@st.composite
def plants(draw: st.DrawFn, most_chance: float) -> tuple[float, float, float, int, list[int], float, random.Random]:
    """Draw a query: target, fixed seconds, seconds for an offset, partitions, a quiet phase, chance."""
    target = draw(targets)
    fixed = target * draw(st.just(0.0) | st.floats(0, 1.2) | st.floats(1, 10))
    cost = min(1.0, target) * 10 ** draw(st.floats(-6, 1))
    partitions = draw(st.sampled_from([1, 3, 12, 100, 400]))
    quiet = draw(st.lists(st.integers(1, 10 * partitions), max_size=30))
    return (
        target,
        fixed,
        cost,
        partitions,
        quiet,
        draw(st.floats(0, most_chance)),
        random.Random(draw(st.integers(0, 2**32))),
    )


def played(
    plant: tuple[float, float, float, int, list[int], float, random.Random],
) -> Iterator[tuple[TriggerSize, int, float]]:
    """Run the quiet phase and then 50 triggers for which records wait in each partition."""
    target, fixed, cost, partitions, quiet, chance, draw = plant
    size = TriggerSize(target)
    for waiting in [*quiet, *[None] * 50]:
        # Each partition with records gets one offset at least.
        taken = max(size.limit, partitions) if waiting is None else min(waiting, max(size.limit, partitions))
        seconds = (fixed + cost * taken) * draw.lognormvariate(0, chance)
        size = size.after(Measured(taken, seconds, asked_at=BUSY))
        yield size, taken, seconds


@given(plants(most_chance=0.1))
def test_after_twenty_triggers_with_waiting_records_they_take_the_wished_time_or_the_size_says_why_not(plant):
    target, _, cost, *_ = plant
    triggers = list(played(plant))[-30:]
    for at in range(len(triggers) - 5):
        mean = sum(seconds for _, _, seconds in triggers[at : at + 5]) / 5
        told = any(size.least is not None for size, _, _ in triggers)
        assert abs(mean - target) <= 0.27 * target + cost or told, (mean, target)


@given(plants(most_chance=0))
def test_the_limit_is_never_below_a_micro_batch_that_was_measured_to_fit(plant):
    target = plant[0]
    for size, taken, seconds in played(plant):
        assert seconds > target or size.limit >= taken


@given(st.floats(0.1, 2), st.floats(1.3, 5.0), st.floats(1e4, 1e5), st.integers(1, 12), st.integers(0, 10))
def test_a_target_below_what_an_empty_trigger_takes_does_not_stop_the_query(target, times, speed, partitions, quiet):
    fixed = times * target
    plant = target, fixed, 1 / speed, partitions, [1] * quiet, 0.0, random.Random(1)
    triggers = list(played(plant))
    later = [seconds for _, _, seconds in triggers[-30:]]
    # A part of each trigger is work on records, and none is far longer than it must be.
    assert triggers[-1][0].least is not None
    assert sum(later) / len(later) > 1.02 * fixed
    assert max(later) < 1.5 * fixed + 2 / speed


@given(targets, st.floats(0.001, 0.2), st.floats(1e3, 1e6), st.integers(1, 100))
def test_a_burst_after_a_quiet_time_is_read_by_the_size_that_fitted_before(target, part, speed, few):
    fixed = part * target
    size = settled(target, fixed=fixed, speed=speed)
    for _ in range(10):
        size, _ = trigger(size, fixed=fixed, speed=speed, offsets=few)
    size, seconds = trigger(size, fixed=fixed, speed=speed)
    assert 0.75 * target <= seconds <= 1.05 * target + 1 / speed


@given(targets, st.floats(0, 0.2), st.floats(1e3, 1e6), st.floats(2, 1000))
def test_a_sink_that_stood_still_makes_one_small_micro_batch_and_no_more(target, part, speed, times):
    fixed = part * target
    size = settled(target, fixed=fixed, speed=speed)
    before = size.limit
    size = size.after(Measured(before, times * target, asked_at=BUSY))
    assert size.limit >= before // MAX_CHANGE
    for _ in range(4):
        size, seconds = trigger(size, fixed=fixed, speed=speed)
        assert seconds <= 1.05 * target + 2 / speed
    assert seconds >= 0.75 * target - 2 / speed


@given(targets, st.floats(0, 0.3), st.floats(1e3, 1e5))
def test_a_trigger_that_takes_long_however_small_it_is_does_not_hide_the_speed(target, part, speed):
    """A loaded machine: a micro-batch of a few records takes a third of the target."""
    size, fixed = TriggerSize(target), part * target
    wanted = (target - fixed) * speed
    # From 1,000 offsets on, ten times as many each time, and two triggers more.
    for _ in range(math.ceil(max(0.0, math.log10(wanted / FIRST_OFFSETS))) + 3):
        size, seconds = trigger(size, fixed=fixed, speed=speed)
    assert 0.75 * target <= seconds <= 1.05 * target or wanted < FIRST_OFFSETS


def test_most_triggers_are_near_the_target_where_each_takes_a_tenth_more_or_less_by_chance():
    chance, near, count = random.Random(1), 0, 2000
    size = TriggerSize(10.0)
    for number in range(count + 10):
        seconds = (0.3 + size.limit / 50_000) * chance.lognormvariate(0, 0.1)
        near += number >= 10 and 7.5 <= seconds <= 12.5
        size = size.after(Measured(size.limit, seconds, asked_at=BUSY))
    assert near / count > 0.94


@given(st.floats(1, 30), st.floats(0, 4), st.sampled_from([1, 5, 10, 60]))
def test_the_time_in_which_spark_waits_for_its_interval_does_not_count(target, after_reading, interval):
    """A query with a trigger interval: its work takes as long as it reads, and `after_reading` times that again."""
    size, speed, times = TriggerSize(target), 10_000.0, []
    for _ in range(30):
        reading = 0.05 + size.limit / speed
        work = reading * (1 + after_reading)
        # Spark starts the next trigger at once where the last one took longer than the interval.
        waits = work < interval
        period = interval if waits else work
        times.append(work)
        size = size.after(Measured(size.limit, period, reading, WAITED if waits else BUSY))
    # What comes after the reading is unknown as long as Spark waits. It is measured when a trigger is too long to wait.
    assert max(times[2:]) <= max(1.05 * target, 0.1 * (1 + after_reading), 1.05 * MAX_CHANGE * interval)
    assert all(seconds <= max(1.05 * target, interval) for seconds in times[-5:])
    assert times[-1] >= 0.75 * min(target, interval) or size.limit < FIRST_OFFSETS


def test_an_interval_without_reports_of_tasks_makes_micro_batches_neither_larger_nor_much_smaller():
    size = TriggerSize(5.0, limit=50_000)
    for _ in range(20):
        size = size.after(Measured(size.limit, 10.0, asked_at=WAITED))
    assert size.limit == 50_000
