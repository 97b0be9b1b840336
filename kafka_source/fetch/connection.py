"""A connection for fetching from one broker: the next request is in flight while the last response is decoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from kafka_source.fetch import fetch_protocol
from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.messages import FetchRequest

PATIENCE_MS = 5_000
"""The total time of throttled responses without records after which the pauses grow.

With a byte-rate quota, a shorter period without records is normal: other slots may have used the quota meanwhile.
"""

MOST_BATCH_BYTES = 1 << 30
"""The maximum size of a record batch."""

_LONGEST_PAUSE_MS = 30_000
# Room for the parts of a response besides its record batches.
_MOST_ENVELOPE_BYTES = 1 << 20


class FetchConnection(RequestConnection):
    """Sends fetch requests, one at a time, and reads each response into a buffer of the caller.

    Args:
        raw: An authenticated connection; this object takes ownership of it.
        rack: `client.rack`, to fetch from the closest replica (KIP-392); "": none.
        read_committed: The isolation level of all requests.
        timeout: Seconds without a byte of an outstanding response after which the connection counts as lost.
        min_bytes: How many bytes the broker waits for (`fetch.min.bytes`).
        max_wait_ms: How long it waits for them at most (`fetch.max.wait.ms`); at most half of the timeout is used.

    Raises:
        InvalidConfigurationError: The broker does not support the version of Fetch that is used here.
    """

    def __init__(
        self,
        raw: BlockingConnection,
        rack: str,
        *,
        read_committed: bool,
        timeout: float,
        min_bytes: int = fetch_protocol.MIN_BYTES,
        max_wait_ms: int = fetch_protocol.MAX_WAIT_MS,
    ) -> None:
        raw.versions.version_for(FetchRequest, fetch_protocol.VERSION)
        super().__init__(raw, what="Fetching from", timeout=timeout, most_bytes=MOST_BATCH_BYTES + _MOST_ENVELOPE_BYTES)
        self._rack = rack
        self._read_committed = read_committed
        self._min_bytes = min_bytes
        self._max_wait_ms = min(max_wait_ms, int(timeout * 500))
        # The total pause of throttled responses since the last one with records.
        self._throttled_ms = 0

    def send(self, wanted: Iterable[fetch_protocol.Wanted], max_bytes: int, *, any_replica: bool) -> None:
        """Send a Fetch request; read its response with `receive`.

        Args:
            wanted: The partitions. The broker fills the response in this order.
            max_bytes: The maximum size of the response; the first record batch may exceed it.
            any_replica: Whether the leader may refer to another replica (KIP-392).

        Raises:
            ConnectionLost: The connection was lost.
        """
        self.post(
            partial(
                fetch_protocol.encode,
                wanted=wanted,
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                rack=self._rack if any_replica else "",
                # A broker that waits for more than it may send would always wait to the end.
                min_bytes=min(self._min_bytes, max_bytes),
                max_wait_ms=self._max_wait_ms,
            )
        )

    def receive(self, buffer: bytearray) -> tuple[bytearray, fetch_protocol.Response]:
        """Return the buffer that contains the response to the last `send`, `buffer` or a larger one, and the response.

        The response's `throttle_ms` is the time without requests to this broker: the broker's value or longer.

        Raises:
            ConnectionLost: The connection was lost, or no byte arrived within the timeout.
        """
        buffer, size = self.take(buffer)
        try:
            response = fetch_protocol.parse(buffer, size)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        pause = self._pause(response)
        self.hold(pause)
        return buffer, replace(response, throttle_ms=pause)

    def _pause(self, response: fetch_protocol.Response) -> int:
        """Return the time in ms for which to send no request to the broker.

        A throttled response contains no records, but counts towards a quota of request time (KIP-124). With a small
        quota, a client that sends its next request as soon as the broker allows it would get throttled responses only.
        Therefore the pauses grow while no records arrive.
        """
        throttle_ms = response.throttle_ms
        if not throttle_ms or response.partitions:
            self._throttled_ms = 0
            return throttle_ms
        pause = max(throttle_ms, min(self._throttled_ms - PATIENCE_MS, _LONGEST_PAUSE_MS))
        self._throttled_ms += pause
        return pause
