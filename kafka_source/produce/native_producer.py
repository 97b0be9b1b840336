"""A worker's state for the native engine's next delivery: connections, metadata, an idempotent producer id."""

import math
import time
from collections.abc import Iterable

from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, error_for_code
from kafka_source.kafka_client import Deadline, IdleConnections, KafkaClient, Snapshot, cached_client
from kafka_source.kafka_client.messages.transaction import InitProducerIdRequest
from kafka_source.produce.accumulator import NO_IDENTITY, Accumulator, ProducerIdentity
from kafka_source.produce.protocol import ProduceConnection
from kafka_source.produce.settings import ProducerSettings
from kafka_source.transactions.open_transaction import INIT_VERSION

CONTROL_SECONDS = 60.0
"""Limit for requests that open a producer or a transaction, in seconds."""

_NO_TIMEOUT_MS = 2**31 - 1


class NativeProducer:
    """Keeps connections, metadata and an idempotent identity for the worker's next task.

    Attributes:
        settings: Settings of the producer.
        cluster: Brokers and leaders, as of the last metadata response.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = ProducerSettings.of(settings)
        self.cluster = Snapshot(None, {})
        self._client_settings = settings
        self._seen: dict[str, float] = {}
        self._idle: IdleConnections[int, ProduceConnection] = IdleConnections()
        self._accumulator: Accumulator | None = None

    @property
    def client(self) -> KafkaClient:
        """The client for metadata and transactions."""
        return cached_client(self._client_settings)

    def is_stale(self, topic: str) -> bool:
        """Return whether metadata of a topic are missing or may lack new partitions (after `metadata.max.age.ms`)."""
        seen = self._seen.get(topic)
        return seen is None or time.monotonic() - seen > self.settings.metadata_age

    def refresh(self, topics: Iterable[str], seconds: float) -> None:
        """Fetch the metadata of these topics.

        Raises:
            RetriableError: No broker answers in time.
            AuthenticationError: The brokers refuse the credentials.
        """
        wanted, client = set(topics), self.client
        seen = client.run(client.metadata(wanted, Deadline(seconds), create=True))
        self.cluster = self.cluster.renewed(seen, wanted)
        self._seen |= dict.fromkeys(seen.topics, time.monotonic())

    def connection(self, node: int, seconds: float = math.inf) -> ProduceConnection:
        """Lend a broker's idle connection until `keep`, or open one within `seconds`.

        Raises:
            ConnectionLost: The broker cannot be reached, or is not in the metadata.
        """
        kept = self._idle.take(node)
        if kept is not None:
            return kept
        broker = self.cluster.broker(node)
        raw = self.client.open_socket(broker.endpoint, self._client_settings.client_id(), seconds)
        return ProduceConnection(raw, acks=self.settings.acks, timeout=self.settings.request_timeout)

    def keep(self, node: int, connection: ProduceConnection) -> None:
        """Keep a connection for the next task; close it if a response is still expected."""
        self._idle.keep(node, connection)

    def close(self) -> None:
        """Close the idle connections; a running task closes its own connections when it ends."""
        self._idle.close()

    def take_accumulator(self) -> Accumulator:
        """Lend an accumulator until `keep_accumulator`.

        Raises:
            KafkaGroupError: The brokers return no producer id.
        """
        accumulator, self._accumulator = self._accumulator, None
        if accumulator is None:
            identity = self._new_identity() if self.settings.idempotent else NO_IDENTITY
            accumulator = Accumulator(self.settings, identity)
        return accumulator

    def keep_accumulator(self, accumulator: Accumulator) -> None:
        """Keep an accumulator for the next task; all of its records must be acknowledged."""
        self._accumulator = accumulator

    def _new_identity(self) -> ProducerIdentity:
        client, deadline = self.client, Deadline(min(CONTROL_SECONDS, self.settings.delivery_timeout))

        async def ask() -> ProducerIdentity:
            connection = await client.any_connection(deadline)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS)
            answer = await connection.send(request, deadline.left, INIT_VERSION)
            if answer.error_code:
                raise error_for_code(answer.error_code, "Asking for a producer id failed")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        try:
            return client.run(client.retrying(ask, deadline))
        except InvalidConfigurationError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            remedy = "Set kafka.enable.idempotence=false: a retry may then write a record twice."
            raise InvalidConfigurationError(f"{error} {remedy}", code=error.code) from None
