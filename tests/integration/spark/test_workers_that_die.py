"""A Python worker is killed while it reads: the next attempt of its task reads the same, and nobody rebalances."""

import multiprocessing
from contextlib import closing
from multiprocessing.connection import Connection

import pytest

from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query, TaskBundle
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.queries import query_of
from tests.support.records import produce
from tests.support.waiting import wait_until, wait_until_committed

COUNT, MORE = 200, 50


def read_and_wait(bundle: TaskBundle, query: Query, parent: Connection) -> None:
    """Read as a task does, and wait after each Arrow batch until told to go on."""
    for batch in read_task.read_bundle(bundle, query):
        parent.send(batch.num_rows)
        parent.recv()


def planned(planner: MicroBatches, before: StreamOffset) -> tuple[StreamOffset, TaskBundle]:
    """The next micro-batch of a planner with one slot, and its only task."""
    after = wait_until(lambda: (end := planner.next(before, limited=True)) is not before and end, "something to read")
    assert isinstance(after, StreamOffset)
    (bundle,) = planner.tasks(before, after)
    return after, bundle


def numbers(bundle: TaskBundle, query: Query) -> list[int]:
    return sorted(int(value.as_py()) for batch in read_task.read_bundle(bundle, query) for value in batch["value"])


@pytest.mark.parametrize("commit", ["batch", "task"])
def test_f1_a_worker_that_is_killed_while_it_reads_costs_an_attempt_and_no_rebalance(
    kafka: EmbeddedKafka, groups: Groups, group: str, commit: str
) -> None:
    name = kafka.create_topic(f"{group}-killed", 4)
    produce(kafka.bootstrap_servers, name, COUNT)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": group,
        "group.members": "1",
        "startingOffsets": "earliest",
        "commit": commit,
        "batch.rows": "10",
    }
    query = query_of(given)
    planner = MicroBatches(query)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with closing(planner):
        end, bundle = planned(planner, StreamOffset())
        worker = context.Process(target=read_and_wait, args=(bundle, query, theirs))
        worker.start()
        try:
            assert ours.poll(60), "it reads nothing"
            assert 0 < ours.recv() < COUNT
        finally:
            worker.kill()
            worker.join(60)
        assert sum(groups.committed(group).values()) == 0
        assert numbers(bundle, query) == list(range(COUNT))
        wait_until_committed(groups, group, COUNT if commit == "task" else 0)
        produce(kafka.bootstrap_servers, name, MORE, first=COUNT)
        after, bundle = planned(planner, end)
        assert numbers(bundle, query) == list(range(COUNT, COUNT + MORE))
        assert after.generation == end.generation
