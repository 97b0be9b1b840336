"""When a record was written, from the ends of its partition as triggers saw them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkagroup.metrics.sample import ProductionCurve


def curve(*points: tuple[float, int]) -> ProductionCurve:
    made = ProductionCurve()
    for at, end in points:
        made.observe(at, end)
    return made


@pytest.mark.parametrize(("offset", "written"), [(100, 10.0), (150, 15.0), (199, 19.9), (200, None), (1000, None)])
def test_between_two_looks_the_time_is_interpolated(offset: int, written: float | None) -> None:
    assert curve((10, 100), (20, 200)).written_at(offset) == written


def test_what_was_written_after_a_pause_is_not_as_old_as_the_pause() -> None:
    paused = curve((0, 50), (10, 100), (500, 100), (900, 100), (1000, 200))
    assert paused.written_at(100) == 900
    assert paused.written_at(150) == 950
    assert paused.written_at(99) == pytest.approx(9.8)


def test_a_record_from_before_the_first_look_is_extrapolated_by_the_rate_since() -> None:
    assert curve((100, 1000), (110, 1100)).written_at(500) == 50


def test_without_a_rate_a_record_from_before_is_at_least_as_old_as_the_first_look() -> None:
    idle = curve((100, 1000), (160, 1000))
    assert idle.written_at(500) == 100
    assert idle.age(500, 160) == 60


def test_nothing_left_has_no_age() -> None:
    assert curve((100, 1000)).age(1000, 500) == 0
    assert ProductionCurve().age(0, 500) == 0


def test_a_topic_that_was_created_again_begins_a_new_curve() -> None:
    assert curve((0, 1000), (10, 2000), (20, 5), (30, 15)).written_at(10) == 25


def test_a_late_look_with_an_earlier_end_does_not_begin_a_new_curve() -> None:
    assert curve((0, 0), (10, 1000), (20, 1100), (19, 1050)).written_at(500) == 5


def test_a_replayed_micro_batch_does_not_turn_the_time_back() -> None:
    assert curve((10, 100), (20, 200), (15, 200)).written_at(150) == 15


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 1000)), min_size=2, max_size=2000), st.data())
def test_later_records_are_never_older_also_when_the_curve_was_thinned(
    steps: list[tuple[float, int]], data: st.DataObject
) -> None:
    made, at, end = ProductionCurve(), 0.0, 0
    for seconds, produced in steps:
        at, end = at + seconds, end + produced
        made.observe(at, end)
    first, second = sorted(data.draw(st.lists(st.integers(0, end + 1), min_size=2, max_size=2)))
    assert made.age(first, at) >= made.age(second, at) >= 0
    made.forget_before(first)
    assert made.age(second, at) >= 0


def test_forgetting_what_was_read_does_not_change_the_age_of_what_is_left() -> None:
    points = [(10.0 * n, 100 * n) for n in range(20)]
    whole, short = curve(*points), curve(*points)
    short.forget_before(1234)
    assert [short.written_at(offset) for offset in (1234, 1300, 1899)] == [
        whole.written_at(offset) for offset in (1234, 1300, 1899)
    ]
