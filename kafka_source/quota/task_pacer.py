"""A task's side of a quota: the time and size of its fetches, even if the quota's server does not answer."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple
from math import inf

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.quota.account import GRANT_SECONDS, Account, Grant, Report
from kafka_source.quota.bounds import Ticket, is_file, watch
from kafka_source.runtime.control_port import ControlClient

log = logging.getLogger(__name__)

MAX_WAIT = 1.0
"""The longest wait between two requests to the quota server, so that a raised quota takes effect."""

_NONE = Grant(0.0, 0.0, 0.0)


def pacer_of(ticket: Ticket | None, settings: Settings, rate: str) -> "Pacer":
    """Return the pacer of a task, a context manager; without a ticket it delays no fetch.

    Args:
        ticket: The task's part of its query's quota.
        settings: The query's client settings.
        rate: The name of the brokers' bound, for `quota.watch=broker`.
    """
    return Pacer() if ticket is None else Pacer(ticket.slot, _Allowances(ticket, settings, rate).ask)


class _Allowances:
    """Sends requests to the query's server. A task that cannot reach the server uses its share of the bound."""

    def __init__(self, ticket: Ticket, settings: Settings, rate: str) -> None:
        self._ticket, self._settings, self._rate = ticket, settings, rate
        self._own: Account | None = None
        self._client = ControlClient(ticket.server)
        self._resources = ExitStack()
        self._resources.callback(self._client.close)

    def ask(self, report: Report) -> Grant:
        try:
            if self._own is None:
                return Grant(*self._client.ask((self._ticket.account, astuple(report))))
        except (OSError, ValueError) as problem:
            self._own = self._keep_to_share(problem)
        finally:
            if not report.left:
                self._resources.close()
        return self._own.grant(report, time.monotonic())

    def _keep_to_share(self, problem: Exception) -> Account:
        # If a server that has answered resets the connection, its query has ended, and the query's tasks end, too.
        has_ended = isinstance(problem, (ConnectionResetError, BrokenPipeError))
        level = logging.INFO if has_ended else logging.WARNING
        log.log(level, "quota server not reachable (%s); this task keeps to its share of the bound", problem)
        quota, bounds, share = self._ticket.settings, self._ticket.bounds, self._ticket.share
        account = Account(quota, bounds.share(share))
        if quota.watch is not None and not is_file(quota.watch):
            stop = watch(quota, self._settings, self._rate, bounds, lambda now: account.change(now.share(share)))
            self._resources.callback(stop)
        return account


class Pacer:
    """Delays a task's fetches, and counts its fetches, the brokers' throttling, and bad records.

    Args:
        slot: The task's slot or input partition.
        ask: Takes a report, and returns the next allowed fetch; None: there is no quota.
    """

    def __init__(self, slot: int = -1, ask: Callable[[Report], Grant] | None = None) -> None:
        self._ask = ask
        self._grant = _NONE
        self._report = Report(slot)
        self._not_before = float("-inf")
        self._began = time.monotonic()
        self.delay = self.throttle = 0.0

    @property
    def enabled(self) -> bool:
        """Whether there is a quota."""
        return self._ask is not None

    def seconds_to_wait(self, left: int) -> float:
        """Return the seconds until the next fetch may be sent; 0: now.

        Args:
            left: Offsets that the task has still to read, above 0.
        """
        now, done, grant = time.monotonic(), self._report, self._grant
        is_old = now > self._not_before + GRANT_SECONDS
        is_spent = done.bytes >= grant.bytes or done.records >= grant.records
        if self._ask is not None and now >= self._not_before and (is_old or is_spent):
            grant = self._ask(self._reported(left))
            wait = self._report.delay = min(grant.delay, MAX_WAIT)
            # If the task waits for only a part of the delay, it asks again after that part.
            self._grant = grant if wait == grant.delay else _NONE
            self._not_before = now + wait
            self.delay += wait
        return max(0.0, self._not_before - now)

    def max_bytes(self, record_bytes: float) -> int | None:
        """Return the maximum number of bytes of the next fetch; None: unlimited.

        Args:
            record_bytes: The approximate bytes of an offset.
        """
        grant, done = self._grant, self._report
        max_bytes = min(grant.bytes - done.bytes, (grant.records - done.records) * record_bytes)
        return None if self._ask is None or max_bytes == inf else max(1, int(max_bytes))

    def fetched(self, size: float, records: int) -> None:
        """Count a response, or a part of it, in bytes on the wire and offsets."""
        self._report.bytes += size
        self._report.records += records

    def measured(self, tp: TopicPartition, size: float, offsets: int) -> None:
        """Record how many bytes the fetched records of one partition have."""
        if self._ask is not None:
            self._report.sizes.append((tp.topic, tp.partition, size, offsets))

    def throttled(self, seconds: float) -> None:
        """Count a pause by a broker's throttling (KIP-219)."""
        self.throttle += seconds
        self._report.throttle += seconds

    def found_bad(self, records: int) -> None:
        """Count records whose values cannot be decoded."""
        self._report.bad_records += records

    def __enter__(self) -> "Pacer":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ask is not None:
            self._report.busy = max(0.0, time.monotonic() - self._began - self.delay - self.throttle)
            self._ask(self._reported(0))
        if self.delay or self.throttle:
            log.info("pace slot=%d delay_s=%.2f throttle_s=%.2f", self._report.slot, self.delay, self.throttle)

    def _reported(self, left: int) -> Report:
        """Return the report until now, and begin a new report."""
        report, self._report = self._report, Report(self._report.slot)
        report.left = left
        return report
