"""The quota that a query's options ask for, and a task's part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_source.options import CommonOptions
from kafka_source.quota.bounds import UNBOUNDED, Bounds
from kafka_source.runtime.control_port import Address

BROKER = "broker"
"""The value of `quota.watch` for the brokers' own quota."""


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """A query's quota.

    Attributes:
        bounds: The bounds of the options.
        per_member: Whether each slot has these bounds for itself; if not, all slots share them.
        windows: The number of samples in a window.
        seconds: The length of a sample.
        watch: Where bounds are looked up while the query runs: a file's path, a URL, or `broker`; None: nowhere.
        report: The file to which the driver writes figures; None: none.
        client_id: The fetchers' (or producers') client id, and the query's name in a watched document.
    """

    bounds: Bounds
    per_member: bool
    windows: int
    seconds: float
    watch: str | None
    report: str | None
    client_id: str

    @property
    def window(self) -> float:
        """The seconds of a whole window."""
        return self.windows * self.seconds

    @property
    def limits(self) -> bool:
        """Whether there is a bound, or one may come by what is watched; if not, tasks only report what they fetch."""
        return self.bounds != UNBOUNDED or self.watch is not None

    @staticmethod
    def of(options: CommonOptions) -> QuotaSettings | None:
        """Return the quota that the options ask for, None if they ask for none."""
        settings = QuotaSettings.measuring(options)
        return settings if settings.limits else None

    @staticmethod
    def measuring(options: CommonOptions) -> QuotaSettings:
        """Return the quota that the options ask for; if they ask for none, one without bounds."""
        bounds, watch = Bounds(options.quota_bytes_per_second, options.quota_records_per_second), options.quota_watch
        windows, seconds = options.quota_windows, options.quota_window_ms / 1000
        per_member = options.quota_scope == "member"
        client_id = options.settings.client_id()
        return QuotaSettings(bounds, per_member, windows, seconds, watch, options.quota_report, client_id)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A task's part of its query's quota, and where the task asks for it.

    Attributes:
        settings: The query's quota.
        bounds: The bounds when the task was planned.
        server: The control port of the process that has the query's account.
        slot: The number of the task's slot, or of its input partition without a group.
        share: The part of the bounds that the task keeps to if it cannot reach the server.
        account: The name of the query's account at the server.
    """

    settings: QuotaSettings
    bounds: Bounds
    server: Address
    slot: int = -1
    share: float = 1.0
    account: str = ""

    def of(self, slot: int, share: float) -> Ticket:
        """Return the ticket of a task that reads so much of the whole; with `quota.scope=member` it has a whole one."""
        return replace(self, slot=slot, share=1.0 if self.settings.per_member else share)
