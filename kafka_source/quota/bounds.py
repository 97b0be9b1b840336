"""The bounds of a quota in bytes and records a second: from the options, a file, a URL, or the brokers (KIP-546)."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from kafka_source.client_config import Settings
from kafka_source.cluster.client_quotas import value_of_client
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.options import CommonOptions
from kafka_source.runtime.control_port import Address

_NAMES = {"bytes_per_second", "records_per_second", "enabled", "clients"}

Amounts = tuple[float, float]
"""Bytes and records."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowed bytes and records a second; None: unlimited."""

    bytes_per_second: float | None = None
    records_per_second: float | None = None

    def share(self, part: float) -> Bounds:
        """Return these bounds multiplied by `part`."""
        return Bounds(*(None if amount == inf else amount for amount in self.amounts(part)))

    def amounts(self, seconds: float) -> Amounts:
        """Return the bytes and records that are allowed in this number of seconds; inf: unlimited."""
        by_bytes, by_records = self.bytes_per_second, self.records_per_second
        return inf if by_bytes is None else by_bytes * seconds, inf if by_records is None else by_records * seconds


UNBOUNDED = Bounds()


def read_document(document: Any, client_id: str, otherwise: Bounds) -> Bounds:
    """Return the bounds that a watched document sets for a client id.

        {"bytes_per_second": 1000000, "records_per_second": null, "enabled": true,
         "clients": {"orders-etl": {"enabled": false}}}

    The entry of the client id takes precedence over the top level. A missing name leaves the bound of the options, null
    removes the bound, and `"enabled": false` removes both bounds.

    Args:
        document: The parsed JSON.
        client_id: The query's `kafka.client.id`.
        otherwise: The bounds of the options.

    Raises:
        ValueError: The document has another form.
    """
    whole = _entry(document)
    if not isinstance(clients := whole.get("clients", {}), dict):
        raise ValueError("clients must be an object whose keys are client ids")
    settings = {**whole, **_entry(clients.get(client_id, {}))}
    if not settings.get("enabled", True):
        return UNBOUNDED
    return Bounds(**{name: _number(settings, name, otherwise) for name, otherwise in asdict(otherwise).items()})


