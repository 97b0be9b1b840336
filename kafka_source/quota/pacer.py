"""A task's side of a quota: when the next fetch may leave, and how large it may be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.quota.account import Account, Grant, Report

log = logging.getLogger(__name__)

# Longer delays are asked for again, so that a bound that is raised is soon noticed; grants last as long at most.
_LONGEST_DELAY = 0.25
_GRANT_SECONDS = 0.1


class Allowances(Protocol):
    """Where a task asks what it may fetch."""

    def ask(self, report: Report) -> Grant:
        """Report, and hear what may be done next."""
        ...

    def close(self) -> None:
        """The task is done."""
        ...


class LocalAllowances:
    """Allowances of a task that paces itself, by its share of the bounds.

    Args:
        account: Of this task alone.
        close: What is to be ended with it.
    """

    def __init__(self, account: Account, close: Callable[[], None] = lambda: None) -> None:
        self._account = account
        self.close = close

    def ask(self, report: Report) -> Grant:
        """See `Allowances`."""
        return self._account.grant(report, time.monotonic())


class Pacer:
    """What engines use: `wait` before a fetch, `most_bytes` for its size, `fetched` after it.

    Args:
        part: The number of the task's slot.
        allowances: Where to ask; None: there is no quota, and only the brokers' throttling is counted.
    """

    def __init__(self, part: int = -1, allowances: Allowances | None = None) -> None:
        self._part = part
        self._allowances = allowances
        self._grant = Grant(0.0, 0.0, 0.0)
        self._granted_at = float("-inf")
        self._not_before = float("-inf")
        self._left = 0
        self._bytes = self._records = 0.0
        self._unreported_throttle = self._unreported_delay = 0.0
        self._sizes: dict[TopicPartition, tuple[float, int]] = {}
        self.delay = 0.0
        self.throttle = 0.0

    @property
    def paces(self) -> bool:
        """Whether there is a quota."""
        return self._allowances is not None

    def wait(self, left: int) -> float:
        """Seconds until the next fetch may leave; 0: now.

        Args:
            left: Offsets that the task has still to read.
        """
        if self._allowances is None:
            return 0.0
        now = time.monotonic()
        if now < self._not_before:
            return self._not_before - now
        self._left = left
        if self._is_spent() or now - self._granted_at > _GRANT_SECONDS:
            self._ask(now)
        return max(0.0, self._not_before - now)

    def most_bytes(self, record_bytes: float) -> int | None:
        """The size of the next fetch at most; None: any.

        Args:
            record_bytes: Of an offset, about.
        """
        if self._allowances is None:
            return None
        bounds = []
        if self._grant.bytes is not None:
            bounds.append(self._grant.bytes - self._bytes)
        if self._grant.records is not None:
            bounds.append((self._grant.records - self._records) * record_bytes)
        return max(1, int(min(bounds))) if bounds else None

    def fetched(self, size: float, records: int) -> None:
        """A response has come, or a part of it."""
        self._bytes += size
        self._records += records

    def measured(self, tp: TopicPartition, size: float, offsets: int) -> None:
        """Bytes and offsets of one partition, in one response."""
        if self._allowances is not None:
            before = self._sizes.get(tp, (0.0, 0))
            self._sizes[tp] = before[0] + size, before[1] + offsets

    def throttled(self, seconds: float) -> None:
        """A broker asked for a pause (KIP-219)."""
        self.throttle += seconds
        self._unreported_throttle += seconds

    def __enter__(self) -> Pacer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._allowances is not None:
            self._left = 0
            self._ask(time.monotonic())
            self._allowances.close()
        if self.delay or self.throttle:
            log.info("pace slot=%d delay_s=%.2f throttle_s=%.2f", self._part, self.delay, self.throttle)

    def _is_spent(self) -> bool:
        grant = self._grant
        return (grant.bytes is not None and self._bytes >= grant.bytes) or (
            grant.records is not None and self._records >= grant.records
        )

    def _ask(self, now: float) -> None:
        assert self._allowances is not None
        report = Report(
            self._part,
            self._bytes,
            self._records,
            self._left,
            self._unreported_delay,
            self._unreported_throttle,
            self._sizes,
        )
        self._grant = self._allowances.ask(report)
        self._bytes = self._records = self._unreported_throttle = 0.0
        self._sizes = {}
        pause = min(self._grant.delay, _LONGEST_DELAY)
        self._not_before = now + pause
        self.delay += pause
        self._unreported_delay = pause
        # What is granted is for after the whole delay; after a part of it the question is put again.
        self._granted_at = self._not_before if pause == self._grant.delay else float("-inf")
