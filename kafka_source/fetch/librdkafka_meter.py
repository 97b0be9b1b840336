"""Estimates the bytes that librdkafka has received, by statistics once a second and by message counts in between.

The bytes on the wire differ from message sizes, because batches are compressed, have headers, and are read ahead.
"""

import json
from typing import Any

# A record's bytes in a batch without its key, value and headers: lengths, offset, timestamp.
_RECORD_BYTES = 10
# The largest change of the ratio in a second, because some received messages are not yet consumed.
_MAX_CHANGE = 2.0


class WireMeter:
    """The callbacks of one consumer, and their last values."""

    def __init__(self) -> None:
        # The bytes on the wire divided by the bytes of the messages.
        self._ratio = 1.0
        self._taken = self._received_before = 0.0
        self._counted = self._uncounted = 0.0
        self._throttle = 0.0

    def on_the_wire(self, message_bytes: float, records: int) -> float:
        """Return the estimated bytes of records on the wire, given the bytes of their keys and values."""
        return (message_bytes + records * _RECORD_BYTES) * self._ratio

    def count(self, size: float) -> float:
        """Return the bytes to count for these messages: their size on the wire, corrected by the last statistics."""
        self._taken += size / self._ratio
        news = max(0.0, size + self._uncounted)
        self._uncounted += size - news
        self._counted += news
        return news

    def on_stats(self, text: str) -> None:
        """librdkafka's `stats_cb`."""
        brokers: list[dict[str, Any]] = list(json.loads(text).get("brokers", {}).values())
        received = float(sum(broker.get("rxbytes", 0) for broker in brokers))
        # The throttling since the last statistics, in milliseconds.
        self._throttle += sum(broker.get("throttle", {}).get("sum", 0) for broker in brokers) / 1000
        if self._taken:
            ratio = (received - self._received_before) / self._taken
            ratio = max(self._ratio / _MAX_CHANGE, min(ratio, self._ratio * _MAX_CHANGE))
            self._ratio = (self._ratio + ratio) / 2
            self._taken, self._received_before = 0.0, received
        self._uncounted = received - self._counted

    def on_throttle(self, event: Any) -> None:
        """librdkafka's `throttle_cb`, if there are no statistics; the event has the throttle time in seconds."""
        self._throttle += event.throttle_time

    def take_throttle(self) -> float:
        """Return the seconds of throttling since the last call."""
        seconds, self._throttle = self._throttle, 0.0
        return seconds
