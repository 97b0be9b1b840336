"""Wait until committed records are visible to readers; find and write commit markers that a broker has lost.

A coordinator answers a commit when its own log has the commit, and then sends the markers to the partitions. If the
coordinator is killed before it sends the markers, it should send them after its restart. In a cluster of one broker,
the coordinator did not send the markers in 3 of 7 attempts (Kafka 4.3.1). Without the markers, the last stable offset
never passes the records of the committed transaction. So this module looks up open transactions at the partitions'
leaders (DescribeProducers). The last stable offset is no proof, because another producer's transaction may delay it.

`kafkagroup transactions repair` writes lost markers.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, NotVisibleError, RetriableError, UnknownTopicError, error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages.transaction import DescribeProducersRequest, WriteTxnMarkersRequest
from kafka_source.model.partition_runs import format_partitions
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.sink.two_phase.open_transactions import COMMITTED, list_in_states
from kafka_source.transactions.open_transaction import OpenTransaction

log = logging.getLogger(__name__)

_PAUSES = RetryPolicy(0.002, 0.5)
_WHAT = "Looking for the commit marker"
# Metadata lack a topic for a moment after its creation, and while its leaders change.
_DELETED_SECONDS = 5.0
_MARKERS_VERSION = 1
_NO_COORDINATOR = -1


async def wait_until_visible(
    client: KafkaClient,
    batch: int,
    transactions: Sequence[OpenTransaction],
    partitions: Iterable[TopicPartition],
    deadline: Deadline,
) -> None:
    """Wait until the transactions have ended in all of these partitions.

    If the user lacks READ on a topic, which the request needs, log a warning and return. Deleted topics are ignored.

    Args:
        client: Client of the cluster that the sink writes to.
        batch: The batch's number, for the error text.
        transactions: Committed transactions.
        partitions: All partitions that the transactions have written to.
        deadline: Limit for the whole call.

    Raises:
        NotVisibleError: A partition holds a transaction open at the deadline; the error names both.
    """
    left = sorted(set(partitions))
    producers = {(t.producer_id, t.epoch): t.transactional_id for t in transactions}
    missing: dict[TopicPartition, str] = {}
    problem: RetriableError | None = None
    absent = _AbsentPartitions()
    for pause in _PAUSES.pauses():
        if not left:
            return
        try:
            missing = await _still_open(client, left, producers, deadline)
            left = sorted(missing)
        except _AbsentPartitionsError as error:
            problem = error
            deleted = absent.deleted(error.partitions)
            if deleted:
                log.warning("batch %d: its partitions %s no longer exist", batch, format_partitions(sorted(deleted)))
                left = [tp for tp in left if tp not in deleted]
        except AuthenticationError as error:
            log.warning("cannot verify visibility of batch %d: READ on its topics is missing: %s", batch, error)
            return
        except RetriableError as error:
            # The leader may be restarting; ask again when it is back.
            problem = error
        if not left:
            return
        if deadline.left <= pause:
            raise NotVisibleError(batch=batch, partitions=left, missing=missing, seconds=deadline.seconds) from problem
        await asyncio.sleep(pause)


class _AbsentPartitionsError(UnknownTopicError):
    """The metadata lack these partitions, or their topics."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        super().__init__(f"{_WHAT} failed: there is no {format_partitions(sorted(partitions))}.")
        self.partitions = frozenset(partitions)


class _AbsentPartitions:
    """Distinguishes deleted topics, and topics created again with fewer partitions, from short gaps of metadata."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}

    def deleted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that have been missing from the metadata for some seconds."""
        now = time.monotonic()
        self._since = {tp: self._since.get(tp, now) for tp in partitions}
        return {tp for tp, since in self._since.items() if now - since >= _DELETED_SECONDS}


async def _still_open(
    client: KafkaClient, partitions: list[TopicPartition], producers: Mapping[tuple[int, int], str], deadline: Deadline
) -> dict[TopicPartition, str]:
    """Return the partitions with an open transaction of these producers, each with the transactional id."""
    found = await open_producers(client, partitions, deadline)
    return {tp: producers[key] for tp, keys in found.items() for key in keys if key in producers}


