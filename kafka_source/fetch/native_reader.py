"""The native fetch engine: the choice of brokers, moved leaders, time-outs, data loss, and decoding to Arrow.

Each broker has at most one request under way, and each partition is in at most one request. A partition moves to
another broker only after the response, or after the connection is lost. The next request is sent before a response's
records are decoded. The next response waits in the socket, so one buffer serves for all responses.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import kafkagroup_native as kernel
import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    CorruptRecordsError,
    DataLossError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnreadableRecordError,
    error_for_code,
)
from kafka_source.fetch import protocol
from kafka_source.fetch.engine import PACED_BATCH_SECONDS, FetchRequest, conform
from kafka_source.fetch.native_connections import NativeConnections
from kafka_source.fetch.protocol import MAX_BATCH_BYTES, FetchConnection
from kafka_source.kafka_client import ConnectionLost, PartitionMetadata, TopicMetadata, poll_readable
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.identity import describe_recreated, is_recreated
from kafka_source.model.stream_offset import Range
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.runtime.retry import RetryPolicy

log = logging.getLogger(__name__)

_MIN_FETCH_BYTES = 64 * 1024
_UNKNOWN_RECORD_BYTES = 1024
_BACK_OFF = RetryPolicy(0.05, 1.0)
_MAX_WAIT = 1.0
_LAST_LOOK_SECONDS = 2.0
_LOOKUP_SECONDS = 30.0


@dataclass(slots=True)
class _Part:
    """The state of one partition while its range is read.

    Attributes:
        whole: The range to read.
        asked: The fetch offset of the next request; all records before it are decoded, or are being decoded.
        node: The broker to fetch from; None: currently unknown.
        epoch: The leader epoch to send with the request (KIP-320); -1: the broker does not check it.
        topic_id: The topic's id in the metadata that name `node`; the broker checks this id (KIP-516). None: no id.
        read_epoch: The leader epoch of the last batch that was read; -1: no batch yet.
        follower: Whether `node` is a follower of the partition (KIP-392).
        leader_only: Set after a fetch from a follower has failed.
        least_bytes: The fetch size that the next batch needs, if known.
        short_since: Time at which the log first ended too early, or the partition became unknown; None: neither.
        waits_since: Start of the wait for records, moved by the time in which no broker could send records.
        failures: Number of failures in a row since the partition last returned records; the back-off grows with it.
        look_again_at: Time to look up the leader, if `node` is None.
        problem: The last problem since the partition's last response, for the error of a timeout.
    """

    whole: Range
    asked: int
    node: int | None = None
    epoch: int = -1
    topic_id: UUID | None = None
    read_epoch: int = -1
    follower: bool = False
    leader_only: bool = False
    least_bytes: int = 0
    short_since: float | None = None
    waits_since: float = field(default_factory=time.monotonic)
    failures: int = 0
    look_again_at: float = 0.0
    problem: str = ""

    @property
    def left(self) -> int:
        return self.whole.end - self.asked

    @property
    def name(self) -> str:
        return f"{self.whole.topic}-{self.whole.partition}"

    def short_for(self) -> float:
        """Return the seconds since the log first ended too early, as happens briefly with a new leader."""
        now = time.monotonic()
        if self.short_since is None:
            self.short_since = now
        return now - self.short_since

    def exclude_time(self, seconds: float) -> None:
        """Move both timers by this time, in which no broker could send records or the log's end."""
        self.waits_since += seconds
        if self.short_since is not None:
            self.short_since += seconds

    def received(self) -> None:
        """Reset the timers, because records have arrived."""
        self.waits_since, self.short_since, self.least_bytes, self.failures = time.monotonic(), None, 0, 0

    def back_off(self) -> None:
        """Wait before the leader is looked up, longer after each failure."""
        self.look_again_at = time.monotonic() + _BACK_OFF.pause(self.failures)
        self.failures += 1


