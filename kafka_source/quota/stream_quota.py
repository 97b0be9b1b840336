"""A stream's quota in its driver: one account for all tasks, watched bounds, and figures."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.quota.batch_sizing import admit
from kafka_source.quota.server import QuotaServer, listen
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.runtime.replace_file import replace_file

log = logging.getLogger(__name__)

CONSUMER_RATE = "consumer_byte_rate"


class StreamQuota:
    """Made once by a stream's driver.

    Args:
        quota: The query's quota.
        settings: The query's client settings.

    Raises:
        InvalidConfigurationError: `quota.watch` cannot be read.
    """

    def __init__(self, quota: QuotaSettings, settings: Settings) -> None:
        listener, self._ticket = listen(quota, settings, CONSUMER_RATE)
        self._server = QuotaServer(self._ticket, settings, CONSUMER_RATE, listener)
        self._quota, self._account = quota, self._server.account(self._ticket.account)
        self._ended = threading.Event()
        if quota.report is not None:
            threading.Thread(target=self._write_report, args=(Path(quota.report),), daemon=True).start()

    def admit(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        slots: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return where each partition of the next micro-batch ends, so that the batch takes one window of the quota.

        Every window has one pause between two micro-batches then, neither two nor none.
        """
        most, sizes = self._account.bounds.amounts(self._quota.window), self._account.record_bytes()
        # Partitions that share a bound.
        together: dict[int, dict[TopicPartition, int]] = {}
        for tp, start in starts.items():
            together.setdefault(slots[tp] if self._quota.per_member else 0, {})[tp] = start
        return {tp: end for mine in together.values() for tp, end in admit(mine, ends, sizes, most).items()}

    def record_bytes(self) -> dict[TopicPartition, float]:
        """Return the bytes of an offset in each partition that tasks have read from, as fetched (compressed)."""
        return self._account.record_bytes()

    def ticket(self, slot: int, share: float) -> Ticket:
        """Return what the task of a slot takes along.

        Args:
            slot: The number of the slot, or of the input partition without a group.
            share: The task's part of all that the micro-batch has to read.
        """
        return replace(self._ticket, bounds=self._account.bounds).of(slot, share)

    def figures(self) -> dict[str, Any]:
        """Return how much of the quota is used, rates, and delays by slot."""
        return self._account.figures(time.monotonic())

    def close(self) -> None:
        """Stop serving, watching and reporting."""
        self._ended.set()
        self._server.close()

    def _write_report(self, path: Path) -> None:
        try:
            while not self._ended.wait(self._quota.seconds):
                replace_file(path, json.dumps({"clientId": self._quota.client_id, **self.figures()}))
        except OSError as problem:
            log.warning("quota.report disabled: cannot write %s: %s", path, problem)
