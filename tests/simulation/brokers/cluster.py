"""Simulated brokers: connections with delays and faults, topics with logs, and the choice of coordinators.

Requests and responses are bytes. Both sides read and write them with our own messages; other tests compare the bytes of
these messages with those of Kafka's clients.
"""

from __future__ import annotations

import asyncio
import math
import struct
import sys
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka_source.error_codes import ErrorCode
from kafka_source.kafka_client import GROUP, TRANSACTION
from kafka_source.kafka_client.messages import cluster as of_cluster
from kafka_source.kafka_client.messages import group as of_groups
from kafka_source.kafka_client.messages.codec import Reader, Writer
from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from tests.simulation.brokers.logs import Log
from tests.simulation.brokers.reading import Fetches, ReadLog, written_at
from tests.simulation.world import BEGIN, Process, Socket, Transport, World
from tests.support.record_messages import FetchRequest, ProduceRequest

_NEWEST: dict[Any, int] = {
    of_cluster.ApiVersionsRequest: 3,
    of_cluster.MetadataRequest: 12,
    of_cluster.FindCoordinatorRequest: 3,
    of_cluster.ListOffsetsRequest: 6,
    of_cluster.OffsetForLeaderEpochRequest: 4,
    of_groups.DescribeGroupsRequest: 5,
    of_groups.JoinGroupRequest: 9,
    of_groups.SyncGroupRequest: 5,
    of_groups.HeartbeatRequest: 4,
    of_groups.LeaveGroupRequest: 5,
    of_groups.OffsetCommitRequest: 10,
    of_groups.OffsetFetchRequest: 10,
    InitProducerIdRequest: 4,
    AddOffsetsToTxnRequest: 3,
    TxnOffsetCommitRequest: 6,
    EndTxnRequest: 5,
    of_groups.ConsumerGroupHeartbeatRequest: 1,
    of_groups.ConsumerGroupDescribeRequest: 1,
    ProduceRequest: 13,
    FetchRequest: 13,
    AddPartitionsToTxnRequest: 3,
    of_cluster.DescribeConfigsRequest: 4,
    DescribeProducersRequest: 0,
    DescribeTransactionsRequest: 0,
    ListTransactionsRequest: 2,
}
# The requests whose newest version has topic ids instead of names.
_HAVE_IDS = (of_groups.OffsetCommitRequest, of_groups.OffsetFetchRequest, TxnOffsetCommitRequest)
_BY_KEY = {cls.API_KEY: cls for cls in _NEWEST}
_NAMES = {cls.API_KEY: cls.name.removesuffix("Request") for cls in _NEWEST}


class Message(Protocol):
    """A response."""

    def encode(self, writer: Writer, version: int) -> None:
        """Encode the response in a version."""


Reply = Callable[[Message], None]
Range = tuple[str, int, int, int, int]
"""A topic's id, a partition, the epoch of its leader, the first offset, and the next offset after the last one.

Equal ranges mean equal records. Offsets alone do not: after an unclean election, or in a topic that was created again,
other records have the same offsets.
"""

# The share of requests that are handled although their connection has ended.
_HANDLED_LATE = 0.5


@dataclass
class Partition:
    """A partition with its leader, the leader's epoch, and its log, which either queries read or sinks write.

    Attributes:
        began: The offsets at which the epochs of the log have begun.
        lost_up_to: The highest end that the log had before it lost records; 0: the log has lost no records.
        lost_from: The lowest offset from which the log has lost records.
        followed: The reactions to the last loss, each with the query's name and the query's action.
    """

    leader: int
    end: int = 0
    lost_up_to: int = 0
    lost_from: int = sys.maxsize
    followed: set[tuple[str, str]] = field(default_factory=set)
    epoch: int = 0
    began: dict[int, int] = field(default_factory=lambda: {0: 0})
    log: Log = field(default_factory=Log)
    read: ReadLog = field(default_factory=ReadLog)

    def elect(self, leader: int) -> None:
        """Make another broker the leader."""
        self.leader = leader
        self.epoch += 1
        self.began[self.epoch] = self.end

    def end_of(self, epoch: int) -> int:
        """Return the end offset of the records of an epoch and of all earlier epochs."""
        return min((start for later, start in self.began.items() if later > epoch), default=self.end)

    def of_epoch(self, epoch: int, start: int, end: int) -> tuple[int, int]:
        """Return the bounds of an epoch's records between two offsets; if there are none, the second is not higher."""
        return max(start, self.began.get(epoch, self.end)), min(end, self.end_of(epoch))


