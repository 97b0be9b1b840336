"""One broker's connection for fetching: a request is on its way while the response before it is decoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from kafka_source.fetch import fetch_protocol
from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.messages import FetchRequest

PATIENCE_MS = 5_000
"""After so long in vain pauses grow. In a shorter time other slots may have had the luck, with a quota of bytes."""

MOST_BATCH_BYTES = 1 << 30
"""The largest record batch that is read."""

_LONGEST_PAUSE_MS = 30_000
# What a response has around its record batches.
_MOST_ENVELOPE_BYTES = 1 << 20


class FetchConnection(RequestConnection):
    """Sends fetch requests, one at a time, and reads each response into a buffer of the caller's.

    Args:
        raw: Authenticated; this object's alone from here on.
        rack: `client.rack`, for KIP-392; "": none.
        read_committed: The isolation level of all requests.
        timeout: Seconds without a byte of an answer after which the connection counts as lost.

    Raises:
        InvalidConfigurationError: The broker does not speak this version of Fetch.
    """

    def __init__(self, raw: BlockingConnection, rack: str, *, read_committed: bool, timeout: float) -> None:
        raw.versions.version_for(FetchRequest, fetch_protocol.VERSION)
        super().__init__(raw, what="Fetching from", timeout=timeout, most_bytes=MOST_BATCH_BYTES + _MOST_ENVELOPE_BYTES)
        self._rack = rack
        self._read_committed = read_committed
        self._in_vain_ms = 0

    def send(self, wanted: Iterable[fetch_protocol.Wanted], max_bytes: int, *, any_replica: bool) -> None:
        """Ask for records; the response comes by `receive`.

        Args:
            wanted: Partitions, the first of which get their bytes first.
            max_bytes: Of the whole response, unless the first batch is larger.
            any_replica: Whether the leader may name another replica (KIP-392).

        Raises:
            ConnectionLost: The connection has ended.
        """
        self.post(
            partial(
                fetch_protocol.encode,
                wanted=wanted,
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                rack=self._rack if any_replica else "",
            )
        )

    def receive(self, buffer: bytearray) -> tuple[bytearray, fetch_protocol.Response]:
        """The response to the last `send`, and the buffer that holds its records: `buffer`, or a larger one.

        Its `throttle_ms` is how long the broker is left alone, at least what it says.

        Raises:
            ConnectionLost: The connection has ended, or nothing came for too long.
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
        """How long to leave the broker alone, in ms.

        An answer that is throttled brings no records, and a quota of request time (KIP-124) counts it all the same: a
        small one is used up by nothing but such answers if one asks again as soon as the broker allows it.
        """
        told = response.throttle_ms
        if not told or response.partitions:
            self._in_vain_ms = 0
            return told
        pause = max(told, min(self._in_vain_ms - PATIENCE_MS, _LONGEST_PAUSE_MS))
        self._in_vain_ms += pause
        return pause
