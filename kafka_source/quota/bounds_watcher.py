"""Bounds that change while a query runs: from a file, a URL, or the brokers' own client quotas (KIP-546)."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from kafka_source.client_config import Settings
from kafka_source.cluster.client_quotas import value_of_client
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.quota.bounds import Bounds, read_document
from kafka_source.quota.settings import BROKER, QuotaSettings

log = logging.getLogger(__name__)

_URL_SECONDS = 5.0
_LONGEST_DOCUMENT = 1 << 20
_PROBLEMS = (OSError, ValueError, KafkaGroupError, http.client.HTTPException)


def is_a_file(watch: str) -> bool:
    """Return whether the bounds are in a file: the driver's, which tasks elsewhere cannot read."""
    return watch != BROKER and not watch.lower().startswith(("http://", "https://"))


def look(quota: QuotaSettings, settings: Settings, rate: str) -> Bounds:
    """Return the bounds of now: those of the options, or what `quota.watch` names.

    Args:
        quota: The query's quota.
        settings: The query's client settings.
        rate: The brokers' name of a bound in bytes: consumer_byte_rate or producer_byte_rate.

    Raises:
        KafkaGroupError: The brokers refuse to describe quotas.
        OSError: The file or URL cannot be read.
        HTTPException: The URL cannot be read.
        ValueError: It has no quota.
    """
    where = quota.watch
    if where is None:
        return quota.bounds
    if where == BROKER:
        found = value_of_client(settings, quota.client_id, rate)
        return quota.bounds if found is None else Bounds(found, quota.bounds.records_per_second)
    if is_a_file(where) and not Path(where).exists():
        return quota.bounds
    with Path(where).open("rb") if is_a_file(where) else urlopen(where, timeout=_URL_SECONDS) as document:
        return read_document(json.loads(document.read(_LONGEST_DOCUMENT)), quota.client_id, quota.bounds)


def look_first(quota: QuotaSettings, settings: Settings, rate: str) -> Bounds:
    """Return the bounds for a query that is being planned, as `look`.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read.
    """
    try:
        return look(quota, settings, rate)
    except _PROBLEMS as problem:
        raise InvalidConfigurationError(f"The quota that quota.watch names cannot be read: {_words(problem)}") from None


def watch(
    quota: QuotaSettings, settings: Settings, rate: str, last: Bounds, tell: Callable[[Bounds], None]
) -> Callable[[], None]:
    """Call `tell` with the bounds whenever they change, on a thread, until the returned function is called.

    What cannot be read changes nothing. The bounds are looked up once a second at least, four times a window.

    Args:
        quota: See `look`.
        settings: See `look`.
        rate: See `look`.
        last: The bounds that hold already.
        tell: Called with other ones.
    """
    ended = threading.Event()

    def run() -> None:
        nonlocal last
        before = ""
        while not ended.wait(min(1.0, quota.window / 4)):
            try:
                now, problem = look(quota, settings, rate), ""
            except _PROBLEMS as error:
                # A document that is just being written may be incomplete.
                now, problem = last, _words(error)
            if problem and problem != before:
                log.warning("quota.watch cannot be read; the last bounds hold: %s", problem)
            if now != last:
                log.info("quota changed bytes_per_s=%s records_per_s=%s", now.bytes_per_second, now.records_per_second)
                tell(now)
            last, before = now, problem

    if quota.watch is not None:
        threading.Thread(target=run, name="kafkagroup-quota-watch", daemon=True).start()
    return ended.set


def _words(problem: Exception) -> str:
    # HTTP's own errors show pieces of the URL, which may have a password.
    return type(problem).__name__ if isinstance(problem, http.client.HTTPException) else str(problem)
