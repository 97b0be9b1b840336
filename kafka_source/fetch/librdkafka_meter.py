"""How much librdkafka has received: it says so in its statistics, a little late; till then messages are counted."""

from __future__ import annotations

import json
from typing import Any

# Bytes on the wire for one of a record, until the statistics have told, and at most.
_FIRST_RATIO, _MOST_RATIO = 1.0, 1.5
# What a record has beside its value: lengths, offset, timestamp, headers, and its part of the batch's own.
_RECORD_BYTES = 10
# What the ratio is of: with each statistics what was before counts so much less.
_FADE = 0.95
# Statistics tell of so many responses (or of what was counted at once) more or less: some are on their way.
_TOLERATED_RESPONSES = 2.0


class WireMeter:
    """The callbacks of one consumer, and what they have told.

    What was counted wrongly is made good for evenly until the next statistics: all at once, a pace would stumble.
    """

    def __init__(self) -> None:
        self._received = 0.0
        self._records = self._records_then = 0.0
        self._faded_received = self._faded_records = 0.0
        self._ratio = _FIRST_RATIO
        self._accounted = 0.0
        # Bytes that were not counted, or too many (below 0), and how many of them are for a byte of a record.
        self._owed = self._owed_ratio = 0.0
        self._largest = 0.0
        self._throttle = 0.0
        self._response = 0.0

    @property
    def response_bytes(self) -> float:
        """Of a response on average; 0: nobody knows."""
        return self._response

    def on_the_wire(self, value_bytes: float, records: float) -> float:
        """How many bytes records have there, as far as is known."""
        return (value_bytes + records * _RECORD_BYTES) * self._ratio

    def on_stats(self, text: str) -> None:
        """librdkafka's `stats_cb`."""
        brokers: dict[str, dict[str, Any]] = json.loads(text).get("brokers", {})
        received = float(sum(broker.get("rxbytes", 0) for broker in brokers.values()))
        # Of the time since the last statistics, in milliseconds.
        self._throttle += sum(broker.get("throttle", {}).get("sum", 0) for broker in brokers.values()) / 1000
        self._response = received / max(1, sum(broker.get("rx", 0) for broker in brokers.values()))
        tolerated = _TOLERATED_RESPONSES * max(self._response, self._largest)
        if (records := self._records - self._records_then) > 0:
            self._faded_received = _FADE * self._faded_received + received - self._received
            self._faded_records = _FADE * self._faded_records + records
            # The ratio that was stays as long as it may be true.
            nearest = _between(
                (self._faded_received - tolerated) / self._faded_records,
                self._ratio,
                (self._faded_received + tolerated) / self._faded_records,
            )
            self._ratio = min(_MOST_RATIO, nearest)
            self._received, self._records_then, self._largest = received, self._records, 0.0
        owed = received - self._accounted
        self._owed = owed - _between(-tolerated, owed, tolerated)
        self._owed_ratio = max(-self._ratio / 2, self._owed / max(1.0, records))

    def on_throttle(self, event: Any) -> None:
        """librdkafka's `throttle_cb`, where there are no statistics; its time is in seconds."""
        self._throttle += event.throttle_time

    def count(self, value_bytes: float, records: float) -> float:
        """Bytes on the wire that are not accounted for yet, now that so much more has been asked for."""
        size = value_bytes + records * _RECORD_BYTES
        self._records += size
        self._largest = max(self._largest, size)
        paid = _between(min(0.0, self._owed), size * self._owed_ratio, max(0.0, self._owed))
        self._owed -= paid
        news = self.on_the_wire(value_bytes, records) + paid
        self._accounted += news
        return news

    def take_throttle(self) -> float:
        """Seconds of throttling since the last call."""
        seconds, self._throttle = self._throttle, 0.0
        return seconds


def _between(least: float, value: float, most: float) -> float:
    return max(least, min(value, most))
