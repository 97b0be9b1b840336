from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_source.kafka_client import Deadline, delay


@given(st.integers(0, 10_000))
def test_pauses_double_up_to_the_longest_with_a_fifth_of_jitter(attempt: int) -> None:
    pause = delay(attempt, 0.1, 1.0)
    wanted = min(1.0, 0.1 * 2 ** min(attempt, 10))
    assert 0.8 * wanted <= pause <= 1.2 * wanted


def test_a_deadline_that_is_over_has_nothing_left() -> None:
    assert Deadline(0).over
    assert Deadline(0).left == 0
    assert not Deadline(60).over
