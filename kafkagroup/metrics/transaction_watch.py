"""Looks for the open transactions of exactly-once sinks, as `kafkagroup transactions list` does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import Described
from kafkagroup.metrics import catalog
from kafkagroup.metrics.exporter import Update
from kafkagroup.metrics.point import Point, Series, point

log = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TransactionWatch:
    """Which sinks' transactions to look for. The driver asks the brokers itself, so it must reach them.

    The user needs DESCRIBE on the transactional ids and on the group `{prefix}-ledger`.

    Attributes:
        settings: The settings of the Kafka clients.
        prefixes: Each sink's `transactional.id.prefix`.
        seconds: The time between two looks.
    """

    settings: Settings
    prefixes: tuple[str, ...]
    seconds: float = 30.0


class TransactionWatcher:
    """Looks on a thread of its own until it is closed.

    Args:
        watch: What to look for.
        export: Takes the updates.
    """

    def __init__(self, watch: TransactionWatch, export: Callable[[Update], None]) -> None:
        self._watch, self._export = watch, export
        self._client = KafkaClient(watch.settings)
        self._gauges: frozenset[Series] = frozenset()
        self._problem: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafkagroup-transaction-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close the connections."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(self._client):
            while not self._ended.is_set():
                self._look()
                self._ended.wait(self._watch.seconds)

    def _look(self) -> None:
        points: list[Point] = []
        problems: list[str] = []
        for prefix in self._watch.prefixes:
            try:
                points += self._points(prefix)
            except (KafkaGroupError, TimeoutError) as error:
                # Without figures the gauges go, so that nobody takes an old figure for a new one.
                problems.append(f"{prefix}: {error}")
        gauges = frozenset(p.series for p in points)
        gone, self._gauges = self._gauges - gauges, gauges
        problem = "; ".join(problems) or None
        if problem is not None and problem != self._problem:
            log.warning("metrics: the open transactions are unknown: %s", problem)
        self._problem = problem
        self._export(Update(tuple(points), tuple(gone)))

    def _points(self, prefix: str) -> Iterator[Point]:
        sink, deadline = TwoPhaseCommit(self._client, prefix), Deadline(_LOOK_SECONDS)
        decision = self._client.run(sink.decided(deadline), _LOOK_SECONDS)
        undecided = self._client.run(sink.undecided(deadline), _LOOK_SECONDS)
        yield point(catalog.TRANSACTIONS, 0 if decision is None else len(decision.transactions), prefix, "decided")
        yield point(catalog.TRANSACTIONS, len(undecided), prefix, "undecided")
        yield point(catalog.OLDEST_TRANSACTION, _oldest(undecided, time.time()), prefix)


def _oldest(transactions: Iterable[Described], now: float) -> float:
    return max((max(0.0, now - one.started_ms / 1000) for one in transactions if one.started_ms >= 0), default=0.0)
