"""Balancing work by time: what is proved in docs/design/balance.md, and that nothing moves without a gain."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.lag_balanced import TOLERANCE, WORTH, Workload, balance
from assignors.sticky_uniform import RackView

SLACK = 1 + 1e-9
"""What the rounding of floats may add."""


def longest(load: Workload, owners: list[int]) -> float:
    sums = [0] * len(load.speeds)
    for unit, place in enumerate(owners):
        sums[place] += load.work[unit]
    return max(total / speed for total, speed in zip(sums, load.speeds, strict=True))


def optimum(load: Workload) -> float:
    """The longest time of the best of all assignments, by trying each."""
    return min(longest(load, list(owners)) for owners in itertools.product(*load.readers))


speeds_of = st.lists(st.floats(1, 20), min_size=1, max_size=3)
works_of = st.lists(st.integers(0, 1000) | st.just(0), min_size=1, max_size=6)


@st.composite
def loads(draw: st.DrawFn, *, held: bool, racks: bool = True, even: bool = False, alike: bool = True) -> Workload:
    speeds = draw(speeds_of)
    if even:
        speeds = [speeds[0]] * len(speeds)
    work = draw(works_of)
    everybody = tuple(range(len(speeds)))
    some = st.lists(st.sampled_from(everybody), min_size=1, unique=True).map(lambda places: tuple(sorted(places)))
    kinds = [everybody] if alike else [everybody, draw(some)]
    readers = [draw(st.sampled_from(kinds)) for _ in work]
    holders = [draw(st.sampled_from((-1, *places))) if held else -1 for places in readers]
    rack = st.sampled_from(["a", "b"])
    view = None
    if racks and draw(st.booleans()):
        view = RackView(
            draw(st.lists(st.none() | rack, min_size=len(speeds), max_size=len(speeds))),
            draw(st.lists(st.frozensets(rack), min_size=len(work), max_size=len(work))),
        )
    return Workload(work, speeds, readers, holders, view)


@settings(deadline=None, max_examples=80)
@given(loads(held=False))
def test_a_fresh_assignment_stays_below_the_bound_of_uniform_machines(load: Workload) -> None:
    found = balance(load)
    assert found.longest <= (2 - 1 / len(load.speeds)) * optimum(load) * SLACK


@settings(deadline=None, max_examples=80)
@given(loads(held=False, racks=False, even=True))
def test_a_fresh_assignment_to_equal_members_stays_below_grahams_bound(load: Workload) -> None:
    members = len(load.speeds)
    assert balance(load).longest <= (4 / 3 - 1 / (3 * members)) * optimum(load) * SLACK


@settings(deadline=None, max_examples=80)
@given(loads(held=True))
def test_an_assignment_that_keeps_what_is_held_stays_below_its_bound(load: Workload) -> None:
    bound = WORTH * max(1 + TOLERANCE, 2 - 1 / len(load.speeds))
    assert balance(load).longest <= bound * optimum(load) * SLACK


@settings(deadline=None, max_examples=80)
@given(loads(held=True, alike=False))
def test_every_unit_goes_to_one_of_its_readers_and_no_time_is_below_the_lower_bound(load: Workload) -> None:
    found = balance(load)
    assert all(place in places for place, places in zip(found.owners, load.readers, strict=True))
    assert found.longest == longest(load, list(found.owners))
    assert load.bound <= optimum(load) * SLACK


@settings(deadline=None, max_examples=120)
@given(loads(held=True, alike=False))
def test_no_unit_moves_without_a_gain(load: Workload) -> None:
    found = balance(load)
    held = set(load.holders)
    moved = [unit for unit, holder in enumerate(load.holders) if holder not in (-1, found.owners[unit])]
    assert found.longest <= found.kept * SLACK
    for unit in moved:
        if found.owners[unit] not in held:
            # To a member that held nothing: it is done before the former holder would have been done with the unit.
            continue
        assert found.worth
        assert found.kept > WORTH / (1 + TOLERANCE) * found.longest
    if not found.worth:
        assert {found.owners[unit] for unit in moved}.isdisjoint(held)


@settings(deadline=None, max_examples=80)
@given(loads(held=True, alike=False))
def test_rebalances_of_an_unchanged_group_come_to_an_end(load: Workload) -> None:
    found = balance(load)
    for _ in range(20):
        before, found = found, balance(Workload(load.work, load.speeds, load.readers, found.owners, load.racks))
        if found.owners == before.owners:
            return
        # Each further rebalance that moves something is worth it by itself, so that they come to an end.
        newcomers = set(range(len(load.speeds))) - set(before.owners)
        moved = {new for new, old in zip(found.owners, before.owners, strict=True) if new != old}
        assert moved <= newcomers or WORTH / (1 + TOLERANCE) * found.longest < before.longest
    raise AssertionError("20 rebalances of an unchanged group moved units")


def test_errors_of_measuring_within_the_noise_move_nothing() -> None:
    even = Workload([100] * 8, [10.0, 10.0], [(0, 1)] * 8, [-1] * 8)
    owners = balance(even).owners
    noisy = Workload([100] * 8, [9.0, 11.0], [(0, 1)] * 8, owners)
    assert balance(noisy).owners == owners


def test_a_slow_member_gets_less_and_the_largest_units_go_to_the_fast_one() -> None:
    work = [800, 400, 200, 100, 50, 25, 12, 6]
    found = balance(Workload(work, [100.0, 25.0], [(0, 1)] * 8, [-1] * 8))
    assert found.owners[0] == 0
    slow = sum(work[unit] for unit, place in enumerate(found.owners) if place == 1)
    assert 0 < slow / 25 <= found.longest
    assert found.longest <= 1.1 * sum(work) / 125


def test_idle_units_are_given_out_by_number() -> None:
    found = balance(Workload([1000, *[0] * 30], [1.0, 1.0, 1.0], [(0, 1, 2)] * 31, [-1] * 31))
    sizes = [list(found.owners).count(place) for place in range(3)]
    assert max(sizes) - min(sizes) <= 1


def test_the_fewest_units_move_when_a_member_has_too_much() -> None:
    # One member has 14 of 20 equal units: four moves make both even.
    found = balance(Workload([10] * 20, [1.0, 1.0], [(0, 1)] * 20, [0] * 14 + [1] * 6))
    moved = [unit for unit, holder in enumerate([0] * 14 + [1] * 6) if found.owners[unit] != holder]
    assert found.worth
    assert len(moved) == 4
    assert found.longest == 100


def test_a_new_member_gets_a_share_although_the_longest_time_stays() -> None:
    members = 31
    holders = [unit % 30 for unit in range(90)]
    found = balance(Workload([10] * 90, [1.0] * members, [tuple(range(members))] * 90, holders))
    assert not found.worth
    assert list(found.owners).count(30) == 2


def test_units_prefer_members_on_their_racks_while_that_costs_no_time() -> None:
    racks = RackView(["a", "b"], [frozenset("a"), frozenset("b")] * 5)
    found = balance(Workload([10] * 10, [1.0, 1.0], [(0, 1)] * 10, [-1] * 10, racks))
    assert found.longest == 50
    assert list(found.owners) == [0, 1] * 5


def test_a_member_with_a_limit_gets_no_more() -> None:
    work = [100, 50, 20, 10, 5, 5, 5, 5]
    everybody = [(0, 1)] * 8
    found = balance(Workload(work, [100.0, 1.0], everybody, [-1] * 8, max_units=[3, 8]))
    assert list(found.owners).count(0) == 3


def test_nothing_to_assign() -> None:
    found = balance(Workload([], [1.0], [], []))
    assert (list(found.owners), found.longest) == ([], 0.0)
