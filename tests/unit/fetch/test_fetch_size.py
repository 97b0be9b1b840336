"""Fetches from a broker that is far away get larger, within a bound, and those of a throttled client do not."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_source.fetch.native_connections import FAR_BYTES, NEAR_BYTES, FetchSize


def test_a_task_that_waits_longer_than_it_decodes_asks_for_twice_as_much() -> None:
    size = FetchSize()
    assert size.bytes == NEAR_BYTES
    size.received(NEAR_BYTES, waited=0.010, taken=0.005, throttled=False)
    assert size.bytes == 2 * NEAR_BYTES
    # It now takes as long to decode a response as the next one is on its way.
    size.received(2 * NEAR_BYTES, waited=0.010, taken=0.010, throttled=False)
    assert size.bytes == 2 * NEAR_BYTES


def test_a_response_that_ends_with_the_log_says_nothing() -> None:
    size = FetchSize()
    size.received(NEAR_BYTES // 2, waited=10.0, taken=0.001, throttled=False)
    assert size.bytes == NEAR_BYTES


def test_a_throttled_client_asks_for_no_more_than_at_the_beginning_while_it_is_throttled() -> None:
    size = FetchSize()
    size.received(NEAR_BYTES, waited=1.0, taken=0.0, throttled=False)
    for _ in range(5):
        size.received(NEAR_BYTES, waited=1.0, taken=0.0, throttled=True)
        assert size.bytes == NEAR_BYTES
    size.received(NEAR_BYTES, waited=1.0, taken=0.0, throttled=False)
    assert size.bytes == 2 * NEAR_BYTES


@given(
    st.integers(1, FAR_BYTES),
    st.lists(st.tuples(st.integers(0, 2 * FAR_BYTES), st.floats(0, 100), st.floats(0, 100), st.booleans())),
)
def test_the_size_stays_within_the_bound_and_never_falls_below_the_first_one(
    most: int, responses: list[tuple[int, float, float, bool]]
) -> None:
    size = FetchSize(most)
    first = size.bytes
    assert first <= NEAR_BYTES
    for got, waited, taken, throttled in responses:
        size.received(got, waited=waited, taken=taken, throttled=throttled)
        assert first <= size.bytes <= most
