"""Bounds that change while a query runs: from a file, a URL, or the brokers' own client quotas (KIP-546)."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.quota.bounds import Bounds, read_document
from kafka_source.quota.broker_quotas import ClientQuotas
from kafka_source.quota.settings import BROKER, QuotaSettings

log = logging.getLogger(__name__)

_URLS = ("http://", "https://")
_URL_SECONDS = 5.0
_LONGEST_DOCUMENT = 1 << 20
_MOST_SECONDS = 1.0
_PROBLEMS = (OSError, ValueError, KafkaGroupError, http.client.HTTPException)

Look = Callable[[], Bounds]


def is_of_a_file(watch: str) -> bool:
    """Whether the bounds are in a file, which is the driver's, and not where every task can look."""
    return watch != BROKER and not watch.lower().startswith(_URLS)


def look_of(quota: QuotaSettings, settings: Settings, rate: str) -> Look:
    """How the bounds are looked up that `quota.watch` names.

    Args:
        quota: Of the query.
        settings: Of the Kafka clients.
        rate: The brokers' name for a bound in bytes: consumer_byte_rate or producer_byte_rate.
    """
    where = quota.watch
    assert where is not None
    if where == BROKER:
        return ClientQuotas(settings, quota.client_id, rate, quota.bounds).look
    if is_of_a_file(where):
        return lambda: _read_file(Path(where), quota)
    return lambda: read_document(json.loads(_fetch(where)), quota.client_id, quota.bounds)


def _read_file(path: Path, quota: QuotaSettings) -> Bounds:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return quota.bounds
    return read_document(json.loads(text), quota.client_id, quota.bounds)


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_URL_SECONDS) as response:
        body: bytes = response.read(_LONGEST_DOCUMENT)
        return body


def look_first(look: Look) -> Bounds:
    """The bounds of a query that is being planned.

    Raises:
        InvalidConfigurationError: They cannot be read.
    """
    try:
        return look()
    except _PROBLEMS as problem:
        raise InvalidConfigurationError(f"The quota that quota.watch names cannot be read: {_words(problem)}") from None


def _words(problem: Exception) -> str:
    # HTTP's own errors show pieces of the URL, in which there may be a password.
    return type(problem).__name__ if isinstance(problem, http.client.HTTPException) else str(problem)


class BoundsWatcher:
    """Looks again and again, on a thread of its own; what cannot be read changes nothing.

    Args:
        look: Gives the bounds of now.
        tell: Called with them when they change.
        window: Seconds within which a change must be in effect.
        last: The bounds that hold already.
    """

    def __init__(self, look: Look, tell: Callable[[Bounds], None], window: float, last: Bounds) -> None:
        self._look = look
        self._tell = tell
        self._pause = min(_MOST_SECONDS, window / 4)
        self._last = last
        self._ended = threading.Event()
        self._problem = ""
        threading.Thread(target=self._run, name="kafkagroup-quota-watch", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            try:
                now = self._look()
                problem = ""
            except _PROBLEMS as error:
                # A document that is just being written may be half there: what held goes on to hold.
                now, problem = self._last, _words(error)
            if problem != self._problem:
                self._problem = problem
                if problem:
                    log.warning("the quota cannot be read, so the last one holds: %s", problem)
            if now != self._last:
                log.info("quota changed bytes_per_s=%s records_per_s=%s", now.bytes_per_second, now.records_per_second)
                self._last = now
                self._tell(now)
