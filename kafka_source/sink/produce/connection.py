"""A connection to one broker for Produce requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.messages.records import ProduceRequest
from kafka_source.sink.produce import produce_protocol
from kafka_source.sink.produce.accumulator import RecordBatch


class ProduceConnection(RequestConnection):
    """Sends Produce requests, one at a time.

    Args:
        raw: An authenticated connection, which this object owns from here on.
        acks: 1 or -1 (all).
        timeout: Seconds without a byte of a response after which the connection counts as lost.

    Attributes:
        batches: The record batches of the last request.

    Raises:
        InvalidConfigurationError: The broker does not speak this version of Produce.
    """

    def __init__(self, raw: BlockingConnection, *, acks: int, timeout: float) -> None:
        raw.versions.version_for(ProduceRequest, produce_protocol.VERSION)
        super().__init__(raw, what="Writing to", timeout=timeout)
        self._acks, self._timeout_ms = acks, int(timeout * 1000)
        self._buffer = bytearray(4096)
        self.batches: Sequence[RecordBatch] = ()

    def send(self, batches: Sequence[RecordBatch], transactional_id: str | None) -> None:
        """Send record batches, one for each partition; `receive` returns the response.

        Raises:
            ConnectionLost: The connection has ended.
        """
        self.batches = batches
        content = [(batch.tp, batch.data) for batch in batches]
        self.send_request(
            partial(
                produce_protocol.encode,
                batches=content,
                transactional_id=transactional_id,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
            )
        )

    def receive(self) -> produce_protocol.ProduceResponse:
        """Return the response to the last `send`.

        Raises:
            ConnectionLost: The connection has ended, or no byte came within the timeout.
        """
        self._buffer, size = self.receive_response(self._buffer)
        try:
            response = produce_protocol.parse(self._buffer, size)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        self.throttle(response.throttle_ms)
        return response
