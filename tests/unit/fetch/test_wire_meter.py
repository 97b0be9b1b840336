"""What is accounted for is what librdkafka says it has received, sooner or later."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.fetch.wire_meter import WireMeter


def stats(*received: int) -> str:
    return json.dumps({"brokers": {str(n): {"rxbytes": size} for n, size in enumerate(received)}})


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.2, 3)), min_size=1, max_size=30))
def test_all_that_was_received_is_accounted_for_once(steps):
    meter, received, accounted, guessed = WireMeter(), 0, 0.0, 0.0
    for size, ratio in steps:
        news = meter.count(size)
        assert news >= 0
        accounted += news
        guessed = max(guessed, accounted)
        received += int(size * ratio)
        meter.on_stats(stats(received))
    accounted += meter.count(0)
    # No less than what came, and no more but for what was guessed before the client told.
    assert received - 1 <= accounted <= max(received, guessed) + 1


def test_brokers_are_added_up_and_later_messages_guessed_by_what_was_seen():
    meter = WireMeter()
    meter.count(1000)
    meter.on_stats(stats(700, 500))
    assert meter.count(0) == pytest.approx(1200 - 1050)
    assert meter.count(1000) == pytest.approx(1200)


def test_the_size_of_a_response_is_that_of_all_brokers_on_average():
    meter = WireMeter()
    assert meter.response_bytes == 0
    meter.on_stats(json.dumps({"brokers": {"1": {"rxbytes": 900, "rx": 2}, "2": {"rxbytes": 100, "rx": 2}}}))
    assert meter.response_bytes == 250
