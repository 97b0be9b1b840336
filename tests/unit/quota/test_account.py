"""Slots that share a quota: each fetch has a turn of its own, and what a slot leaves is the others'."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, count, product, repeat
from math import ceil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.quota import UNBOUNDED, Bounds
from kafka_source.quota.account import Account, Report
from kafka_source.quota.limiter import LATE_SECONDS, most_of_smooth, pace_after
from kafka_source.quota.settings import BROKER, QuotaSettings

MB = 1_000_000
QUOTA = QuotaSettings(Bounds(bytes_per_second=MB), False, 11, 1.0, None, None, "orders")


@dataclass
class Sample:
    """What a broker counted from `begin` on; `last` is when it did so last."""

    begin: float
    last: float
    amount: float = 0.0


class Broker:
    """A broker's own quota of the same bytes a second, as Kafka's `Rate` of eleven samples of a second keeps it."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def expires(self, sample: Sample) -> float:
        """When a sample is no longer looked at: a whole window after it was counted in last."""
        return sample.last + 11

    def throttle(self, size: float, now: float) -> float:
        """Seconds for which a fetch of this size is refused; 0: it is answered, and counts."""
        self._samples = [sample for sample in self._samples if now < self.expires(sample)]
        if not self._samples or now - self._samples[-1].begin >= 1:
            self._samples = [*self._samples[-11:], Sample(now, now)]
        elapsed = now - self._samples[0].begin
        window = elapsed + max(0, 10 - int(elapsed))
        over = sum(sample.amount for sample in self._samples) + size - MB * window
        self._samples[-1].last = now
        if over <= 0:
            self._samples[-1].amount += size
        # In whole milliseconds.
        return max(0, ceil(over / MB * 1000)) / 1000


class OlderBroker(Broker):
    """As Kafka was before it kept samples that overlap its window."""

    def expires(self, sample: Sample) -> float:
        return sample.begin + 11


class NoQuota:
    """A broker that keeps none."""

    def throttle(self, size: float, now: float) -> float:
        return 0.0


