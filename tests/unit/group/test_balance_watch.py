"""When the leader asks for a rebalance for the sake of balance."""

from kafka_source.group.classic.balance import RebalanceBackoff


def asked_at(backoff: RebalanceBackoff, looks: dict[float, bool]) -> float | None:
    """When it asks; the looks are by their time, with whether a rebalance was worth it."""
    for at, worth in looks.items():
        backoff = backoff.after_look(at, worth=worth)
        if backoff.asked:
            return at
    return None


def test_it_asks_after_the_interval_if_two_looks_in_a_row_find_it_worth() -> None:
    fresh = RebalanceBackoff(300, since=1000)
    assert asked_at(fresh, dict.fromkeys(range(1060, 2000, 60), True)) == 1300
    assert asked_at(fresh, {1060: True, 1120: True, 1290: True}) is None
    assert asked_at(fresh, {1310: True, 1370: False, 1430: True, 1490: True}) == 1490
    assert asked_at(fresh, dict.fromkeys(range(1060, 9000, 60), False)) is None


def test_every_rebalance_of_the_group_begins_the_interval_again() -> None:
    backoff = RebalanceBackoff(300, since=1000).after_look(1200, worth=True).after_rebalance(1250, moved=True)
    assert asked_at(backoff, {1300: True, 1360: True, 1550: True}) == 1550


def test_it_waits_longer_after_a_rebalance_that_moved_nothing() -> None:
    backoff, at, pauses = RebalanceBackoff(300, since=0), 0.0, []
    for _ in range(7):
        since = at
        while not backoff.asked:
            at += 60
            backoff = backoff.after_look(at, worth=True)
        pauses.append(at - since)
        backoff = backoff.after_rebalance(at, moved=False)
    assert pauses == [300, 600, 1200, 2400, 4800, 4800, 4800]
    assert backoff.after_rebalance(at, moved=True).factor == 1


def test_a_rebalance_that_it_did_not_ask_for_does_not_make_it_wait_longer() -> None:
    assert RebalanceBackoff(300, since=0).after_rebalance(100, moved=False).factor == 1
