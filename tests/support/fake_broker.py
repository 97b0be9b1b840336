"""A broker that says what a test wants: real bytes on a real socket, a log of a few batches, and troubles on demand."""

import contextlib
import io
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_source.kafka_client import Endpoint
from kafka_source.kafka_client.handshake import Identity
from kafka_source.kafka_client.messages import cluster
from kafka_source.kafka_client.messages.codec import Reader

NODE, TOPIC = 1, "orders"
OFFSET_OUT_OF_RANGE, MESSAGE_TOO_LARGE, OUT_OF_ORDER, DUPLICATE_SEQUENCE = 1, 10, 45, 46
UNKNOWN_TOPIC_ID = 100
REBOOTSTRAP_REQUIRED = 129
WITH_IDENTITY = 5
"""The version of ApiVersions that names the broker that is meant (KIP-1242)."""
VERSIONS = {
    FetchRequest: 13,
    ProduceRequest: 8,
    InitProducerIdRequest: 4,
    ListOffsetsRequest: 6,
    MetadataRequest: 13,
    ApiVersionsRequest: 3,
    OffsetForLeaderEpochRequest: 4,
    FindCoordinatorRequest: 2,
    SaslHandshakeRequest: 1,
    SaslAuthenticateRequest: 2,
}


def batch(
    base: int,
    records: int,
    *,
    leader_epoch: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"value",
    headers: Sequence[tuple[str, bytes | None]] = (),
    codec: int = 0,
) -> bytes:
    """A record batch as a broker stores it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for number in range(records):
        builder.append(number, 0, key, value, headers)
    built = bytearray(builder.build())
    # The checksum covers neither of the two.
    struct.pack_into(">q", built, 0, base)
    struct.pack_into(">i", built, 12, leader_epoch)
    return bytes(built)


@dataclass(frozen=True, slots=True)
class Written:
    """A record batch that was produced."""

    producer_id: int
    sequence: int
    count: int
    data: bytes


def identity_of(payload: bytes) -> Identity:
    """Return whom a request for API versions means."""
    reader = Reader(payload)
    reader.numbers(struct.Struct(">hhi"))
    reader.string()
    reader.flexible = True
    reader.skip_tags()
    request = cluster.ApiVersionsRequest.decode(reader, WITH_IDENTITY)
    return Identity(request.cluster_id or "", request.node_id)


class Silence(Exception):
    """A broker that ends the connection in place of an answer."""


@dataclass(slots=True)
class Partition:
    """A partition: its batches by their first offset, its leader, what a fetch of it is answered with.

    `held_back`: how many offsets before its end are those of an open transaction.
    """

    batches: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    held_back: int = 0
    leader: int = NODE
    leader_epoch: int = 0
    error: int = 0
    most_bytes: int = 1 << 20
    written: list[Written] = field(default_factory=list)
    next_sequence: dict[int, int] = field(default_factory=dict)

    def write(self, data: bytes) -> int:
        """Kafka's error code for a batch of an idempotent producer: of its size, a gap, a batch known, or none."""
        if len(data) > self.most_bytes:
            return MESSAGE_TOO_LARGE
        producer_id, _, sequence, count = struct.unpack_from(">qhii", data, 43)
        # A log that knows nothing of a producer takes any number (`ProducerAppendInfo.checkSequence`).
        expected = self.next_sequence.get(producer_id, sequence)
        if producer_id >= 0 and sequence != expected:
            return DUPLICATE_SEQUENCE if sequence < expected else OUT_OF_ORDER
        self.next_sequence[producer_id] = sequence + count
        self.written.append(Written(producer_id, sequence, count, data))
        return 0

    def add(self, count: int, **how: Any) -> None:
        self.batches[self.end] = batch(self.end, count, **how)
        self.end += count

    def at(self, offset: int) -> bytes:
        """The batch with the record `offset`; nothing at the end."""
        return self.batches[max(base for base in self.batches if base <= offset)] if offset < self.end else b""


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[Endpoint]:
    """Listen, and hand each connection to `serve`, one after the other; the connection is closed when it returns."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(ConnectionError):
                serve(connection)

    server = threading.Thread(target=accept, daemon=True)
    server.start()
    try:
        yield Endpoint("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join(5)


class FakeBroker:
    """One broker with one topic.

    Attributes:
        host: The name or address by which clients know it; it listens on 127.0.0.1.
        node: Its node id.
        peers: The other brokers that its metadata name.
        partitions: By number; to be changed by tests.
        topic_id: The topic's.
        metadata_errors: Answered to requests for metadata, one after another, before these are given.
        offset_errors: The same for requests for offsets.
        fetch_errors: The same for fetches, as errors of the whole answer.
        topic_error: Of the topic, in metadata.
        ends_of_epochs: What OffsetForLeaderEpoch answers, by epoch.
        session_ms: The session's lifetime, with SASL.
        on_fetch: Called with each fetch request, before it is answered.
        on_produce: Called with each produce request before its batches are written; gives an error in place of that.
        on_written: Called after that; may raise Silence.
        produces: When each produce request came, on which connection, of which partitions.
        in_vain: How many fetches are answered without anything yet, as a throttling broker does.
        is_away: Whether it ends each connection in place of an answer.
        throttle_ms: Of each answer to a fetch or produce request, or for a coordinator.
        fetches: When each fetch came, on which connection, what was asked for: offsets by partition.
        fetched_topics: What each fetch named its topics by: names or ids.
        produced_topics: The same for produce requests.
        asked: How often each API was asked.
        meant: The broker that each connection meant, if clients may say it: `answer(ApiVersionsRequest, 5)`.
        groups: Whose coordinator was asked for.
        coordinator_error: The answer to that: by default it is not available; 0: this broker.
        on_find_coordinator: Called before that answer.
    """

    def __init__(self, host: str = "127.0.0.1", node: int = NODE) -> None:
        self.host = host
        self.node = node
        self.peers: list[FakeBroker] = []
        self.partitions: dict[int, Partition] = {}
        self.topic_id = uuid.uuid4()
        self.metadata_errors: list[int] = []
        self.offset_errors: list[int] = []
        self.fetch_errors: list[int] = []
        self.topic_error = 0
        self.ends_of_epochs: dict[int, int] = {}
        self.session_ms = 0
        self.is_away = False
        self.throttle_ms = 0
        self.in_vain = 0
        self.on_fetch: Callable[[FetchRequest], None] = lambda _: None
        self.on_produce: Callable[[ProduceRequest], int] = lambda _: 0
        self.on_written: Callable[[ProduceRequest], None] = lambda _: None
        self.produces: list[tuple[float, int, tuple[int, ...]]] = []
        self.producer_ids = 0
        self.fetches: list[tuple[float, int, dict[int, int]]] = []
        self.fetched_topics: list[list[str | uuid.UUID]] = []
        self.produced_topics: list[list[str | uuid.UUID]] = []
        self.asked: list[str] = []
        self.meant: list[Identity] = []
        self.groups: set[str] = set()
        self.coordinator_error = 15
        self.on_find_coordinator: Callable[[], object] = lambda: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._versions: dict[Any, int] = dict(VERSIONS)
        self._handlers: dict[type, Callable[..., Any]] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            FetchRequest: self._fetch,
            ProduceRequest: self._produce,
            InitProducerIdRequest: self._init_producer_id,
            ListOffsetsRequest: self._list_offsets,
            OffsetForLeaderEpochRequest: self._end_of_epoch,
            FindCoordinatorRequest: self._find_coordinator,
            SaslHandshakeRequest: lambda _, __: SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
            SaslAuthenticateRequest: lambda _, __: SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=self.session_ms
            ),
        }
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        """How many have been made."""
        return len(self._open)

    @property
    def connections_open(self) -> int:
        """How many of them have not ended."""
        return sum(connection.fileno() >= 0 for connection in self._open)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def answer(self, request: type, newest: int, handler: Callable[[Any, int], Any] | None = None) -> None:
        """Answer a class of requests up to this version, by what `handler` returns if one is given."""
        if handler is not None:
            self._handlers[request] = handler
        self._versions[request] = newest

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection, len(self._open)), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, Silence), connection, connection.makefile("rb") as stream:
            while header := stream.read(4):
                payload = stream.read(struct.unpack(">i", header)[0])
                if self.is_away:
                    raise Silence
                key, version, correlation_id = struct.unpack_from(">hhi", payload)
                if (key, version) == (ApiVersionsRequest.API_KEY, WITH_IDENTITY):
                    self.meant.append(identity_of(payload))
                    # kafka-python does not know this version, whose response has the layout of the one before.
                    response = self._api_versions(self.meant[-1], number)
                    response.API_VERSION = version - 1
                    response.with_header(correlation_id=correlation_id)
                    connection.sendall(response.encode(header=True, framed=True))
                    continue
                cls, data = next(cls for cls in self._versions if key == cls.API_KEY), io.BytesIO(payload)
                cls.parse_header(data, version)
                self.asked.append(cls.__name__)
                response = self._handlers[cls](cls.decode(data, version=version), number)
                response.API_VERSION = version
                response.with_header(correlation_id=correlation_id)
                connection.sendall(response.encode(header=True, framed=True))

    def _api_versions(self, request: ApiVersionsRequest | Identity, _: int) -> ApiVersionsResponse:
        is_another = isinstance(request, Identity) and request != Identity("fake", self.node)
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=cls.API_KEY, min_version=0, max_version=newest)
            for cls, newest in self._versions.items()
        ]
        error = REBOOTSTRAP_REQUIRED if is_another else 0
        return ApiVersionsResponse(error_code=error, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, _: MetadataRequest, __: int) -> MetadataResponse:
        topic_type = MetadataResponse.MetadataResponseTopic
        return MetadataResponse(
            throttle_time_ms=0,
            cluster_id="fake",
            controller_id=NODE,
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=one.node, host=one.host, port=one.port, rack=None)
                for one in (self, *self.peers)
            ],
            error_code=self.metadata_errors.pop(0) if self.metadata_errors else 0,
            topics=[
                topic_type(
                    error_code=self.topic_error,
                    name=TOPIC,
                    topic_id=self.topic_id,
                    is_internal=False,
                    partitions=[
                        topic_type.MetadataResponsePartition(
                            error_code=0 if partition.leader >= 0 else 5,
                            partition_index=index,
                            leader_id=partition.leader,
                            leader_epoch=partition.leader_epoch,
                            replica_nodes=[NODE],
                            isr_nodes=[NODE],
                            offline_replicas=[],
                        )
                        for index, partition in sorted(self.partitions.items())
                    ],
                )
            ],
        )

    def _fetch(self, request: FetchRequest, connection: int) -> FetchResponse:
        asked = {p.partition: p.fetch_offset for topic in request.topics for p in topic.partitions}
        by_id = request.API_VERSION >= 13
        self.fetches.append((time.monotonic(), connection, asked))
        self.fetched_topics.append([topic.topic_id if by_id else topic.topic for topic in request.topics])
        self.on_fetch(request)
        if self.in_vain:
            self.in_vain -= 1
            return FetchResponse(throttle_time_ms=self.throttle_ms, error_code=0, session_id=0, responses=[])
        if self.fetch_errors:
            code = self.fetch_errors.pop(0)
            return FetchResponse(throttle_time_ms=self.throttle_ms, error_code=code, session_id=0, responses=[])
        topic_type = FetchResponse.FetchableTopicResponse
        answers = []
        for index, offset in asked.items():
            partition = self.partitions[index]
            error = partition.error or (OFFSET_OUT_OF_RANGE if offset > partition.end else 0)
            stable = partition.end - partition.held_back * request.isolation_level
            if by_id and self.fetched_topics[-1] != [self.topic_id]:
                error = UNKNOWN_TOPIC_ID
            answers.append(
                topic_type.PartitionData(
                    partition_index=index,
                    error_code=error,
                    high_watermark=partition.end,
                    last_stable_offset=stable,
                    log_start_offset=0,
                    aborted_transactions=None,
                    preferred_read_replica=-1,
                    records=b"" if error or offset >= stable else partition.at(offset),
                )
            )
        return FetchResponse(
            throttle_time_ms=self.throttle_ms,
            error_code=0,
            session_id=0,
            responses=[
                topic_type(topic=TOPIC, topic_id=request.topics[0].topic_id if by_id else None, partitions=answers)
            ],
        )

    def _produce(self, request: ProduceRequest, connection: int) -> ProduceResponse:
        asked = {p.index: bytes(p.records) for topic in request.topic_data for p in topic.partition_data}
        by_id = request.API_VERSION >= 13
        self.produces.append((time.monotonic(), connection, tuple(asked)))
        self.produced_topics.append([topic.topic_id if by_id else topic.name for topic in request.topic_data])
        is_another = by_id and self.produced_topics[-1] != [self.topic_id]
        error = UNKNOWN_TOPIC_ID if is_another else self.on_produce(request)
        topic_type = ProduceResponse.TopicProduceResponse
        answers = []
        for index, data in asked.items():
            partition = self.partitions[index]
            answers.append(
                topic_type.PartitionProduceResponse(
                    index=index,
                    error_code=error or partition.error or partition.write(data),
                    base_offset=0,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                    record_errors=[],
                    error_message=None,
                )
            )
        self.on_written(request)
        return ProduceResponse(
            throttle_time_ms=self.throttle_ms,
            responses=[
                topic_type(
                    name=TOPIC, topic_id=request.topic_data[0].topic_id if by_id else None, partition_responses=answers
                )
            ],
        )

    def _init_producer_id(self, _: InitProducerIdRequest, __: int) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=self.producer_ids, producer_epoch=0)

    def _list_offsets(self, request: ListOffsetsRequest, _: int) -> ListOffsetsResponse:
        """Answer as if each record's timestamp were its offset; no lookup finds a record beyond the latest offset."""
        error = self.offset_errors.pop(0) if self.offset_errors else 0
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
        answers = [
            topic_type.ListOffsetsPartitionResponse(
                partition_index=p.partition_index,
                error_code=error,
                timestamp=-1,
                offset={-2: 0, -1: latest}.get(p.timestamp, p.timestamp if p.timestamp < latest else -1),
                leader_epoch=0,
            )
            for p in request.topics[0].partitions
            for partition in [self.partitions[p.partition_index]]
            for latest in [partition.end - partition.held_back * request.isolation_level]
        ]
        return ListOffsetsResponse(throttle_time_ms=0, topics=[topic_type(name=TOPIC, partitions=answers)])

    def _find_coordinator(self, request: FindCoordinatorRequest, _: int) -> FindCoordinatorResponse:
        self.groups.add(request.key)
        self.on_find_coordinator()
        there = self.coordinator_error == 0
        return FindCoordinatorResponse(
            throttle_time_ms=self.throttle_ms,
            error_code=self.coordinator_error,
            error_message=None,
            node_id=self.node if there else -1,
            host=self.host if there else "",
            port=self.port if there else -1,
        )

    def _end_of_epoch(self, request: OffsetForLeaderEpochRequest, _: int) -> OffsetForLeaderEpochResponse:
        topic_type = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        answers = [
            topic_type.EpochEndOffset(
                error_code=0,
                partition=p.partition,
                leader_epoch=p.leader_epoch,
                end_offset=self.ends_of_epochs[p.leader_epoch],
            )
            for p in request.topics[0].partitions
        ]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[topic_type(topic=TOPIC, partitions=answers)])
