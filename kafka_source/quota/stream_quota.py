"""A stream's quota in its driver: one account for all tasks, bounds that are watched, and figures to look at."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.kafka_client import parse_servers
from kafka_source.quota.account import Account
from kafka_source.quota.batch_sizing import admit
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.bounds_watcher import BoundsWatcher, look_first, look_of
from kafka_source.quota.server import QuotaServer, listen_towards, new_token
from kafka_source.quota.settings import QuotaSettings, Ticket

log = logging.getLogger(__name__)

CONSUMER_RATE = "consumer_byte_rate"


class StreamQuota:
    """Made once by a stream's driver.

    Args:
        quota: Of the query.
        settings: Of the Kafka clients.

    Raises:
        InvalidConfigurationError: What `quota.watch` names cannot be read.
    """

    def __init__(self, quota: QuotaSettings, settings: Settings) -> None:
        self._quota = quota
        look = None if quota.watch is None else look_of(quota, settings, CONSUMER_RATE)
        bounds = quota.bounds if look is None else look_first(look)
        listener = listen_towards(parse_servers(settings.get("bootstrap.servers", "")))
        self._server = QuotaServer(Account(replace(quota, bounds=bounds)), listener, new_token())
        self._watch = None
        self._ended = threading.Event()
        if look is not None:
            self._watch = BoundsWatcher(look, self._change, quota.window, bounds)
        if quota.report is not None:
            threading.Thread(target=self._keep_report, name="kafkagroup-quota-report", daemon=True).start()

    def admit(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        slots: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Where each partition of the next micro-batch ends, so that it can be read in about five seconds."""
        room = self._server.call(lambda account: account.room())
        sizes = self._server.call(lambda account: account.record_bytes())
        if not self._quota.per_member:
            return admit(starts, ends, sizes, room)
        admitted: dict[TopicPartition, int] = {}
        for slot in sorted(set(slots.values())):
            mine = {tp: start for tp, start in starts.items() if slots[tp] == slot}
            admitted |= admit(mine, ends, sizes, room)
        return admitted

    def ticket(self, part: int, share: float) -> Ticket:
        """What the task of a slot takes along.

        Args:
            part: The number of the slot, or of the input partition.
            share: Of all that the micro-batch has to read.
        """
        bounds = self._server.call(lambda account: account.bounds)
        share = 1.0 if self._quota.per_member else share
        return Ticket(self._quota, bounds, part, share, self._server.endpoint, self._server.token)

    def figures(self) -> dict[str, Any]:
        """How much of the quota is used, rates, and delays by slot."""
        return self._server.call(lambda account: account.figures(time.monotonic()))

    def close(self) -> None:
        """Hand nothing out any more."""
        self._ended.set()
        if self._watch is not None:
            self._watch.close()
        self._server.close()

    def _change(self, bounds: Bounds) -> None:
        self._server.call(lambda account: account.change(bounds))

    def _keep_report(self) -> None:
        assert self._quota.report is not None
        path = Path(self._quota.report)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        while not self._ended.wait(self._quota.seconds):
            try:
                beside.write_text(json.dumps({"clientId": self._quota.client_id, **self.figures()}), encoding="utf-8")
                # In one step, so that a reader never sees half of it.
                beside.replace(path)
            except OSError as problem:
                log.warning("the figures of the quota cannot be written, so they no longer are: %s", problem)
                return
