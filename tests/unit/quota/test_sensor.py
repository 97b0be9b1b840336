"""KIP-13's arithmetic: windows of samples, delays, an even pace, and how much of a bound is used."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.quota.account import CATCH_UP_FACTOR, Limiter, Sensor, delay_of

amounts = st.floats(0.1, 1000)
gaps = st.floats(0, 5)


def test_the_example_of_the_kip():
    assert delay_of(observed=60, bound=5, window=10) == 2


def test_a_sensor_gives_the_delay_of_the_kip():
    sensor = Sensor(windows=11, seconds=1)
    sensor.record(60, now=100)
    assert delay_of(sensor.observed(110), 5, sensor.window(110)) == 2
    assert delay_of(sensor.observed(110.5), 5, sensor.window(110.5)) == 1.5


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


def test_what_is_idle_for_a_window_has_saved_nothing_up():
    sensor = Sensor(10, 1.0)
    sensor.record(1, now=0)
    assert sensor.window(9.5) == 9.5
    assert sensor.window(10) == 0
    sensor.record(100, now=50)
    assert sensor.rate(50) == 100


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 0.1)), min_size=5, max_size=40),
    st.floats(1, 1e7),
    st.integers(2, 11),
)
def test_no_window_has_more_than_the_bound_and_what_is_saved_up(events, bound, windows):
    """Reads of up to 0.1 s worth, whenever the reader is ready, each after its delay."""
    limiter, now, sent = Limiter(bound, windows, 1.0), 0.0, []
    for gap, seconds in events * 5:
        now += gap
        while (delay := limiter.delay(now)) > 1e-9:
            now += delay
        sent.append((now, seconds))
        limiter.record(seconds * bound, now)
    for window in (windows, 5):
        for i, (begin, first) in enumerate(sent):
            inside = sum(seconds for at, seconds in sent[i:] if at < begin + window)
            assert inside <= window + CATCH_UP_FACTOR * windows + first + 1e-3
            assert inside <= window * (1 + CATCH_UP_FACTOR) + first + 0.1 + 1e-3


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 0.1), min_size=5, max_size=40), st.floats(1, 1e7), st.integers(2, 11))
def test_a_reader_that_is_always_ready_gets_all_of_the_bound(chunks, bound, windows):
    limiter, now, total = Limiter(bound, windows, 1.0), 0.0, 0.0
    for seconds in chunks * 5:
        while (delay := limiter.delay(now)) > 1e-9:
            now += delay
        limiter.record(seconds * bound, now)
        total += seconds
    assert now - 0.001 <= total <= now + CATCH_UP_FACTOR * windows + 0.101


def test_a_pause_is_caught_up_at_an_even_pace():
    limiter, now, fetches = Limiter(1000, 11, 1.0), 0.0, []
    for number in range(1000):
        now += max(limiter.delay(now), 0.4 if number == 500 else 0.0)
        fetches.append(now)
        limiter.record(50, now)
    after = [late - early for early, late in pairwise(fetches[501:])]
    assert min(after) == pytest.approx(0.05 / (1 + CATCH_UP_FACTOR))
    # All of it: as many fetches as if there had been no pause.
    assert fetches[-1] - fetches[400] == pytest.approx(0.05 * 599, abs=0.051)


def test_what_was_expected_and_did_not_come_is_taken_back():
    limiter = Limiter(1000, 11, 1.0)
    limiter.record(5000, 0.0)
    assert limiter.delay(0.0) == pytest.approx(5 - 11 * CATCH_UP_FACTOR, abs=0.3)
    limiter.record(-5000, 0.1)
    assert limiter.delay(0.1) == 0


def test_how_much_is_used():
    limiter = Limiter(1000, 11, 1.0)
    assert limiter.used(0) == 0
    limiter.record(250, now=0)
    assert limiter.used(0.1) == 100
    assert limiter.used(1) == pytest.approx(25)
    assert limiter.sensor.rate(1) == pytest.approx(250)


def test_without_a_bound_nothing_is_delayed():
    limiter = Limiter(None, 11, 1.0)
    limiter.record(1e12, now=0)
    assert limiter.delay(0) == 0
    assert limiter.used(0) == 0
    assert limiter.sensor.rate(1) == 1e12
