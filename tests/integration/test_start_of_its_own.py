"""A query with `group.start=starting` reads all from its start on, whatever its group has committed before."""

from __future__ import annotations

import json

import pytest

from assignors import TopicPartition
from tests.jobs import Job
from tests.support import produce

COUNT = 100
COMMITTED = 60


@pytest.fixture
def tp(kafka, topic, groups, group) -> TopicPartition:
    name = topic("own-start", partitions=1)
    produce(kafka.bootstrap_servers, name, COUNT)
    groups.create(group, {TopicPartition(name, 0): COMMITTED})
    return TopicPartition(name, 0)


@pytest.fixture
def job(kafka, group, tp):
    def one(kind: str) -> Job:
        what = {"assign": json.dumps({tp.topic: [0]})} if kind.startswith("assign") else {"subscribe": tp.topic}
        commit = {"assign": "batch", "assign none": "none"}.get(kind, kind)
        return Job(kafka, group, commit=commit, group_start="starting", maxOffsetsPerTrigger=20, **what)

    return one


def one_batch(query: Job) -> list[int]:
    """Start the query, read one batch, and stop."""
    planner = query.planner()
    try:
        query.offsets.append(planner.next(query.offsets[-1], limited=True))
        return query.read(planner, *query.offsets[-2:])
    finally:
        planner.close()


@pytest.mark.parametrize("kind", ["batch", "task", "none", "assign", "assign none"])
def test_a_restart_before_the_committed_offset_is_reached_leaves_nothing_out(groups, group, tp, job, kind):
    query = job(kind)
    found = one_batch(query)
    assert found == list(range(20))
    found += one_batch(query)
    assert sorted(found) == list(range(40))
    assert sorted(found + query.run()) == list(range(COUNT))
    assert groups.committed(group) == {tp: COMMITTED if kind.endswith("none") else COUNT}


@pytest.mark.parametrize("kind", ["batch", "none"])
def test_what_others_commit_later_counts(groups, group, tp, job, kind):
    query = job(kind)
    assert one_batch(query) == list(range(20))
    groups.rewind(group, {tp: 90}, checkpoints_follow=False)
    assert query.run() == list(range(90, COUNT))
