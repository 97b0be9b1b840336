"""KIP-13's arithmetic: windows of samples, delays, and how much of a quota is used."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.quota import Bounds, Quota, Sensor, delay_of
from kafka_source.quota.limiter import CATCH_UP, LATE_SECONDS, most_of_smooth

amounts = st.floats(0.1, 1000)
gaps = st.floats(0, 5)


def test_the_example_of_the_kip():
    assert delay_of(observed=60, bound=5, window=10) == 2


def test_a_sensor_gives_the_delay_of_the_kip():
    sensor = Sensor(windows=11, seconds=1)
    sensor.record(60, now=100)
    assert sensor.delay(5, now=110) == 2
    assert sensor.delay(5, now=110.5) == 1.5


@settings(deadline=None)
@given(st.lists(st.tuples(gaps, amounts), min_size=1, max_size=60), st.integers(1, 12), st.floats(0.1, 3))
def test_a_window_holds_what_came_in_it_and_nothing_else(events, windows, seconds):
    sensor, now, recorded = Sensor(windows, seconds), 0.0, []
    for gap, amount in events:
        now += gap
        sensor.record(amount, now)
        recorded.append((now, amount))
    begun = now - sensor.window(now)
    assert 0 <= sensor.window(now) <= windows * seconds + 1e-6
    inside = sum(amount for at, amount in recorded if at >= begun - 1e-6)
    before = sum(amount for at, amount in recorded if at >= begun + 1e-6)
    assert before - 1e-6 <= sensor.observed(now) <= inside + 1e-6
    # An amount of the last samples but one is always in.
    recent = sum(amount for at, amount in recorded if at > now - (windows - 1) * seconds + 1e-6)
    assert sensor.observed(now) >= recent - 1e-6


@settings(deadline=None)
@given(st.lists(st.tuples(gaps, amounts), min_size=1, max_size=40), st.floats(1, 1000))
def test_after_its_delay_nothing_is_over_the_bound(events, bound):
    sensor, now = Sensor(10, 1.0), 0.0
    for gap, amount in events:
        now += gap
        # A delay may outlast samples that had room, so it is asked for again, as Kafka's brokers do.
        while (delay := sensor.delay(bound, now)) > 1e-9:
            now += delay
        assert sensor.observed(now) <= bound * sensor.window(now) * (1 + 1e-9) + 1e-3
        sensor.record(amount, now)


def test_what_is_idle_for_a_window_has_saved_nothing_up():
    sensor = Sensor(10, 1.0)
    sensor.record(1, now=0)
    assert sensor.window(9.5) == 9.5
    assert sensor.window(10) == 0
    sensor.record(100, now=50)
    assert sensor.delay(10, now=50) == 10


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 0.3), st.floats(0.01, 0.1)), min_size=5, max_size=40),
    st.floats(1, 1e7),
    st.integers(2, 11),
)
def test_no_five_seconds_have_more_than_the_bound_and_what_is_caught_up(events, bound, windows):
    """Reads of up to 0.1 s worth, whenever the reader is ready, each after the delay that it is told."""
    quota, now, sent = Quota(Bounds(bytes_per_second=bound), windows, 1.0), 0.0, []
    for gap, seconds in events * 5:
        now += gap
        while (delay := quota.check(now)) > 1e-9:
            now += delay
        sent.append((now, seconds * bound))
        quota.on_response(seconds * bound, 1, now)
    for i, (begin, _) in enumerate(sent):
        in_five = sum(amount for at, amount in sent[i:] if at < begin + 5)
        assert in_five <= most_of_smooth(0, bound) + bound * (max(seconds for _, seconds in events) + 1e-3)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 0.1), min_size=5, max_size=40), st.floats(1, 1e7), st.integers(2, 11))
def test_a_reader_that_is_always_ready_gets_all_of_the_bound(chunks, bound, windows):
    quota, now, total = Quota(Bounds(bytes_per_second=bound), windows, 1.0), 0.0, 0.0
    for seconds in chunks * 5:
        while (delay := quota.check(now)) > 1e-9:
            now += delay
        quota.on_response(seconds * bound, 1, now)
        total += seconds * bound
    assert bound * (now - 0.001) <= total <= bound * (now * CATCH_UP + LATE_SECONDS + 0.101)


def test_both_bounds_hold():
    quota = Quota(Bounds(bytes_per_second=1000, records_per_second=10))
    assert quota.on_response(100, 20, now=0) == pytest.approx(2)
    assert quota.on_response(5000, 0, now=2) == pytest.approx(5000 / 1000 / CATCH_UP - LATE_SECONDS)


def test_how_much_is_used():
    quota = Quota(Bounds(bytes_per_second=1000))
    assert quota.used(0) == 0
    quota.on_response(250, 1, now=0)
    assert quota.used(0.1) == 100
    assert quota.used(1) == pytest.approx(25)
    assert quota.rates(1) == pytest.approx((250, 1))


def test_a_change_holds_at_once():
    quota = Quota(Bounds(bytes_per_second=1000))
    quota.on_response(10_000, 1, now=0)
    assert quota.check(0) == pytest.approx(10)
    quota.change(Bounds(bytes_per_second=5000))
    assert quota.check(0) == 0
    quota.change(Bounds())
    assert quota.on_response(1e12, 1, now=1) == 0
    assert quota.used(1) == 0
