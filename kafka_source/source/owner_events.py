"""Commits and rebalances of a query between two micro-batches, counted until the query's progress takes them along."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from kafka_source.model.driver_figures import Commit, Rebalance

# A query without new records commits nothing, so this is more than a micro-batch ever has.
_MOST_KEPT = 32


@dataclass(frozen=True, slots=True)
class OwnerEvents:
    """What happened since the last planned micro-batch; see `DriverFigures`."""

    commits: tuple[Commit, ...] = ()
    failed_commits: int = 0
    rebalances: tuple[Rebalance, ...] = ()


class CommitLog:
    """The commits of a driver: the duration of each one, and how many failed."""

    def __init__(self) -> None:
        self._commits: deque[Commit] = deque(maxlen=_MOST_KEPT)
        self._failed = 0

    def committed(self, seconds: float) -> None:
        """Note a successful commit that has just ended."""
        self._commits.append(Commit(round(time.time() * 1000), round(seconds * 1000, 1)))

    def failed(self) -> None:
        """Note a commit that failed."""
        self._failed += 1

    def take(self, rebalances: tuple[Rebalance, ...]) -> OwnerEvents:
        """Return what was noted since the last call, with these rebalances."""
        events = OwnerEvents(tuple(self._commits), self._failed, rebalances)
        self._commits.clear()
        self._failed = 0
        return events