@dataclass
class Topic:
    """A topic with its partitions, and the time of its creation."""

    id: uuid.UUID
    created_at: float
    partitions: list[Partition] = field(default_factory=list)


class Link:
    """A connection of a process to a broker: bytes arrive in order, and requests are answered one after another."""

    def __init__(self, world: World, process: Process, broker: Broker, protocol: asyncio.Protocol) -> None:
        self._world, self.process, self.broker, self._protocol = world, process, broker, protocol
        self.closed = False
        self._inbox: deque[bytes] = deque()
        self._busy = False
        self._last_in = self._last_out = 0.0
        process.links.append(self)
        broker.links.append(self)

    def client_writes(self, data: bytes) -> None:
        if self.closed or not self.process.alive:
            return
        if not self.process.leaves(int.from_bytes(data[4:6], "big")):
            # The bytes reach the kernel's buffer only when the process continues; it may never continue.
            self._world.after(0, self.client_writes, self.process, data)
            return
        self._last_in = max(self._last_in, self._world.now + self.broker.delay())
        self._world.after(self._last_in - self._world.now, self._arrive, None, data)

    def cut(self) -> None:
        """End the connection from outside; bytes on their way are lost in both directions."""
        if not self.closed:
            self.end()
            lost = ConnectionResetError("the simulation cut it")
            self._world.after(0, lambda: self._protocol.connection_lost(lost), self.process)

    def end(self) -> None:
        """End the connection from the side of the process."""
        if not self.closed:
            self.closed = True
            self.process.links.remove(self)
            self.broker.links.remove(self)

    def _arrive(self, data: bytes) -> None:
        if self.closed:
            if self.broker.up and self._world.random.random() < _HANDLED_LATE:
                self.handle_late(data)
            return
        if self.broker.cluster.loses_request():
            self.cut()
            return
        self._inbox.append(data)
        self._next()

    def handle_late(self, data: bytes) -> None:
        """Let the broker handle, perhaps late, the bytes that were in its socket when the connection ended."""
        self._world.after(self._world.random.uniform(0, 3.0), lambda: self.broker.serve(data, self, late=True))

    def _next(self) -> None:
        if self._busy or not self._inbox or self.closed:
            return
        if self.broker.frozen:
            self.broker.waiting.append(self._next)
            return
        self._busy = True
        self.broker.serve(self._inbox.popleft(), self)

    def reply(self, data: bytes) -> None:
        """Send the response to the request that is handled now."""
        if self.broker.frozen:
            self.broker.waiting.append(lambda: self.reply(data))
            return
        if self.closed:
            return
        self._busy = False
        self._last_out = max(self._last_out, self._world.now + self.broker.delay())
        self._world.after(self._last_out - self._world.now, self._deliver, self.process, data)
        if self._inbox:
            # A coordinator completes a rebalance before it handles another request.
            self._world.after(0, self._next)

    def _deliver(self, data: bytes) -> None:
        if not self.closed:
            self._protocol.data_received(data)


class Broker:
    """A broker.

    Attributes:
        up: Whether it runs.
        frozen: Whether it is suspended: it accepts connections, and answers nothing.
        slow: The additional seconds that each message takes.
    """

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.cluster, self.node = cluster, node
        self.host, self.port = f"broker-{node}", 9092
        self.up, self.frozen, self.slow = True, False, 0.0
        self.links: list[Link] = []
        self.waiting: list[Callable[[], None]] = []

    def delay(self) -> float:
        """Return the seconds that a message takes at present."""
        return self.cluster.world.random.uniform(0.0002, 0.003) + self.slow

    def thaw(self) -> None:
        """Continue after a suspension."""
        self.frozen = False
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()

    def serve(self, data: bytes, link: Link, *, late: bool = False) -> None:
        """Answer a request, perhaps later.

        Args:
            data: The request with its length prefix.
            link: The connection for the answer.
            late: Whether the connection has ended before the request is handled.
        """
        key, version, correlation_id, client_length = struct.unpack_from(">hhih", data, 4)
        request_type, cluster = _BY_KEY[key], self.cluster
        flexible = version >= request_type.flexible_from
        body = key, version, data[14 + max(0, client_length) :]
        # Requests are not changed after their creation, and most are sent many times.
        request = cluster.decoded.get(body)
        if request is None:
            reader = Reader(body[2], flexible=flexible)
            if flexible:
                reader.skip_tags()
            request = cluster.decoded[body] = request_type.decode(reader, version)

        def reply(response: Message) -> None:
            writer = Writer()
            writer.int32(correlation_id)
            writer.flexible = flexible
            if flexible and request_type is not of_cluster.ApiVersionsRequest:
                writer.tags()
            response.encode(writer, version)
            answer = writer.written()
            if cluster.loses_answer(request) or cluster.loses_once(request, response):
                link.cut()
            else:
                link.reply(len(answer).to_bytes(4, "big") + answer)

        cluster.requests[_NAMES[key]] += 1
        if cluster.loses_once(request, None):
            link.cut()
            if isinstance(request, InitProducerIdRequest | of_groups.OffsetCommitRequest):
                link.handle_late(data)
            return
        cluster.handles_late, cluster.client, cluster.version = late, link.process, version
        cluster.handlers[request_type](self, request, reply)
        cluster.handles_late = False


