"""Deadlines around calls that do not keep their own."""

import threading
import time

import pytest

from kafka_source.runtime.deadline import Deadline, call_within


def test_a_call_in_time_gives_its_result_or_its_error() -> None:
    assert call_within(Deadline(10), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_within(Deadline(10), lambda: 1 // 0)


def test_a_call_that_does_not_return_is_left_to_itself() -> None:
    release, left = threading.Event(), threading.Event()

    def stuck() -> None:
        release.wait(60)
        left.set()

    with pytest.raises(TimeoutError):
        call_within(Deadline(0.05), stuck)
    assert not left.is_set()
    release.set()
    assert left.wait(10)


def test_what_remains_never_falls_below_nothing() -> None:
    assert 0 < Deadline(60).left <= 60
    deadline = Deadline(0.01)
    time.sleep(0.02)
    assert deadline.over
    assert deadline.left == 0.0
