"""A worker's state for the native engine's next task: connections, metadata, a buffer, the fetch size."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.epoch_ends import AskedEpoch, epoch_ends
from kafka_source.cluster.list_offsets import EARLIEST, LATEST, list_offsets
from kafka_source.fetch import librdkafka
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.protocol import MAX_WAIT_MS, MIN_BYTES, FetchConnection
from kafka_source.kafka_client import Deadline, IdleConnections, KafkaClient, Snapshot, cached_client
from kafka_source.model.identity import MOVED_FROM, check_same_cluster
from kafka_source.model.stream_offset import Range

NEAR_BYTES = 8 << 20
"""The initial fetch size. If the broker is near, 16 MiB would gain little and take twice the memory."""

FAR_BYTES = 32 << 20
"""The largest fetch size, which bounds the memory of a worker."""


@dataclass(slots=True)
class FetchSize:
    """The largest number of bytes to request from a broker.

    The next request is sent when a response has arrived, so the task decodes this response during the round trip of the
    next request. If the round trip takes longer than decoding, larger responses are requested.

    Args:
        most: The largest size; `fetch.max.bytes` can lower it.

    Attributes:
        bytes: The size of the next fetch.
    """

    most: int = FAR_BYTES
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = min(NEAR_BYTES, self.most)

    def received(self, size: int, *, waited: float, taken: float, throttled: bool) -> None:
        """Adapt the size to a response.

        Args:
            size: The response's size in bytes.
            waited: Seconds of the round trip in which the task only waited.
            taken: Seconds from the response's first byte until its records were passed on.
            throttled: Whether a quota throttles this client, so that larger responses only lead to longer pauses.
        """
        if throttled:
            self.bytes = min(NEAR_BYTES, self.bytes)
        elif waited > taken and size > self.bytes // 2:
            self.bytes = min(self.most, self.bytes * 2)


# Some bytes more than `FAR_BYTES`, because a response has more than its records.
MAX_KEPT_BYTES = FAR_BYTES + (4 << 20)
_CONTROL_SECONDS = 30.0


class NativeConnections:
    """Connections to the brokers, metadata, record sizes and a buffer, which a worker process keeps for its next task.

    Attributes:
        max_bytes: The maximum size of a response; `fetch.max.bytes` can lower it.
        max_partition_bytes: The maximum size of one partition in a response; `max.partition.fetch.bytes` can lower it.
        record_bytes: The last known average size of a record in responses, in bytes by topic.
        batch_bytes: The last known average size of a record batch, in bytes by topic.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: IdleConnections[tuple[int, bool], FetchConnection] = IdleConnections()
        self._buffer: bytearray | None = None
        self.max_bytes = _at_most(settings, "fetch.max.bytes")
        self.max_partition_bytes = _at_most(settings, "max.partition.fetch.bytes")
        self._min_bytes = _or_default(settings.integer("fetch.min.bytes"), MIN_BYTES)
        self._max_wait_ms = _or_default(settings.integer("fetch.max.wait.ms"), MAX_WAIT_MS)
        self.record_bytes: dict[str, float] = {}
        self.batch_bytes: dict[str, float] = {}
        self._sizes: dict[int, FetchSize] = {}

    @property
    def cluster(self) -> Snapshot:
        """The last metadata of this process: brokers and partition leaders; empty after a rebootstrap."""
        return self._client.known

    @property
    def was_reached(self) -> bool:
        """Whether the cluster has ever answered this process."""
        return self._client.cluster_id is not None

    def check_cluster(self, expected: str | None) -> None:
        """Raise InvalidConfigurationError if the last metadata came from a different cluster."""
        check_same_cluster(
            expected,
            self.cluster.cluster_id,
            servers=self._settings.get("bootstrap.servers", ""),
            moved_from=self._settings.get(MOVED_FROM),
        )

    def read_old_format(self, rest: Range, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rest of a range, by librdkafka, from the first message whose format is older than Kafka 0.11."""
        return librdkafka.engine(self._settings).read(replace(request, ranges=(rest,)))

    def refresh(self, topics: set[str], *, another: bool, seconds: float) -> None:
        """Fetch the metadata of these topics again; with `another`, not from the broker that sent the last metadata."""
        client = self._client
        client.run(client.metadata(topics, Deadline(seconds), another=another))

    def connection(self, node: int, *, read_committed: bool, seconds: float) -> FetchConnection:
        """Lend a broker's idle connection until `keep`, or open one within `seconds`.

        Raises:
            ConnectionLost: The broker cannot be reached, or is not in the metadata.
        """
        kept = self._idle.take((node, read_committed))
        if kept is not None:
            return kept
        broker = self.cluster.broker(node)
        client = self._client
        return FetchConnection(
            client.open_socket(broker.endpoint, self._settings.client_id(), seconds),
            self._settings.get("client.rack") or "",
            read_committed=read_committed,
            timeout=client.settings.request_timeout,
            min_bytes=self._min_bytes,
            max_wait_ms=self._max_wait_ms,
        )

    def keep(self, node: int, connection: FetchConnection, *, read_committed: bool) -> None:
        """Keep a connection for the next task; close it if a response is outstanding."""
        self._idle.keep((node, read_committed), connection)

    def close(self) -> None:
        """Close the idle connections; a task that is still reading closes its own connections at its end."""
        self._idle.close()

    def fetch_size(self, node: int) -> FetchSize:
        """Return the size of fetches from a broker; the tasks of this process share the size."""
        return self._sizes.setdefault(node, FetchSize(self.max_bytes))

    def take_buffer(self) -> bytearray:
        """Return a buffer for responses, for exclusive use until `keep_buffer`."""
        buffer, self._buffer = self._buffer, None
        return bytearray() if buffer is None else buffer

    def keep_buffer(self, buffer: bytearray) -> None:
        """Keep a buffer for the next task, unless an exceptionally large response has enlarged it."""
        if len(buffer) <= MAX_KEPT_BYTES:
            self._buffer = buffer

    def bounds(self, tp: TopicPartition, node: int) -> tuple[int, int]:
        """Return the earliest and the latest offset of a partition, from its leader `node`.

        Raises:
            KafkaGroupError: The broker cannot be reached, or responds with an error.
        """
        return self._offset(tp, node, EARLIEST), self._offset(tp, node, LATEST)

    def end_of_epoch(self, tp: TopicPartition, node: int, epoch: int, *, leader_epoch: int) -> int:
        """Return the end offset of a leader epoch in the current leader's log (KIP-320); -1: unknown.

        Args:
            tp: The partition.
            node: The partition's current leader.
            epoch: The leader epoch whose end offset is requested.
            leader_epoch: The current leader epoch.

        Raises:
            KafkaGroupError: The broker cannot be reached, or responds with an error.
        """
        client, asked = self._client, {tp: AskedEpoch(epoch, leader_epoch)}
        return client.run(epoch_ends(client, node, asked, Deadline(_CONTROL_SECONDS)))[tp]

    def _offset(self, tp: TopicPartition, node: int, when: int) -> int:
        client = self._client
        return client.run(list_offsets(client, node, {tp: when}, Deadline(_CONTROL_SECONDS)))[tp].offset

    @property
    def _client(self) -> KafkaClient:
        """The client for metadata and offset requests."""
        return cached_client(self._settings)


def _at_most(settings: Settings, name: str) -> int:
    """Return a bound in bytes; 0 becomes 1, because brokers send one record batch for both."""
    given = settings.integer(name)
    return FAR_BYTES if given is None else max(1, min(FAR_BYTES, given))


def _or_default(given: int | None, default: int) -> int:
    return default if given is None else given