class Network:
    """Connects processes to brokers."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster

    async def connect(
        self, process: Process, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        broker = self._broker(host)
        await asyncio.sleep(broker.delay())
        protocol = factory()
        transport = Transport(self._link(process, broker, protocol))
        protocol.connection_made(transport)
        return transport, protocol

    def connect_blocking(self, process: Process, host: str, port: int) -> Socket:
        broker = self._broker(host)
        self._world.sleep(broker.delay())
        sock = Socket(self._world)
        sock.link = self._link(process, broker, sock)
        return sock

    def _broker(self, host: str) -> Broker:
        return next(one for one in self._cluster.brokers.values() if one.host == host)

    def _link(self, process: Process, broker: Broker, protocol: asyncio.Protocol) -> Link:
        if not broker.up:
            raise ConnectionRefusedError(111, "Connection refused")
        return Link(self._world, process, broker, protocol)


@dataclass(frozen=True)
class _Losing:
    """The answers to lose, and the time until which they are lost; see `Cluster.lose_answers`."""

    until: float
    share: float
    moves: bool
    only: int | None


class Cluster:
    """The brokers of a cluster, with their replicated state.

    Attributes:
        handlers: The function that answers each kind of request.
        requests: The number of requests of each kind.
        decoded: The requests so far, by API key, version and bytes.
        names: The names of all topics, including deleted topics.
        deleted_at: The times at which topics were deleted, by their ids.
        handles_late: Whether the connection of the request that is handled now has ended.
        client: The process that has sent the request that is handled now.
        version: The version of the request that is handled now.
        transaction_version: The feature `transaction.version`: 2 for KIP-890's second protocol.
        read_committed: Whether readers get no records of aborted transactions.
        fetches: The handler of Fetch.
        retention: `offsets.retention.minutes`, in virtual seconds.
        names_only: Whether offsets are committed and fetched by the names of topics only, as before Kafka 4.1.
        errors: The number of answers with each error code, by the name of the API.
    """

    def __init__(self, world: World, brokers: int) -> None:
        self.world = world
        self.cluster_id = "simulated"
        self.brokers = {node: Broker(self, node) for node in range(1, brokers + 1)}
        self.topics: dict[str, Topic] = {}
        self.names: dict[uuid.UUID, str] = {}
        self.deleted_at: dict[str, float] = {}
        self.requests: Counter[str] = Counter()
        self.decoded: dict[tuple[int, int, bytes], Any] = {}
        self.handles_late = False
        self.client: Process | None = None
        self.version = 0
        self.transaction_version = 1
        self.names_only = False
        self.retention = math.inf
        self.errors: Counter[tuple[str, int]] = Counter()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._loading: dict[tuple[int, str], float] = {}
        self._losing = _Losing(0.0, 0.0, moves=False, only=None)
        self._loses_once: int | None = None
        self.read_committed = False
        self.moved: list[Callable[[int, str], None]] = []
        self.handlers: dict[Any, Callable[[Broker, Any, Reply], None]] = {
            of_cluster.ApiVersionsRequest: self._api_versions,
            of_cluster.MetadataRequest: self._metadata,
            of_cluster.FindCoordinatorRequest: self._find_coordinator,
            of_cluster.ListOffsetsRequest: self._list_offsets,
            of_cluster.OffsetForLeaderEpochRequest: self._end_of_epoch,
            of_cluster.DescribeConfigsRequest: self._configs,
        }
        self.fetches = Fetches(self)
        world.network = Network(world, self)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{one.host}:{one.port}" for one in self.brokers.values())

    # ---- topics

    def create_topic(self, name: str, partitions: int) -> None:
        if name in self.topics:
            self.deleted_at[str(self.topics[name].id)] = self.world.now
        topic = self.topics[name] = Topic(uuid.UUID(int=self.world.random.getrandbits(128), version=4), self.world.now)
        self.names[topic.id] = name
        self.add_partitions(name, partitions)

    def add_partitions(self, name: str, count: int) -> None:
        topic = self.topics[name]
        for _ in range(count):
            leader = self.world.random.choice([node for node, one in self.brokers.items() if one.up] or [1])
            topic.partitions.append(Partition(leader, read=ReadLog(self.read_committed)))

    def produce(self, name: str, number: int, count: int) -> None:
        """Append this number of offsets to a log that queries read."""
        topic = self.topics[name]
        one = topic.partitions[number]
        batches = written_at(topic.id, number, one.epoch, one.end, count, self.world.now)
        one.read.append(batches, one.end, one.end + count)
        one.end += count

    def end(self, tp: tuple[str, int]) -> int:
        """Return the end of a partition's log."""
        return self.log(tp).end

    def log(self, tp: tuple[str, int]) -> Partition:
        """Return a partition."""
        return self.topics[tp[0]].partitions[tp[1]]

    def fetch(
        self, tp: tuple[str, int], start: int, end: int, topic_id: uuid.UUID | None = None, epoch: int = -1
    ) -> Iterator[Range]:
        """Yield the records of a partition between two offsets, and no records of a topic with another id.

        Only records up to the end of `epoch`, in which the read was planned, are returned; -1: the epoch is not known.
        """
        topic = self.topics[tp[0]]
        if topic_id in (None, topic.id):
            log = topic.partitions[tp[1]]
            end = min(end, log.end if epoch < 0 else log.end_of(epoch))
            for known in sorted(log.began):
                first, stop = log.of_epoch(known, start, end)
                if first < stop:
                    yield str(topic.id), tp[1], known, first, stop

    def log_of(self, topic_id: str, number: int) -> Partition | None:
        """Return a partition of the topic with an id; None: the partition no longer exists."""
        found = self.topics.get(self.names[uuid.UUID(topic_id)])
        return found.partitions[number] if found is not None and str(found.id) == topic_id else None

    def truncate(self, name: str, number: int, records: int) -> None:
        """Make another broker, which lacks the last records, the leader (an unclean election)."""
        partition = self.topics[name].partitions[number]
        partition.lost_up_to = max(partition.lost_up_to, partition.end)
        partition.end = max(0, partition.end - records)
        partition.read.truncate(partition.end)
        partition.lost_from = min(partition.lost_from, partition.end)
        partition.followed.clear()
        partition.began = {epoch: start for epoch, start in partition.began.items() if start <= partition.end}
        partition.elect(self.world.random.choice([node for node, one in self.brokers.items() if one.up] or [1]))
        self.world.tell("cluster", f"{name}-{number} is truncated to {partition.end}")

    # ---- coordinators

    def coordinator(self, kind: int, key: str) -> int:
        """Return the node of a coordinator; -1: no coordinator is available now."""
        place = self._coordinators.get((kind, key))
        if place is None:
            nodes = sorted(self.brokers)
            place = self._coordinators[kind, key] = nodes[zlib.crc32(f"{kind}{key}".encode()) % len(nodes)]
        return place if self.brokers[place].up else -1

    def refusal(self, broker: Broker, kind: int, key: str) -> int:
        """Return a broker's error to a request for a coordinator; 0: the broker is the coordinator, and ready."""
        if self.coordinator(kind, key) != broker.node:
            return int(ErrorCode.NOT_COORDINATOR)
        loaded_at = self._loading.get((kind, key), 0.0)
        return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if self.world.now < loaded_at else 0

    def move_coordinator(self, kind: int, key: str) -> None:
        """Make another broker the coordinator; the new coordinator loads the state from the log."""
        before = self._coordinators.get((kind, key))
        nodes = [node for node, one in self.brokers.items() if one.up and node != before]
        if not nodes:
            return
        self._coordinators[kind, key] = self.world.random.choice(nodes)
        self._loading[kind, key] = self.world.now + self.world.random.choice((0.0, 0.3, 2.0))
        self.world.tell("cluster", f"coordinator of {key} moves from {before} to {self._coordinators[kind, key]}")
        for moved in self.moved:
            moved(kind, key)

    def loads(self, broker: Broker, kind: int) -> bool:
        """Return whether a broker is loading the state of a group or transactional id that it has taken over."""
        return any(
            self._coordinators[place] == broker.node and self.world.now < until
            for place, until in self._loading.items()
            if place[0] == kind
        )

    def known_coordinators(self) -> list[tuple[int, str]]:
        """Return the (kind, key) of each group and transactional id that has a coordinator."""
        return sorted(self._coordinators)

    # ---- faults

    def lose_answers(self, seconds: float, share: float, *, moves: bool, only: int | None = None) -> None:
        """Lose a share of the answers: end the connections instead, before or after the requests are handled.

        Args:
            seconds: The time in which answers are lost.
            share: The share of the answers that are lost.
            moves: Whether a coordinator moves to another broker when its answer is lost.
            only: The key of the API whose answers are lost; None: all.
        """
        self._losing = _Losing(self.world.now + seconds, share, moves, only)

    def loses_request(self) -> bool:
        """Return whether a request that has just arrived is lost."""
        losing = self._losing
        return losing.only is None and self.world.now < losing.until and self.world.random.random() < losing.share / 3

    def loses_answer(self, request: Any) -> bool:
        """Return whether the answer to a request is lost."""
        losing = self._losing
        if self.world.now >= losing.until or losing.only not in (None, request.API_KEY):
            return False
        if self.world.random.random() >= losing.share:
            return False
        name = getattr(request, "transactional_id", None)
        if isinstance(request, TxnOffsetCommitRequest) or name is None:
            named = (
                request.groups[0] if isinstance(request, of_groups.OffsetFetchRequest) and request.groups else request
            )
            kind, name = GROUP, getattr(named, "group_id", None)
        else:
            kind = TRANSACTION
        if losing.moves and name is not None and (kind, name) in self._coordinators:
            self.world.after(0, lambda: self.move_coordinator(kind, name))
        return True

    def lose_once(self, api_key: int) -> None:
        """Lose one request or answer at the moment in which the loss matters most.

        This is the SyncGroup with the assignment, the answer to a heartbeat that raises an epoch, or an InitProducerId
        or OffsetCommit. The broker handles these two late, when the client has repeated them on another connection.
        """
        self._loses_once = api_key

    def loses_once(self, request: Any, response: Any) -> bool:
        """Return whether a request (`response` is None) is lost before it is handled, or whether its answer is lost."""
        if self._loses_once != request.API_KEY:
            return False
        if isinstance(request, of_groups.SyncGroupRequest):
            lost = response is None and bool(request.assignments)
        elif isinstance(request, InitProducerIdRequest | of_groups.OffsetCommitRequest):
            lost = response is None
        else:
            lost = response is not None and 0 < request.member_epoch < response.member_epoch
        if lost:
            self._loses_once = None
        return lost

    def stop_broker(self, node: int) -> None:
        """Kill a broker. After a while other brokers become leaders and coordinators in its place."""
        broker = self.brokers[node]
        broker.up = False
        self.world.tell("cluster", f"broker {node} stops")
        for link in list(broker.links):
            link.cut()
        self.world.after(self.world.random.uniform(0.2, 3.0), lambda: self._fail_over(node))

    def start_broker(self, node: int) -> None:
        self.brokers[node].up = True
        self.world.tell("cluster", f"broker {node} starts")

    def _fail_over(self, node: int) -> None:
        others = [other for other, one in self.brokers.items() if one.up and other != node]
        if not others:
            return
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node:
                    partition.elect(self.world.random.choice(others))
        for (kind, key), place in list(self._coordinators.items()):
            if place == node:
                self.move_coordinator(kind, key)

    # ---- answers

    def _api_versions(self, _: Broker, __: of_cluster.ApiVersionsRequest, reply: Reply) -> None:
        version = of_cluster.ApiVersionsResponse.ApiVersion
        keys = [
            version(
                cls.API_KEY,
                0,
                self.fetches.version if cls is FetchRequest else newest - (self.names_only and cls in _HAVE_IDS),
            )
            for cls, newest in _NEWEST.items()
        ]
        level = self.transaction_version
        features = [of_cluster.ApiVersionsResponse.FinalizedFeatureKey("transaction.version", level, level)]
        reply(
            of_cluster.ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0, finalized_features=features)
        )

    def _metadata(self, _: Broker, request: of_cluster.MetadataRequest, reply: Reply) -> None:
        topic_type = of_cluster.MetadataResponse.MetadataResponseTopic
        names = sorted(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            topic = self.topics.get(name or "")
            topics.append(
                topic_type(
                    error_code=0 if topic else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    name=name,
                    topic_id=topic.id if topic else uuid.UUID(int=0),
                    is_internal=False,
                    partitions=[
                        topic_type.MetadataResponsePartition(
                            error_code=0 if self.brokers[one.leader].up else int(ErrorCode.LEADER_NOT_AVAILABLE),
                            partition_index=index,
                            leader_id=one.leader if self.brokers[one.leader].up else -1,
                            leader_epoch=one.epoch,
                            replica_nodes=sorted(self.brokers),
                            isr_nodes=sorted(self.brokers),
                            offline_replicas=[],
                        )
                        for index, one in enumerate(topic.partitions if topic else ())
                    ],
                )
            )
        brokers = [
            of_cluster.MetadataResponse.MetadataResponseBroker(
                node_id=one.node, host=one.host, port=one.port, rack=None
            )
            for one in self.brokers.values()
            if one.up
        ]
        reply(
            of_cluster.MetadataResponse(
                throttle_time_ms=0, cluster_id=self.cluster_id, controller_id=1, brokers=brokers, topics=topics
            )
        )

    def _find_coordinator(self, _: Broker, request: of_cluster.FindCoordinatorRequest, reply: Reply) -> None:
        node = self.coordinator(request.key_type, request.key)
        broker = self.brokers.get(node)
        reply(
            of_cluster.FindCoordinatorResponse(
                throttle_time_ms=0,
                error_code=0 if broker else int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
                error_message=None,
                node_id=node,
                host=broker.host if broker else "",
                port=broker.port if broker else -1,
            )
        )

    def _list_offsets(self, broker: Broker, request: of_cluster.ListOffsetsRequest, reply: Reply) -> None:
        topic_type = of_cluster.ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for asked in request.topics:
            partitions = []
            for one in asked.partitions:
                known = self.topics[asked.name].partitions
                found = known[one.partition_index] if one.partition_index < len(known) else None
                leads = found is not None and found.leader == broker.node
                end = 0 if found is None else found.read.start if one.timestamp == -2 else found.end
                if found is not None and one.timestamp >= 0:
                    end = found.read.first_at(one.timestamp / 1000 - BEGIN)
                partitions.append(
                    topic_type.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=0 if leads else int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
                        timestamp=-1,
                        offset=end if leads else -1,
                        leader_epoch=found.epoch if found else -1,
                    )
                )
            topics.append(topic_type(name=asked.name, partitions=partitions))
        reply(of_cluster.ListOffsetsResponse(throttle_time_ms=0, topics=topics))

    def _end_of_epoch(self, broker: Broker, request: of_cluster.OffsetForLeaderEpochRequest, reply: Reply) -> None:
        topic_type = of_cluster.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for asked in request.topics:
            partitions = []
            for one in asked.partitions:
                found = self.topics[asked.topic].partitions[one.partition]
                leads = found.leader == broker.node
                partitions.append(
                    topic_type.EpochEndOffset(
                        error_code=0 if leads else int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
                        partition=one.partition,
                        leader_epoch=min(one.leader_epoch, found.epoch),
                        end_offset=found.end_of(one.leader_epoch),
                    )
                )
            topics.append(topic_type(topic=asked.topic, partitions=partitions))
        reply(of_cluster.OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics))

    def _configs(self, _: Broker, request: of_cluster.DescribeConfigsRequest, reply: Reply) -> None:
        result_type = of_cluster.DescribeConfigsResponse.DescribeConfigsResult
        limit = result_type.DescribeConfigsResourceResult(name="transaction.max.timeout.ms", value="900000")
        reply(
            of_cluster.DescribeConfigsResponse(
                results=[
                    result_type(
                        error_code=0, resource_type=one.resource_type, resource_name=one.resource_name, configs=[limit]
                    )
                    for one in request.resources
                ]
            )
        )
