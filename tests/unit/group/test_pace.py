"""A query's speed is measured while it is behind, and never by what there happens to be to read."""

import math
import random

import pytest

from assignors import TopicPartition
from assignors.lag_balanced import AVERAGED_BATCHES, BATCH_NOISE
from kafka_source.group.classic.balance import Average, Growth, Pace

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(pace: Pace, at: float, seconds: float, records: int, left: int = 0) -> Pace:
    """A micro-batch that begins at `at`, reads these records, leaves some in the topic, and takes these seconds."""
    return pace.planned(at, {A: 0}, {A: records}, {A: records + left}).finished(at + seconds)


def test_a_query_that_is_behind_is_measured_from_its_second_batch_on() -> None:
    first = batch(Pace(), 0, 30, 1000, left=9000)
    assert first.speed is None
    second = batch(first, 30, 2, 1000, left=8000)
    assert second.speed == pytest.approx(500)
    assert batch(second, 32, 2, 2000, left=6000).speed == pytest.approx(750, rel=0.01)


def test_a_query_that_keeps_up_stays_unknown_however_little_it_reads() -> None:
    pace = Pace()
    for number in range(50):
        pace = batch(pace, number * 10, 10, 5)
    assert pace.speed is None


def test_a_query_that_keeps_up_keeps_the_speed_that_it_once_had() -> None:
    pace = batch(batch(Pace(), 0, 10, 1), 10, 10, 10_000, left=5000)
    for number in range(2, 100):
        pace = batch(pace, number * 10, 10, 5)
    assert pace.speed == pytest.approx(1000)


def test_a_query_that_reads_faster_than_was_known_is_faster() -> None:
    pace = batch(batch(Pace(), 0, 10, 1), 10, 1, 100, left=5000)
    assert (batch(pace, 11, 1, 900).speed or 0) == pytest.approx(500, rel=0.01)


def test_a_query_without_limits_is_behind_when_batches_take_longer_than_their_records_took_to_arrive() -> None:
    pace = batch(batch(Pace(), 0, 10, 1), 10, 10, 1000)
    assert pace.speed is None
    assert batch(pace, 20, 20, 2000).speed == pytest.approx(100)
    # A pause of a few seconds says nothing.
    short = batch(batch(Pace(), 0, 0.2, 10), 0.2, 0.2, 10)
    assert batch(short, 0.4, 5, 10).speed is None


def test_an_old_speed_is_forgotten() -> None:
    pace = batch(batch(Pace(), 0, 10, 1), 10, 10, 10_000, left=5000)
    assert batch(pace, 3500, 10, 5).speed == pytest.approx(1000)
    assert batch(pace, 4000, 10, 5).speed is None


def test_a_call_without_a_batch_changes_nothing() -> None:
    pace = batch(Pace(), 0, 10, 100)
    assert pace.finished(50) == pace


def test_growth_is_averaged_over_looks() -> None:
    growth = Growth().after(100, {A: 1000, B: 0})
    assert growth.rates == {}
    growth = growth.after(110, {A: 1100, B: 0})
    assert growth.rates == {A: pytest.approx(10), B: 0}
    growth = growth.after(130, {A: 1700})
    assert growth.rates == {A: pytest.approx(700 / 30, rel=0.05)}


def test_a_look_at_the_same_time_counts_once() -> None:
    growth = Growth().after(100, {A: 1000}).after(110, {A: 1100})
    assert growth.after(110, {A: 5000}) == growth


def test_a_topic_that_was_created_again_begins_again() -> None:
    growth = Growth().after(0, {A: 1000}).after(10, {A: 2000}).after(20, {A: 3})
    assert growth.rates == {}
    assert growth.after(30, {A: 13}).rates == {A: pytest.approx(1)}


def test_noise_of_single_batches_is_averaged_out() -> None:
    # With a batch a minute, errors of 30 % become errors of 5.5 %, as `lag_balanced.NOISE` has it.
    chance = random.Random(7)
    found = []
    for _ in range(200):
        average = Average()
        for _ in range(90):
            average = average.after(60 * 1000 * chance.gauss(1, 0.3), 60)
        found.append(average.per_second or 0)
    mean = sum(found) / len(found)
    spread = (sum((one - mean) ** 2 for one in found) / len(found)) ** 0.5
    assert mean == pytest.approx(1000, rel=0.03)
    assert spread < 1.2 * 1000 * BATCH_NOISE / math.sqrt(AVERAGED_BATCHES)
