"""The pause before the same broker is tried again (`reconnect.backoff.ms`, KIP-144).

Each consecutive failure doubles the pause, up to `reconnect.backoff.max.ms`. A jitter keeps the executors of a job from
returning to a broker at the same time. During the pause the client tries other brokers.
"""

from dataclasses import dataclass

from kafka_source.client_config.servers import Endpoint
from kafka_source.runtime.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    until: float


class Reconnects:
    """The failures of a client to connect to its brokers; the caller passes the time."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures: dict[Endpoint, _Failures] = {}

    def pause(self, endpoint: Endpoint, now: float) -> float:
        """Return the seconds until the next attempt."""
        failures = self._failures.get(endpoint)
        return 0.0 if failures is None else max(0.0, failures.until - now)

    def failed(self, endpoint: Endpoint, now: float) -> None:
        """Count a failure."""
        before = self._failures.get(endpoint)
        count = 0 if before is None else before.count
        self._failures[endpoint] = _Failures(count + 1, now + self._policy.pause(count))

    def connected(self, endpoint: Endpoint) -> None:
        """Drop the failures, so that the next failure begins with the shortest pause."""
        self._failures.pop(endpoint, None)