class NativeReader:
    """Reads the ranges of one request; `NativeEngine.read` creates it.

    Args:
        engine: The connections and the buffer that this process keeps between tasks.
        request: The ranges and how to read them.
    """

    def __init__(self, engine: NativeConnections, request: FetchRequest) -> None:
        self._engine = engine
        self._request = request
        self._pacer = request.pacer
        self._schema = arrow_schema(request.columns)
        self._parts = {r.topic_partition: _Part(r, r.start) for r in request.ranges if r.size > 0}
        self._topics = {tp.topic for tp in self._parts}
        self._connections: dict[int, FetchConnection] = {}
        self._buffer = engine.take_buffer()
        self._builder = kernel.BatchBuilder(
            [(c.name, "string") if c.text else (c.name, "lenient") if c.lenient else c.name for c in request.columns],
            batch_rows=request.batch_rows,
            batch_bytes=request.batch_bytes,
        )
        # Whether a broker has sent records by topic name. A topic that is created again has the same name.
        self._by_name = False
        self._paced_until = 0.0
        self._given_at = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow record batches; see `FetchEngine.read`."""
        for batch in self._batches():
            given_at = time.monotonic()
            yield batch
            # Time in which the caller works does not count, because no request is sent.
            for part in self._parts.values():
                part.exclude_time(time.monotonic() - given_at)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._knows_topics():
            self._find_leaders()
        else:
            self._look_up_leaders()
        while self._parts:
            unplaced = self._without_broker()
            self._check_patience(unplaced)
            if unplaced and time.monotonic() >= min(part.look_again_at for part in unplaced):
                self._look_up_leaders()
            self._send_requests()
            began = time.monotonic()
            node = self._next_answer()
            if node is None:
                self._check_patience(self._parts.values())
                continue
            arrived = time.monotonic()
            try:
                self._buffer, response = self._connections[node].receive(self._buffer)
            except ConnectionLost as lost:
                self._lost(node, lost)
                continue
            round_trip = self._connections[node].round_trip
            yield from self._take(node, response)
            self._engine.fetch_size(node).received(
                response.size,
                # A wait beyond the round trip means that the broker or one of its disks was busy.
                waited=min(arrived - began, round_trip),
                taken=time.monotonic() - arrived,
                throttled=response.throttle_ms > 0 or self._pacer.max_bytes(1.0) is not None,
            )
            if (
                self._pacer.enabled
                and self._builder.num_rows
                and time.monotonic() > self._given_at + PACED_BATCH_SECONDS
            ):
                yield self._batch()
        self._check_ids()
        if self._builder.num_rows:
            yield self._batch()

    def _check_ids(self) -> None:
        """If brokers have sent records by the names of topics, check that the topics are still those of the plan.

        Raises:
            RetriableError: A topic was created again. The next attempt reports the loss.
        """
        if not self._by_name:
            return
        self._engine.refresh(self._topics, another=False, seconds=self._request.timeout_ms / 1000)
        cluster = self._engine.cluster
        for name in sorted(self._topics & cluster.topics.keys()):
            if self._is_another(topic := cluster.topics[name], cluster.cluster_id):
                raise RetriableError(
                    f"{describe_recreated(topic.id_text)}, while {name} was read by its name. The rows of this attempt "
                    "do not count, and the next attempt reports the loss of the topic."
                )

    def give_back(self) -> None:
        """Return connections and buffer to the engine."""
        for node, connection in self._connections.items():
            self._engine.keep(node, connection, read_committed=self._request.read_committed)
        self._connections.clear()
        self._engine.keep_buffer(self._buffer)

    # ---- requests

    def _send_requests(self) -> None:
        by_node: dict[int, list[_Part]] = {}
        for part in self._parts.values():
            if part.node is not None and part.left > 0:
                by_node.setdefault(part.node, []).append(part)
        for node, parts in by_node.items():
            under_way = self._connections.get(node)
            if under_way is not None and under_way.waiting:
                continue
            if self._is_held_back():
                return
            try:
                self._send(node, parts)
            except ConnectionLost as lost:
                self._lost(node, lost)

    def _is_held_back(self) -> bool:
        """Return whether the quota delays the next request, and set the end of the delay."""
        if not self._pacer.enabled:
            return False
        pause = self._pacer.seconds_to_wait(sum(part.left for part in self._parts.values()))
        self._paced_until = time.monotonic() + pause
        if pause > 0:
            for part in self._parts.values():
                if part.node is not None:
                    part.waits_since = time.monotonic()
        return pause > 0

    def _send(self, node: int, parts: list[_Part]) -> None:
        connection = self._connections.get(node)
        if connection is not None and connection.expiring:
            self._connections.pop(node).close()
            connection = None
        if connection is None:
            connection = self._engine.connection(
                node, read_committed=self._request.read_committed, seconds=self._patience(parts)
            )
            self._connections[node] = connection
        if connection.busy:
            return
        self._by_name |= not connection.knows_ids and bool(self._request.topics)
        # A truncated batch is fetched alone, so that it may take all bytes of the response.
        parts = [part for part in parts if part.least_bytes][:1] or parts
        most = self._engine.fetch_size(node).bytes
        most_of_part = min(most, self._engine.max_partition_bytes)
        sizes = [self._bytes_for(part, most_of_part) for part in parts]
        wanted = [
            protocol.Wanted(p.whole.topic, p.whole.partition, p.asked, p.epoch, size, p.topic_id)
            for p, size in zip(parts, sizes, strict=True)
        ]
        # Brokers fill a response in the order of the request, so the first partition is complete first.
        most = max(min(most, self._bytes_within_quota(parts), sum(sizes)), parts[0].least_bytes, 1)
        connection.send(wanted, most, any_replica=not any(p.leader_only for p in parts))

    def _bytes_within_quota(self, parts: list[_Part]) -> int:
        each = max(self._engine.record_bytes.get(part.whole.topic, _UNKNOWN_RECORD_BYTES) for part in parts)
        most = self._pacer.max_bytes(each)
        if most is None:
            return self._engine.max_bytes
        # Request whole batches, because brokers truncate the last batch at the limit, and would send it again.
        batch = max(self._engine.batch_bytes.get(part.whole.topic, 0.0) for part in parts)
        return max(1, int(most // batch)) * int(batch) if batch else most

    def _bytes_for(self, part: _Part, most: int) -> int:
        """Return the number of bytes to fetch for a range: at most `most`, with few bytes after the range's end."""
        topic, engine = part.whole.topic, self._engine
        each = engine.record_bytes.get(topic, _UNKNOWN_RECORD_BYTES)
        about = int(part.left * each * 1.1 + engine.batch_bytes.get(topic, 0.0))
        return max(part.least_bytes, min(most, max(_MIN_FETCH_BYTES, about)))

    # ---- waiting

    def _next_answer(self) -> int | None:
        """Wait for a response and return its broker; None if a timer ended first."""
        now = time.monotonic()
        events = [now + _MAX_WAIT, *(part.look_again_at for part in self._without_broker())]
        if self._paced_until > now:
            events.append(self._paced_until)
        heard = poll_readable(self._connections.values(), min(events))
        for node, connection in list(self._connections.items()):
            if connection.waiting and connection.fileno() in heard:
                # Move the connection to the end, so that the brokers take turns.
                self._connections[node] = self._connections.pop(node)
                return node
            if connection.waiting and time.monotonic() >= connection.overdue_at:
                self._lost(node, ConnectionLost(f"Broker {node} has not answered a fetch request."))
        return None

    def _without_broker(self) -> list[_Part]:
        return [part for part in self._parts.values() if part.node is None]

    def _patience(self, parts: Iterable[_Part]) -> float:
        """Return the seconds until a partition's records are late, or until its leader is to be looked up."""
        since = min(part.waits_since for part in parts)
        return max(_LAST_LOOK_SECONDS, since + self._request.timeout_ms / 1000 - time.monotonic())

    def _check_patience(self, parts: Iterable[_Part]) -> None:
        """Raise RetriableError if a partition has returned no records within `kafkaConsumer.pollTimeoutMs`."""
        since = time.monotonic() - self._request.timeout_ms / 1000
        # If a log ends too early, ask its leader once more, because an error about lost records has more details.
        late = [
            part
            for part in parts
            if part.waits_since < since
            and (part.short_since is None or (part.node is None and part.short_since < since - _LAST_LOOK_SECONDS))
        ]
        if not late:
            return
        where = ", ".join(f"{part.name} at offset {part.asked}" for part in late[:5])
        problem = next((f"; the last problem was: {part.problem}" for part in late if part.problem), "")
        raise RetriableError(
            f"No records came within {self._request.timeout_ms} ms (kafkaConsumer.pollTimeoutMs) for {where}{problem}"
        )

    # ---- responses

    def _take(self, node: int, response: protocol.Response) -> Iterator[pa.RecordBatch]:
        for held in self._parts.values():
            if held.node == node:
                held.exclude_time(response.throttle_ms / 1000)
                if response.error:
                    self._handle_error(held, response.error)
        self._pacer.throttled(response.throttle_ms / 1000)
        self._pacer.fetched(response.size, 0)
        records = []
        for fetched in response.partitions:
            part = self._parts.get(TopicPartition(fetched.topic, fetched.partition))
            if part is None or part.node is None:
                continue
            part.problem = ""
            if fetched.error:
                self._handle_error(part, fetched.error)
            elif fetched.begin < fetched.end:
                records.append((part, self._records(part, fetched)))
            elif fetched.preferred >= 0 and fetched.preferred != node and not part.leader_only:
                part.node, part.follower = fetched.preferred, True
            else:
                self._check_end(part, fetched, alone=not records)
        # The next request is sent before the records of this response are decoded.
        self._send_requests()
        for part, record_set in records:
            if record_set is not None:
                yield from self._decode(part, record_set)
        for tp in [tp for tp, part in self._parts.items() if part.left <= 0]:
            del self._parts[tp]

    def _records(self, part: _Part, fetched: protocol.Fetched) -> kernel.RecordSet | None:
        whole, begun = part.whole, part.asked
        scan = kernel.scan(self._buffer, begun, start=fetched.begin, end=fetched.end)
        if scan.cut_off:
            self._ask_for_whole(part, scan.cut_off, fetched.end - fetched.begin)
            return None
        part.asked = min(whole.end, scan.next_offset)
        part.read_epoch = scan.leader_epoch
        part.received()
        if part.asked > begun:
            # Count all records of the response, even if the range needs only a few of them.
            self._engine.record_bytes[whole.topic] = scan.size / max(1, scan.offsets)
            self._engine.batch_bytes[whole.topic] = scan.size / max(1, scan.batches)
            self._pacer.fetched(0, part.asked - begun)
            self._pacer.measured(whole.topic_partition, scan.size, scan.offsets)
        return kernel.RecordSet(
            self._buffer,
            whole.topic,
            whole.partition,
            start=fetched.begin,
            end=fetched.end,
            from_offset=begun,
            to_offset=whole.end,
            aborted_transactions=fetched.aborted or None,
        )

    def _ask_for_whole(self, part: _Part, claimed: int, sent: int) -> None:
        """Fetch a truncated batch again, with its whole size. Brokers before KIP-74 truncate the first batch.

        Raises:
            CorruptRecordsError: The length of the batch is wrong.
        """
        if claimed > MAX_BATCH_BYTES or claimed <= part.least_bytes:
            raise CorruptRecordsError(
                topic=part.whole.topic,
                partition=part.whole.partition,
                offset=part.asked,
                reason=f"the answer has {sent} bytes of a batch that claims to have {claimed} or more",
            )
        part.least_bytes = claimed
        self._check_patience([part])

    def _decode(self, part: _Part, records: kernel.RecordSet) -> Iterator[pa.RecordBatch]:
        whole, begun = part.whole, records.next_offset
        try:
            while self._builder.append(records):
                yield self._batch()
        except kernel.OldMessageFormat:
            yield from self._decode_old(part, records.next_offset)
            return
        except kernel.UnreadableRecord as error:
            raise UnreadableRecordError(**_place(error), reason=error.reason) from None
        except kernel.BatchTooLarge as error:
            reason = "its compressed batch unpacks to more than 256 MiB; engine=librdkafka has other bounds"
            raise UnreadableRecordError(**_place(error), reason=reason) from None
        except kernel.RecordsError as error:
            raise CorruptRecordsError(**_place(error), reason=error.reason) from None
        if not begun < records.next_offset == part.asked:
            raise CorruptRecordsError(
                topic=whole.topic,
                partition=whole.partition,
                offset=records.next_offset,
                reason=f"the broker was asked for offset {begun}, and its answer leads to {part.asked}",
            )

    def _decode_old(self, part: _Part, start: int) -> Iterator[pa.RecordBatch]:
        log.info("%s has messages of an old format from offset %d on: librdkafka reads them", part.whole, start)
        if self._builder.num_rows:
            yield self._batch()
        part.asked = part.whole.end
        rest = Range(part.whole.topic, part.whole.partition, start, part.whole.end)
        yield from self._engine.read_old_format(rest, self._request)
        for other in self._parts.values():
            other.waits_since = time.monotonic()

    def _batch(self) -> pa.RecordBatch:
        self._given_at = time.monotonic()
        return conform(pa.record_batch(self._builder.take()), self._schema)

    # ---- errors

    def _handle_error(self, part: _Part, code: int) -> None:
        problem = error_for_code(code, f"Fetching {part.name} at offset {part.asked} failed")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(part, problem)
        else:
            self._set_aside(part, problem)

    def _set_aside(self, part: _Part, problem: KafkaGroupError) -> None:
        """Look up the partition's leader before the next fetch; raise an error of a setting or a permission.

        After other errors the fetch is repeated, within the time limit of the range.
        """
        if isinstance(problem, InvalidConfigurationError):
            raise problem
        part.problem = str(problem)
        part.leader_only |= part.follower
        part.node, part.follower = None, False
        part.back_off()

    def _lost(self, node: int, lost: ConnectionLost) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        for part in self._parts.values():
            if part.node == node:
                self._set_aside(part, lost)

    def _out_of_range(self, part: _Part, problem: KafkaGroupError) -> None:
        if part.follower or part.node is None:
            # A follower may not have replicated this offset yet.
            return self._set_aside(part, problem)
        try:
            low, high = self._engine.bounds(part.whole.topic_partition, part.node)
        except KafkaGroupError as error:
            return self._set_aside(part, error)
        is_behind = part.asked > high and part.short_for() <= self._request.loss_patience
        if low <= part.asked <= high or is_behind:
            return self._set_aside(part, problem)
        self._report_loss(part, available=(low, high))
        part.asked = low if part.asked < low < part.whole.end else part.whole.end
        return None

    def _check_end(self, part: _Part, fetched: protocol.Fetched, *, alone: bool) -> None:
        """Handle a response without records: the log may end before the range, briefly or permanently.

        Args:
            part: The partition.
            fetched: The partition's part of the response.
            alone: Whether all earlier partitions of the response have no records.
        """
        if fetched.high_watermark >= part.whole.end:
            part.short_since = None
            if alone:
                # The records exist, but with read_committed an open transaction hides them.
                self._check_patience([part])
            else:
                # An earlier partition used all bytes of the response.
                part.waits_since = time.monotonic()
        elif part.follower:
            self._set_aside(part, RetriableError(f"A follower has {part.name} up to {fetched.high_watermark} only."))
        elif part.short_for() > self._request.loss_patience:
            self._report_loss(part, available=(fetched.log_start, fetched.high_watermark))
            part.asked = part.whole.end
        else:
            # This broker may be cut off from the controllers, and another broker may be the leader.
            self._set_aside(part, RetriableError(f"The leader has {part.name} up to {fetched.high_watermark} only."))

    def _report_loss(self, part: _Part, **details: Any) -> None:
        """Raise DataLossError; with `failOnDataLoss=false` log the error. `details`: more arguments of the error."""
        error = DataLossError(topic=part.whole.topic, partition=part.whole.partition, planned=part.asked, **details)
        if self._request.fail_on_data_loss:
            raise error
        log.warning("%s (failOnDataLoss is false: the task continues)", error)

    # ---- leaders

    def _continue_at_leader(self, part: _Part, found: PartitionMetadata) -> None:
        """Continue at the leader. If the leader's log lacks planned or read offsets, report a loss (KIP-320)."""
        planned = part.whole.epoch
        known = part.read_epoch if planned < 0 else planned
        if found.leader_epoch > max(part.epoch, known) and known >= 0:
            try:
                end = self._engine.end_of_epoch(
                    part.whole.topic_partition, found.leader, known, leader_epoch=found.leader_epoch
                )
            except KafkaGroupError as problem:
                self._set_aside(part, problem)
                return
            if planned >= 0 and 0 <= end < part.whole.end:
                problem_in_words = (
                    f"from offset {end} on, the leader of epoch {found.leader_epoch} lacks records that were planned "
                    f"with the leader of epoch {planned}"
                )
                self._report_loss(part, truncated_to=end, problem=problem_in_words)
                # The next micro-batch begins where the logs diverge, and reads the new leader's records.
                part.whole = part.whole._replace(end=max(part.asked, end))
            elif planned < 0 and 0 <= end < part.asked:
                self._report_loss(part, truncated_to=end)
                # The new leader has other records at these offsets, which were not read yet.
                part.asked = max(part.whole.start, end)
        if found.leader_epoch != part.epoch:
            # Another leader may be behind too, and gets the same time to catch up.
            part.short_since = None
        part.node, part.epoch = found.leader, found.leader_epoch

    def _knows_topics(self) -> bool:
        """Return whether the cached metadata has all topics of the request, with the plan's ids and leaders."""
        cluster = self._engine.cluster
        known = cluster.topics
        return all(
            name in known and not self._is_another(known[name], cluster.cluster_id) for name in self._topics
        ) and not any(self._is_outdated(known[part.whole.topic], part) for part in self._parts.values())

    def _is_another(self, topic: TopicMetadata, cluster_id: str | None) -> bool:
        if self._is_moved(cluster_id):
            return False
        return is_recreated(self._request.topics.get(topic.name), topic.id_text)

    def _is_moved(self, cluster_id: str | None) -> bool:
        """Return whether topics were moved to this cluster (cluster.moved.from), with other ids and leader epochs."""
        return self._request.cluster not in (None, cluster_id)

    def _is_outdated(self, topic: TopicMetadata, part: _Part) -> bool:
        """Return whether the metadata's leader epoch is lower than an epoch of the plan or of the records read so far.

        Topics without an id (brokers before 2.8) are not compared: epochs begin again if a topic is created again.
        """
        found = topic.partitions.get(part.whole.partition)
        if found is None or topic.topic_id is None or self._is_moved(self._engine.cluster.cluster_id):
            return False
        return 0 <= found.leader_epoch < max(part.epoch, part.whole.epoch, part.read_epoch)

    def _look_up_leaders(self) -> None:
        """Fetch the metadata, and find the leaders in it; without metadata, try again after a pause."""
        # If a log ends too early, or a topic or leader is missing, the broker that answered may be cut off.
        is_doubtful = any(part.short_since is not None for part in self._without_broker())
        seconds = min(_LOOKUP_SECONDS, self._patience(self._parts.values()))
        try:
            self._engine.refresh(self._topics, another=is_doubtful, seconds=seconds)
        except RetriableError as problem:
            if not self._engine.was_reached:
                raise
            # All brokers may be moving to new addresses, and the ranges have their own time limit. Without an answer
            # the end of a log is unknown, and after a rebootstrap the known metadata are empty.
            for part in self._without_broker():
                part.problem, part.short_since = str(problem), None
        else:
            self._find_leaders()
        for part in self._without_broker():
            part.back_off()

    def _find_leaders(self) -> None:
        """Continue each partition without a broker at the leader that the metadata name."""
        self._engine.check_cluster(self._request.cluster)
        cluster = self._engine.cluster
        topics = {name: cluster.topics.get(name) for name in self._topics}
        others = {
            name: describe_recreated(topic.id_text)
            for name, topic in topics.items()
            if topic is not None and self._is_another(topic, cluster.cluster_id)
        }
        for tp, part in list(self._parts.items()):
            if tp.topic in cluster.refused:
                raise error_for_code(cluster.refused[tp.topic], f"Fetching {part.name} failed")
            topic, another = topics[tp.topic], others.get(tp.topic, "")
            partition = None if topic is None or another else topic.partitions.get(tp.partition)
            if another:
                part.node = None
            if partition is None:
                # A broker that has just started may lack the topic, or may still have a deleted topic of this name.
                if part.node is None and part.short_for() > self._request.loss_patience:
                    self._report_loss(part, reason=another)
                    del self._parts[tp]
            elif topic is not None and part.node is None and partition.leader >= 0:
                if self._is_outdated(topic, part) and part.short_for() <= self._request.loss_patience:
                    part.problem = f"A broker that is cut off names an older leader of {part.name} than the plan."
                    continue
                part.topic_id = topic.topic_id
                self._continue_at_leader(part, partition)
                if part.left <= 0:
                    del self._parts[tp]


def _place(error: kernel.RecordsError) -> dict[str, Any]:
    return {"topic": error.topic, "partition": error.partition, "offset": error.offset}


def engine(settings: Settings) -> "NativeEngine":
    """Return the engine of this process for these settings."""
    return _engines.of(settings)


class NativeEngine(NativeConnections):
    """A `FetchEngine` whose tasks use the same connections one after another."""

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """Yield the records of a request, see `FetchEngine.read`."""
        reading = NativeReader(self, request)
        try:
            yield from reading.batches()
        finally:
            reading.give_back()


_engines = ProcessCache(NativeEngine, close=NativeEngine.close)