def micro_batches(
    slots: int, batch: float, message: float, pauses: Iterable[float], seconds: float, broker: Broker | NoQuota
) -> list[tuple[float, float]]:
    """When a query fetches how much in micro-batches as large as are admitted, with a pause between two of them.

    Args:
        slots: That read at the same time.
        batch: Bytes of a record batch: brokers send whole ones, and to each slot that asks one at least.
        message: Bytes of a record: micro-batches have whole ones.
        pauses: In seconds, one after another.
        seconds: For how long.
        broker: That is asked.
    """
    watch = None if isinstance(broker, NoQuota) else BROKER
    account, fetches, now, pause = Account(replace(QUOTA, watch=watch)), [], 0.0, iter(pauses)
    while now < seconds:
        left = dict.fromkeys(range(slots), (account.room().bytes or 0) / slots // message * message)
        # When each slot asks next, what it fetches then, and for how long it was throttled before.
        asks = dict.fromkeys(range(slots), (now, 0.0, 0.0))
        while asks:
            part, (now, size, throttle) = min(asks.items(), key=lambda ask: ask[1][0])
            if size and (refused := broker.throttle(size, now)):
                asks[part] = (now + refused, 0.0, refused)
                continue
            left[part] -= size
            if size:
                fetches.append((now, size))
            grant = account.grant(Report(part, size, size / message, int(left[part] / message), throttle=throttle), now)
            if left[part] < message:
                del asks[part]
                continue
            size = min(left[part], max(batch, (grant.bytes or 0) // batch * batch))
            asks[part] = (now + grant.delay, size, 0.0) if grant.delay <= 0.25 else (now + 0.25, 0.0, 0.0)
        now += next(pause)
    return fetches


def assert_close_to_the_bound(fetches: list[tuple[float, float]], begins: range) -> None:
    """Five seconds each, that begin at so many hundredths of a second."""
    times, sums = [at for at, _ in fetches], [0.0, *accumulate(size for _, size in fetches)]
    for begin in begins:
        inside = sums[bisect_left(times, begin / 100 + 5)] - sums[bisect_left(times, begin / 100)]
        assert 0.95 * MB <= inside / 5 <= 1.05 * MB


@pytest.mark.parametrize("broker", [NoQuota, Broker, OlderBroker])
@pytest.mark.parametrize(("batch", "message"), [(1000, 100), (17_600, 110), (100_200, 100_200)])
@pytest.mark.parametrize("pauses", [(0.1, 0.2), (0.2, 0.3), (0.25, 0.35), (0.3, 0.4), (0.15, 0.45)])
@pytest.mark.parametrize("slots", [1, 4])
def test_every_five_seconds_are_within_five_percent_of_the_bound(slots, pauses, batch, message, broker):
    random = Random(20_261_122)
    fetches = micro_batches(slots, batch, message, (random.uniform(*pauses) for _ in count()), 100, broker())
    assert_close_to_the_bound(fetches, range(1000, 9500, 25))


@pytest.mark.parametrize(("batch", "pause"), [*product([1000, 17_600, 100_200], [0.1, 0.2, 0.3, 0.35]), (1000, 0.4)])
@pytest.mark.parametrize("slots", [1, 4])
def test_so_are_they_where_all_pauses_are_the_same(slots, batch, pause):
    fetches = micro_batches(slots, batch, 1, repeat(pause), 40, NoQuota())
    assert_close_to_the_bound(fetches, range(1200, 3500, 25))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.floats(30_000, 300_000))
def test_no_five_seconds_have_more_however_many_slots_fetch_whole_batches(slots, batch):
    fetches = [(at, size) for at, size in micro_batches(slots, batch, 1, repeat(0.3), 20, NoQuota()) if at > 1]
    for i, (begin, _) in enumerate(fetches):
        inside = sum(size for at, size in fetches[i:] if at < begin + 5)
        assert inside <= most_of_smooth(batch, MB) + batch


def whole_part(account: Account, part: int, now: float, fetches: int, rate: float) -> float:
    """When a slot is done that reads so many fetches of 10 kB at so much."""
    for left in range(fetches, -1, -1):
        now += max(10_000 / rate, account.grant(Report(part, bytes=10_000, left=left), now).delay)
    return now


def starts(pauses: Iterable[float], rate: float) -> list[float]:
    """How long after the end of a micro-batch each next one may begin, of a reader of 10 kB fetches at so much."""
    account, now, found = Account(QUOTA), 0.0, []
    for pause in pauses:
        now = whole_part(account, 0, now, int(rate * 4.6 / 10_000), rate) + pause
        found.append(pause + account.grant(Report(0, left=1000), now).delay)
    return found[2:]


def test_a_reader_at_its_bound_has_pauses_that_are_all_as_long_as_the_longest():
    found = starts([0.3, 0.3, 0.2, 0.3, 0.5, 0.2, 0.25, 0.3], 1.06 * MB)
    assert found == pytest.approx([0.45, 0.45, 0.5, 0.5, 0.5, 0.5], abs=0.02)


def test_a_reader_below_its_bound_is_not_held_up():
    pauses = [0.3, 0.3, 0.2, 0.3, 0.5, 0.2, 0.25, 0.3]
    assert starts(pauses, 0.7 * MB) == pauses[2:]


def test_a_slot_that_follows_another_in_the_same_task_is_not_held_up():
    account, now = Account(QUOTA), 0.0
    begins: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(6):
        for part in begins:
            delay = account.grant(Report(part, left=1000), now).delay
            begins[part].append(delay)
            now = whole_part(account, part, now + delay, 240, 1.06 * MB) + 0.005
        now += 0.3
    assert begins[0][1:] == pytest.approx([0.45 - 0.305] * 5, abs=0.02)
    assert max(begins[1]) < 0.02


def test_turns_come_after_each_other_and_are_kept():
    account = Account(QUOTA)
    for part in range(4):
        account.grant(Report(part, bytes=100_000, left=10), 0.0)
    delays = [account.grant(Report(part, bytes=100_000, left=10), 5.0).delay for part in range(4)]
    # In the first window: without a pause to make good for.
    step = 100_000 / pace_after(0.0, 100_000, MB, brokers_refuse=False)
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
    assert behind[1] < behind[0] - 0.4


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
