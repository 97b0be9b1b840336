"""How much librdkafka has received: it says so in its statistics, a little late; till then messages are counted."""

from __future__ import annotations

import json
from typing import Any

# Bytes on the wire for one of a message, until the statistics have told, and at most.
_FIRST_RATIO = 1.05
_MOST_RATIO = 1.5


class WireMeter:
    """The callbacks of one consumer, and what they have told."""

    def __init__(self) -> None:
        self._received = 0.0
        self._messages = self._messages_then = 0.0
        self._ratio = _FIRST_RATIO
        self._accounted = 0.0
        self._throttle = 0.0
        self._response = 0.0

    @property
    def response_bytes(self) -> float:
        """Of a response on average; 0: nobody knows."""
        return self._response

    @property
    def ratio(self) -> float:
        """Bytes on the wire for one of a message."""
        return self._ratio

    def on_stats(self, text: str) -> None:
        """librdkafka's `stats_cb`."""
        brokers: dict[str, dict[str, Any]] = json.loads(text).get("brokers", {})
        self._received = float(sum(broker.get("rxbytes", 0) for broker in brokers.values()))
        self._response = self._received / max(1, sum(broker.get("rx", 0) for broker in brokers.values()))
        self._messages_then = self._messages
        if self._messages and self._received:
            self._ratio = min(_MOST_RATIO, self._received / self._messages)

    def on_throttle(self, event: Any) -> None:
        """librdkafka's `throttle_cb`; its time is in seconds."""
        self._throttle += event.throttle_time

    def count(self, message_bytes: float) -> float:
        """Bytes on the wire that are not accounted for yet, now that so much more has been asked for."""
        self._messages += message_bytes
        now = self._received + (self._messages - self._messages_then) * self._ratio
        # Statistics are older than the last fetch.
        news = max(message_bytes * min(1.0, self._ratio), now - self._accounted)
        self._accounted += news
        return news

    def take_throttle(self) -> float:
        """Seconds of throttling since the last call."""
        seconds, self._throttle = self._throttle, 0.0
        return seconds
