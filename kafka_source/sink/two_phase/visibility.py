"""Whether committed records can be seen: the commit markers have to be in the partitions.

A commit is answered when the coordinator has noted it; the markers follow. A coordinator that is killed in between
sends them after its restart, but a lone broker has been seen to skip them: the last stable offset then stays below the
records for ever, although the transaction counts as committed. The partitions' leaders are asked for the transaction
itself, since the last stable offset may be held back by another producer's as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from assignors.model import TopicPartition
from kafka_source.error_codes import LEADER_NOT_AVAILABLE
from kafka_source.errors import AuthenticationError, NotVisibleError, RetriableError, error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages import DescribeProducersRequest
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.transactions.open_transaction import OpenTransaction

log = logging.getLogger(__name__)

_PAUSES = RetryPolicy(0.002, 0.5)
_WHAT = "Looking for the commit marker"


async def wait_until_visible(
    client: KafkaClient,
    batch: int,
    transactions: Sequence[OpenTransaction],
    partitions: Iterable[TopicPartition],
    deadline: Deadline,
) -> None:
    """Return when none of the partitions holds one of the transactions open.

    Args:
        client: Of the cluster.
        batch: Its number, for the error.
        transactions: Those that are committed.
        partitions: All that they have written to.
        deadline: For all of it.

    Raises:
        NotVisibleError: One has not until the deadline; names it.
    """
    left = sorted(set(partitions))
    producers = {(t.producer_id, t.epoch): t.transactional_id for t in transactions}
    missing: dict[TopicPartition, str] = {}
    problem: RetriableError | None = None
    for pause in _PAUSES.pauses():
        if not left:
            return
        try:
            missing = await _still_open(client, left, producers, deadline)
            left = sorted(missing)
        except AuthenticationError as error:
            log.warning("whether batch %d can be seen is not known, for this user may not look: %s", batch, error)
            return
        except RetriableError as error:
            # The leader may be on its way back: what it lost shows when it is there.
            problem = error
        if not left:
            return
        if deadline.left <= pause:
            raise NotVisibleError(batch=batch, partitions=left, missing=missing, seconds=deadline.seconds) from problem
        await asyncio.sleep(pause)


async def _still_open(
    client: KafkaClient, partitions: list[TopicPartition], producers: Mapping[tuple[int, int], str], deadline: Deadline
) -> dict[TopicPartition, str]:
    """The partitions in which one of the producers' transactions is open, with its transactional id."""
    found = await open_producers(client, partitions, deadline)
    return {tp: producers[key] for tp, keys in found.items() for key in keys if key in producers}


async def open_producers(
    client: KafkaClient, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, set[tuple[int, int]]]:
    """(producer id, epoch) of the transactions that the partitions' leaders hold open.

    Raises:
        RetriableError: A leader is not there.
        AuthenticationError: This user may not read a topic.
    """
    wanted = sorted(set(partitions))
    snapshot = await client.metadata({tp.topic for tp in wanted}, deadline)
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, number in wanted:
        metadata = snapshot.topics.get(topic)
        known = None if metadata is None else metadata.partitions.get(number)
        if known is None or known.leader < 0:
            raise error_for_code(LEADER_NOT_AVAILABLE, f"{_WHAT} in {topic}-{number} failed")
        by_leader.setdefault(known.leader, {}).setdefault(topic, []).append(number)
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
