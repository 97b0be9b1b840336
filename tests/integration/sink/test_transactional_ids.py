"""How many transactional ids the reads of a group leave behind: brokers keep each for seven days."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from kafka_source.client_config import Settings
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.kafka_client.messages.transaction import ListTransactionsRequest
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from kafkagroup.admin import Groups
from tests.support.queries import query_of
from tests.support.records import produce
from tests.support.waiting import wait_until, wait_until_committed

RUNS = 4
PARTITIONS = 4


def query(kafka, name, group, commit):
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": group,
        "group.members": "2",
        "kafka.heartbeat.interval.ms": "200",
        "startingOffsets": "earliest",
        "commit": commit,
    }
    return query_of(given)


def batch(reading: Query, stream: MicroBatches, start: StreamOffset) -> StreamOffset:
    """Plan a batch and read it, if there is something to read."""
    end = stream.next(start, limited=True)
    if end is not start:
        for bundle in stream.tasks(start, end):
            for _ in read_task.read_bundle(bundle, reading):
                pass
    return end


def ids_of(kafka, group) -> set[str]:
    """The transactional ids that brokers have for a group."""
    client, deadline = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers})), Deadline(30)

    async def listed() -> set[str]:
        found = set()
        for broker in (await client.metadata((), deadline)).brokers:
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            answer = await client.send(broker, request, deadline, 0)
            found |= {t.transactional_id for t in answer.transaction_states}
        return found

    return {one for one in client.run(listed()) if one.startswith(group)}


def records_committed(kafka, group) -> int:
    return sum(Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).committed(group).values())


# With `commit=task` one for each slot, and the driver's for where reading starts.
@pytest.mark.parametrize(("commit", "expected"), [("batch", 1), ("task", 3)])
def test_a_job_that_starts_often_leaves_as_many_transactional_ids_as_one_run(
    kafka, topic, groups, group, commit, expected
):
    name = topic("often", partitions=PARTITIONS)
    reading = query(kafka, name, group, commit)
    for run in range(1, RUNS + 1):
        produce(kafka.bootstrap_servers, name, 40)
        with closing(MicroBatches(reading)) as stream:
            # Without a checkpoint: it starts at the group's offsets.
            stream.next(batch(reading, stream, StreamOffset()), limited=True)
        wait_until_committed(groups, group, 40 * run)
    assert len(ids_of(kafka, group)) == expected


def test_queries_of_one_group_that_run_at_once_do_not_fence_each_other(kafka, topic, group):
    name = topic("at-once", partitions=PARTITIONS)
    reading = query(kafka, name, group, "batch")
    produce(kafka.bootstrap_servers, name, 40)
    first, second = MicroBatches(reading), MicroBatches(reading)
    ends = {stream: StreamOffset() for stream in (first, second)}
    with closing(first), closing(second):
        # The first one has all partitions, then gives some of them up.
        ends[first] = batch(reading, first, ends[first])
        with_join(first, second, ends, reading)
        for written in range(1, 4):
            produce(kafka.bootstrap_servers, name, 40)

            def read_by_both(count: int = 40 * (written + 1)) -> bool:
                for stream in ends:
                    ends[stream] = batch(reading, stream, ends[stream])
                return records_committed(kafka, group) == count

            wait_until(read_by_both, "all records to be committed")
        assert {stream.figures(with_latest=False).failed_commits for stream in ends} == {0}
        # The first one leaves, and the second one goes on with its partitions.
        first.close()
        produce(kafka.bootstrap_servers, name, 40)
        del ends[first]
        wait_until(lambda: read_by_both(200), "the second one to have read the rest")
        assert second.figures(with_latest=False).failed_commits == 0
    # The first partition of each: one of them was the first one's alone.
    assert len(ids_of(kafka, group)) <= PARTITIONS


def with_join(first, second, ends, reading):
    """Let the second one join, for which the first one rejoins."""
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.join)

        def joined() -> bool:
            ends[first] = batch(reading, first, ends[first])
            return joining.done()

        wait_until(joined, "the second one to join")
        joining.result()
