"""What is counted is what librdkafka says it has received, sooner or later."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.fetch.librdkafka_meter import WireMeter


def stats(received: float) -> str:
    return json.dumps({"brokers": {"1": {"rxbytes": received, "rx": 1}}})


def taken_out(meter: WireMeter, value_bytes: float, records: int) -> float:
    """What is counted for messages."""
    return meter.count(meter.on_the_wire(value_bytes, records))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.2, 3)), max_size=20),
    st.integers(100_000, 10**6),
    st.floats(0.2, 2.5),
)
def test_all_that_was_received_is_counted_in_time(steps, size, ratio):
    meter, received, counted = WireMeter(), 0.0, 0.0
    for message_bytes, on_the_wire in [*steps, *[(size, ratio)] * 400]:
        for _ in range(10):
            news = taken_out(meter, message_bytes / 10, 0)
            assert news >= 0
            counted += news
        received += message_bytes * on_the_wire
        meter.on_stats(stats(received))
    assert abs(received - counted) <= 0.02 * size
    assert meter.on_the_wire(1000, 0) == pytest.approx(1000 * ratio, rel=0.01)


def test_what_is_received_and_not_taken_out_is_counted_and_changes_the_size_of_records_little():
    meter = WireMeter()
    assert taken_out(meter, 990, 1) == 1000
    meter.on_stats(stats(101_000))
    assert taken_out(meter, 990, 1) == pytest.approx(1500 + 100_000)
    assert taken_out(meter, 990, 1) == pytest.approx(1500)


def test_what_was_counted_too_much_is_taken_off_what_comes():
    meter = WireMeter()
    taken_out(meter, 9990, 1)
    meter.on_stats(stats(6000))
    assert taken_out(meter, 990, 1) == 0
    assert sum(taken_out(meter, 990, 1) for _ in range(9)) == pytest.approx(10 * 800 - 4000)


def test_the_statistics_of_all_brokers_count():
    meter = WireMeter()
    taken_out(meter, 990, 1)
    meter.on_stats(json.dumps({"brokers": {"1": {"rxbytes": 700, "rx": 500}, "2": {"rxbytes": 524, "rx": 500}}}))
    assert taken_out(meter, 0, 0) == 224


def test_what_comes_while_nothing_is_taken_out_says_nothing_of_records():
    meter = WireMeter()
    for _ in range(50):
        meter.on_stats(stats(10_000))
    assert meter.on_the_wire(1000, 0) == 1000


def test_statistics_tell_of_throttling():
    meter = WireMeter()
    meter.on_stats(json.dumps({"brokers": {"1": {"throttle": {"sum": 250, "cnt": 3}}, "2": {"throttle": {"sum": 50}}}}))
    assert meter.take_throttle() == pytest.approx(0.3)
    assert meter.take_throttle() == 0