async def open_producers(
    client: KafkaClient, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, set[tuple[int, int]]]:
    """Return, by partition, (producer id, epoch) of each transaction that is open at the partition's leader.

    Raises:
        UnknownTopicError: A topic does not exist, or has fewer partitions.
        RetriableError: A partition has no leader, or the leader does not answer.
        AuthenticationError: The user has no right to describe or read a topic.
    """
    wanted = sorted(set(partitions))
    snapshot = await client.metadata({tp.topic for tp in wanted}, deadline)
    for topic, code in sorted(snapshot.refused.items()):
        raise error_for_code(code, f"{_WHAT} in topic {topic} failed")
    known = {topic.name: topic.partitions for topic in snapshot.topics.values()}
    if absent := [tp for tp in wanted if tp.partition not in known.get(tp.topic, {})]:
        raise _AbsentPartitionsError(absent)
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, number in wanted:
        leader = known[topic][number].leader
        if leader < 0:
            raise error_for_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{_WHAT} in {topic}-{number} failed")
        by_leader.setdefault(leader, {}).setdefault(topic, []).append(number)
    asked = (_ask(client, node, topics, deadline) for node, topics in by_leader.items())
    return {tp: keys for part in await asyncio.gather(*asked) for tp, keys in part.items()}


async def _ask(
    client: KafkaClient, node: int, topics: Mapping[str, list[int]], deadline: Deadline
) -> dict[TopicPartition, set[tuple[int, int]]]:
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in topics.items()
        ]
    )
    answer = await client.send(node, request, deadline)
    found = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                raise error_for_code(partition.error_code, f"{_WHAT} in {topic.name}-{tp.partition} failed")
            found[tp] = {
                (state.producer_id, state.producer_epoch)
                for state in partition.active_producers
                if state.current_txn_start_offset >= 0
            }
    return found


@dataclass(frozen=True, slots=True)
class LostMarker:
    """A committed transaction, and a partition that lacks the transaction's commit marker."""

    transaction: OpenTransaction
    partition: TopicPartition


async def lost_markers(
    client: KafkaClient,
    prefix: str,
    decided: Iterable[OpenTransaction],
    partitions: Iterable[TopicPartition],
    deadline: Deadline,
) -> list[LostMarker]:
    """Return the missing commit markers of a sink's committed transactions in these partitions.

    Args:
        client: Client of the cluster that the sink writes to.
        prefix: The sink's `transactional.id.prefix`.
        decided: The transactions of a decision that is not finished.
        partitions: The partitions to check.
        deadline: Limit for the whole call.
    """
    committed = await list_in_states(client, prefix, [COMMITTED], deadline)
    by_producer = {(one.transaction.producer_id, one.transaction.epoch): one.transaction for one in committed}
    # In the second protocol the commit has raised the epoch, or assigned a new producer id with epoch 0.
    epochs = {one.transaction.transactional_id: one.transaction.epoch for one in committed}
    by_producer |= {
        (t.producer_id, t.epoch): t
        for t in decided
        if t.second_protocol and epochs.get(t.transactional_id) in (t.epoch + 1, 0)
    }
    still_open = await open_producers(client, partitions, deadline)
    return [
        LostMarker(by_producer[key], tp)
        for tp, keys in sorted(still_open.items())
        for key in sorted(keys)
        if key in by_producer
    ]


async def write_marker(client: KafkaClient, lost: LostMarker, deadline: Deadline) -> None:
    """Write a missing marker, which needs the right to alter the cluster.

    Raises:
        KafkaGroupError: The partition's leader refuses the marker.
    """
    tp, marker = lost.partition, WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=lost.transaction.producer_id,
                # In the second protocol a marker's epoch is the transaction's epoch plus 1.
                producer_epoch=lost.transaction.epoch + lost.transaction.second_protocol,
                transaction_result=True,
                topics=[marker.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                coordinator_epoch=_NO_COORDINATOR,
            )
        ]
    )
    snapshot = await client.metadata({tp.topic}, deadline)
    leader = snapshot.topics[tp.topic].partitions[tp.partition].leader
    answer = await client.send(leader, request, deadline, _MARKERS_VERSION)
    for written in answer.markers:
        for topic in written.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    where = f"{topic.name}-{partition.partition_index}"
                    raise error_for_code(partition.error_code, f"Writing the commit marker to {where} failed")