def _entry(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError('a quota must be an object such as {"bytes_per_second": 1000000}')
    if unknown := sorted(set(value) - _NAMES):
        raise ValueError(f"the name {unknown[0]} is unknown; known names are {', '.join(sorted(_NAMES))}")
    if not isinstance(value.get("enabled", True), bool):
        raise ValueError("enabled must be true or false")
    return value


def _number(settings: Mapping[str, Any], name: str, otherwise: float | None) -> float | None:
    value = settings.get(name, otherwise)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{name} must be a number above 0, or null")
    return None if value is None else float(value)


BROKER = "broker"
"""The value of `quota.watch` for the brokers' own quota."""


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """A query's quota.

    Attributes:
        bounds: The bounds of the options.
        windows: The number of samples in a window.
        seconds: The length of a sample, in seconds.
        watch: The source of bounds while the query runs: a file's path, a URL, or `broker`; None: no source.
        report: The file to which the driver writes figures; None: no file.
        client_id: The client id of fetchers or producers, which is also the query's name in a watched document.
    """

    bounds: Bounds
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
        """Whether there is a bound, or a watched source may set one; if not, tasks only report their fetches."""
        return self.bounds != UNBOUNDED or self.watch is not None

    @staticmethod
    def of(options: CommonOptions) -> QuotaSettings | None:
        """Return the options' quota, or None."""
        settings = QuotaSettings.measuring(options)
        return settings if settings.limits else None

    @staticmethod
    def measuring(options: CommonOptions) -> QuotaSettings:
        """Return the options' quota; if they set no bounds, a quota that only measures."""
        bounds, watch = Bounds(options.quota_bytes_per_second, options.quota_records_per_second), options.quota_watch
        windows, seconds = options.quota_windows, options.quota_window_ms / 1000
        client_id = options.settings.client_id()
        return QuotaSettings(bounds, windows, seconds, watch, options.quota_report, client_id)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A task's part of its query's quota, and the address of the quota's server.

    Attributes:
        settings: The query's quota.
        bounds: The bounds when the task was planned.
        server: The control port of the process that has the query's account.
        slot: The number of the task's slot or, without a group, of its input partition.
        share: The share of the bounds for a task that cannot reach the server.
        account: The name of the query's account at the server.
    """

    settings: QuotaSettings
    bounds: Bounds
    server: Address
    slot: int = -1
    share: float = 1.0
    account: str = ""

    def of(self, slot: int, share: float) -> Ticket:
        """Return the ticket of a task that reads this share of a batch."""
        return replace(self, slot=slot, share=share)


log = logging.getLogger(__name__)

_URL_SECONDS = 5.0
_MAX_DOCUMENT = 1 << 20
_PROBLEMS = (OSError, ValueError, KafkaGroupError, http.client.HTTPException)


def is_file(watch: str) -> bool:
    """Return whether the bounds are in a file of the driver's machine, which tasks elsewhere cannot read."""
    return watch != BROKER and not watch.lower().startswith(("http://", "https://"))


def current_bounds(quota: QuotaSettings, settings: Settings, rate: str) -> Bounds:
    """Return the current bounds, from the options or from `quota.watch`.

    Args:
        quota: The query's quota.
        settings: The query's client settings.
        rate: The brokers' name of a bound in bytes: consumer_byte_rate or producer_byte_rate.

    Raises:
        KafkaGroupError: The brokers refuse to describe quotas.
        OSError: The file or URL cannot be read.
        HTTPException: The URL cannot be read.
        ValueError: The file or URL has no quota.
    """
    where = quota.watch
    if where is None:
        return quota.bounds
    if where == BROKER:
        found = value_of_client(settings, quota.client_id, rate)
        return quota.bounds if found is None else Bounds(found, quota.bounds.records_per_second)
    if is_file(where) and not Path(where).exists():
        return quota.bounds
    with Path(where).open("rb") if is_file(where) else urlopen(where, timeout=_URL_SECONDS) as document:
        return read_document(json.loads(document.read(_MAX_DOCUMENT)), quota.client_id, quota.bounds)


def bounds_at_start(quota: QuotaSettings, settings: Settings, rate: str) -> Bounds:
    """Return the current bounds for a query that is being planned; see `current_bounds`.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read.
    """
    try:
        return current_bounds(quota, settings, rate)
    except _PROBLEMS as problem:
        raise InvalidConfigurationError(f"The quota that quota.watch names cannot be read: {_words(problem)}") from None


def watch(
    quota: QuotaSettings, settings: Settings, rate: str, last: Bounds, on_change: Callable[[Bounds], None]
) -> Callable[[], None]:
    """Call `on_change` with the bounds whenever they change, on a thread, until the returned function is called.

    An unreadable source changes nothing. The bounds are looked up four times a window, at least once a second.

    Args:
        quota: See `current_bounds`.
        settings: See `current_bounds`.
        rate: See `current_bounds`.
        last: The current bounds.
        on_change: Called with the new bounds.
    """
    ended = threading.Event()

    def run() -> None:
        nonlocal last
        before = ""
        while not ended.wait(min(1.0, quota.window / 4)):
            try:
                now, problem = current_bounds(quota, settings, rate), ""
            except _PROBLEMS as error:
                # A document that is just being written may be incomplete.
                now, problem = last, _words(error)
            if problem and problem != before:
                log.warning("quota.watch cannot be read, so the last bounds stay in force: %s", problem)
            if now != last:
                log.info("quota changed bytes_per_s=%s records_per_s=%s", now.bytes_per_second, now.records_per_second)
                on_change(now)
            last, before = now, problem

    if quota.watch is not None:
        threading.Thread(target=run, name="kafkagroup-quota-watch", daemon=True).start()
    return ended.set


def _words(problem: Exception) -> str:
    # Errors of HTTP show pieces of the URL, which may have a password.
    return type(problem).__name__ if isinstance(problem, http.client.HTTPException) else str(problem)
