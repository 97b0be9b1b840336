"""The native engine: raw Fetch responses, decoded into Arrow by the Rust kernel while the next one is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import EARLIEST, LATEST, list_offsets
from kafka_source.errors import error_for_code
from kafka_source.fetch import librdkafka
from kafka_source.fetch.connection import FetchConnection
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.native_reader import MOST_FETCH_BYTES, NativeReader
from kafka_source.kafka_client import Deadline, IdleConnections, KafkaClient, Snapshot, cached_client
from kafka_source.kafka_client.messages import OffsetForLeaderEpochRequest
from kafka_source.model.cluster_identity import MOVED_FROM, check_same_cluster
from kafka_source.model.stream_offset import Range
from kafka_source.runtime.process_cache import ProcessCache

MOST_KEPT_BYTES = 16 * 1024 * 1024
_CONTROL_SECONDS = 30.0


def engine(settings: Settings) -> NativeEngine:
    """The engine of this process for these settings."""
    return _engines.of(settings)


class NativeEngine:
    """Keeps connections, metadata, record sizes and a buffer for the worker's next task.

    Args:
        settings: Of the Kafka clients.

    Attributes:
        cluster: Leaders and brokers as last seen.
        most_bytes: Of a response, and of a partition in it; `fetch.max.bytes` and `max.partition.fetch.bytes` lower it.
        record_bytes: Bytes of an offset on the wire, by topic, as last seen.
        batch_bytes: Bytes of a record batch, by topic, as last seen.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: IdleConnections[tuple[int, bool], FetchConnection] = IdleConnections()
        self._buffer: bytearray | None = None
        given = (settings.integer(name) for name in ("fetch.max.bytes", "max.partition.fetch.bytes"))
        self.most_bytes = min([MOST_FETCH_BYTES, *(size for size in given if size)])
        self.cluster = Snapshot(None, {})
        self.record_bytes: dict[str, float] = {}
        self.batch_bytes: dict[str, float] = {}

    def check_cluster(self, expected: str | None) -> None:
        """Raises InvalidConfigurationError if what was asked last is another cluster."""
        check_same_cluster(
            expected,
            self.cluster.cluster_id,
            servers=self._settings.get("bootstrap.servers", ""),
            moved_from=self._settings.get(MOVED_FROM),
        )

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """See `FetchEngine.read`."""
        reading = NativeReader(self, request)
        try:
            yield from reading.batches()
        finally:
            reading.give_back()

    def read_old_format(self, rest: Range, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """What is left of a range from where messages of before Kafka 0.11 begin: librdkafka reads them."""
        return librdkafka.engine(self._settings).read(replace(request, ranges=(rest,)))

    def refresh(self, topics: set[str]) -> None:
        """Ask for the leaders of these topics anew."""
        client = self._client
        seen = client.run(client.metadata(topics, Deadline(_CONTROL_SECONDS)))
        self.cluster = self.cluster.renewed(seen, topics)

    def connection(self, node: int, *, read_committed: bool) -> FetchConnection:
        """A connection to a broker that is nobody else's until `keep`.

        Raises:
            ConnectionLost: It cannot be reached, or is not known.
        """
        kept = self._idle.take((node, read_committed))
        if kept is not None:
            return kept
        broker = self.cluster.broker(node)
        client = self._client
        return FetchConnection(
            client.open_socket(broker.endpoint, self._settings.client_id()),
            self._settings.get("client.rack") or "",
            read_committed=read_committed,
            timeout=client.settings.request_timeout,
        )

    def keep(self, node: int, connection: FetchConnection, *, read_committed: bool) -> None:
        """Take a connection back for the next task; one with an answer under way is closed."""
        self._idle.keep((node, read_committed), connection)

    def close(self) -> None:
        """Close the idle connections; a task that still reads closes its own at its end."""
        self._idle.close()

    def take_buffer(self) -> bytearray:
        """A buffer for responses that is nobody else's until `keep_buffer`."""
        buffer, self._buffer = self._buffer, None
        return bytearray() if buffer is None else buffer

    def keep_buffer(self, buffer: bytearray) -> None:
        """Take a buffer back for the next task, unless a response of rare size made it large."""
        if len(buffer) <= MOST_KEPT_BYTES:
            self._buffer = buffer

    def bounds(self, tp: TopicPartition, node: int) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last, as the broker `node` knows them.

        Raises:
            KafkaGroupError: It does not say.
        """
        return self._offset(tp, node, EARLIEST), self._offset(tp, node, LATEST)

    def end_of_epoch(self, tp: TopicPartition, node: int, epoch: int, *, leader_epoch: int) -> int:
        """Where the records of a leader's epoch end in the log of `node`, which leads in `leader_epoch`; -1: not known.

        Raises:
            KafkaGroupError: It does not say.
        """
        topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic_type.OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic_type(topic=tp.topic, partitions=[asked])])
        client = self._client
        answer = client.run(client.send(node, request, Deadline(_CONTROL_SECONDS)))
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise error_for_code(found.error_code, f"Asking for the epochs of {tp.topic}-{tp.partition} failed")
        end: int = found.end_offset
        return end

    def _offset(self, tp: TopicPartition, node: int, when: int) -> int:
        client = self._client
        return client.run(list_offsets(client, node, {tp: when}, Deadline(_CONTROL_SECONDS)))[tp]

    @property
    def _client(self) -> KafkaClient:
        """For questions."""
        return cached_client(self._settings)


_engines = ProcessCache(NativeEngine, close=NativeEngine.close)
