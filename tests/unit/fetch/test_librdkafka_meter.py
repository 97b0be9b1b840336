"""What is accounted for is what librdkafka says it has received, sooner or later."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.fetch.librdkafka_meter import WireMeter


def stats(received: float, responses: int = 1) -> str:
    return json.dumps({"brokers": {"1": {"rxbytes": int(received), "rx": responses}}})


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.2, 3)), max_size=20),
    st.integers(100_000, 10**6),
    st.floats(0.2, 1.4),
)
def test_all_that_was_received_is_accounted_for_in_time(steps, size, ratio):
    meter, received, accounted, responses = WireMeter(), 0.0, 0.0, 0
    for message_bytes, on_the_wire in [*steps, *[(size, ratio)] * 400]:
        for _ in range(10):
            news = meter.count(message_bytes / 10, 0)
            assert news >= 0
            accounted += news
        received += message_bytes * on_the_wire
        responses += 10
        meter.on_stats(stats(received, responses))
    # But for two responses, or for what was counted at once, and what the last statistics told of.
    assert abs(received - accounted) <= 2 * max(received / responses, size / 10) + 0.02 * size


def test_statistics_from_before_the_first_response_say_nothing_of_records():
    meter = WireMeter()
    meter.count(100_000, 1)
    meter.on_stats(stats(500, 2))
    assert meter.count(100_000, 1) == 100_010


def test_what_was_counted_wrongly_is_made_good_for_evenly():
    meter = WireMeter()
    for _ in range(1000):
        meter.count(0, 1)
    meter.on_stats(stats(13_000, 1000))
    # All but what two responses may be: 2974 bytes more than were counted.
    assert [meter.count(990, 1) for _ in range(10)] == [pytest.approx(1297.4 + 297.4)] * 10
    assert meter.count(990, 1) == pytest.approx(1297.4)


def test_responses_on_their_way_are_no_news():
    meter = WireMeter()
    for number in range(1, 20):
        meter.count(100_000, 1)
        meter.on_stats(stats(number * 100_010 + 100_010 * (number % 3 - 1), number))
        assert meter.count(0, 0) == 0
        assert meter.on_the_wire(1000, 1) == 1010


def test_later_records_are_guessed_by_what_was_seen_of_all_brokers():
    meter = WireMeter()
    for _ in range(1000):
        meter.count(0, 1)
    meter.on_stats(json.dumps({"brokers": {"1": {"rxbytes": 7000, "rx": 500}, "2": {"rxbytes": 5024, "rx": 500}}}))
    assert meter.on_the_wire(900, 10) == pytest.approx(1200, rel=1e-5)
    assert meter.count(990, 1) == pytest.approx(1200 + 200, rel=1e-4)


def test_what_comes_while_nothing_is_read_says_nothing_of_records():
    meter = WireMeter()
    meter.count(10_000, 0)
    meter.on_stats(stats(10_000, 100))
    for _ in range(50):
        meter.on_stats(stats(10_000, 100))
    assert meter.on_the_wire(1000, 0) == 1000


def test_the_size_of_a_response_is_that_of_all_brokers_on_average():
    meter = WireMeter()
    assert meter.response_bytes == 0
    meter.on_stats(json.dumps({"brokers": {"1": {"rxbytes": 900, "rx": 2}, "2": {"rxbytes": 100, "rx": 2}}}))
    assert meter.response_bytes == 250


def test_statistics_tell_of_throttling():
    meter = WireMeter()
    meter.on_stats(json.dumps({"brokers": {"1": {"throttle": {"sum": 250, "cnt": 3}}, "2": {"throttle": {"sum": 50}}}}))
    assert meter.take_throttle() == pytest.approx(0.3)
    assert meter.take_throttle() == 0
