"""Slots that share a quota: each fetch has a turn of its own, and what a slot leaves is the others'."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.quota import UNBOUNDED, Bounds
from kafka_source.quota.account import Account, Report
from kafka_source.quota.quota import CATCH_UP, LATE_SECONDS
from kafka_source.quota.settings import QuotaSettings

MB = 1_000_000
QUOTA = QuotaSettings(Bounds(bytes_per_second=MB), False, 10, 1.0, None, None, "orders")


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.floats(0.03, 0.3))
def test_no_five_seconds_have_more_however_many_slots_fetch_whole_batches(slots, batch):
    """A broker sends a batch, however large, to each slot that asks; `batch` is in seconds of the bound."""
    account, sent = Account(QUOTA), []
    # When each slot asks next, and whether it fetches then.
    asks = dict.fromkeys(range(slots), (0.0, 0.0))
    while True:
        part, (now, fetched) = min(asks.items(), key=lambda one: one[1][0])
        if now > 20:
            break
        if fetched:
            sent.append((now, fetched))
        grant = account.grant(Report(part, bytes=fetched, left=100), now)
        pause = min(grant.delay, 0.25)
        asks[part] = (now + pause, batch * MB) if pause == grant.delay else (now + pause, 0.0)
    after = [(at, size) for at, size in sent if at > 1]
    for i, (begin, _) in enumerate(after):
        in_five = sum(size for at, size in after[i:] if at < begin + 5)
        assert in_five <= MB * (5 * CATCH_UP + LATE_SECONDS + batch + 1e-3)
    if batch * slots < 1:
        assert sum(size for _, size in sent) >= MB * 19.5


def test_turns_come_after_each_other_and_are_kept():
    account = Account(QUOTA)
    for part in range(4):
        account.grant(Report(part, bytes=100_000, left=10), 0.0)
    delays = [account.grant(Report(part, bytes=100_000, left=10), 5.0).delay for part in range(4)]
    step = 0.1 / CATCH_UP
    assert delays == pytest.approx([0, step - LATE_SECONDS, 2 * step - LATE_SECONDS, 3 * step - LATE_SECONDS])
    # Who asks again has not lost its place, and takes no second one.
    assert account.grant(Report(2, left=10), 5.1).delay == pytest.approx(delays[2] - 0.1)
    assert account.grant(Report(3, left=10), 5.1).delay == pytest.approx(delays[3] - 0.1)


def test_a_slot_that_is_done_gives_its_turn_back():
    behind = []
    for is_done in (False, True):
        account = Account(QUOTA)
        account.grant(Report(0, bytes=500_000, left=10), 0.0)
        if is_done:
            account.grant(Report(0, left=0), 0.1)
        behind.append(account.grant(Report(1, bytes=1, left=10), 0.2).delay)
    assert behind[1] == pytest.approx(behind[0] - 0.5 / CATCH_UP)


def test_another_bound_ends_all_turns():
    account = Account(QUOTA)
    account.grant(Report(0, bytes=9_000_000, left=10), 0.0)
    assert account.grant(Report(0, left=10), 0.1).delay > 8
    account.change(UNBOUNDED)
    assert account.grant(Report(0, left=10), 0.2).delay == 0


def test_a_bound_that_is_never_reached_holds_nobody_up():
    account = Account(replace(QUOTA, bounds=Bounds(bytes_per_second=1e12, records_per_second=1e12)))
    for now in (0.0, 0.001, 0.002):
        for part in range(8):
            assert account.grant(Report(part, bytes=now * 8e9, records=now * 1e8, left=10), now).delay < 1e-3
