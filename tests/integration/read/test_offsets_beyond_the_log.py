"""A group's offset, or a checkpoint's, is beyond the end of the log: no restart skips a record that comes later.

An unclean election does this, a reset with a typing error, or a topic that was created again on old brokers.
"""

import json
import logging

import pytest

from assignors import TopicPartition
from kafkagroup import pinned
from tests.support.queries import Job
from tests.support.records import produce, reader
from tests.support.waiting import wait_until_committed

BEYOND = 140
KINDS = ["batch", "task", "assign"]


@pytest.fixture
def name(topic) -> str:
    made: str = topic("beyond", records=50)
    return made


@pytest.fixture
def tp(name) -> TopicPartition:
    return TopicPartition(name, 0)


@pytest.fixture
def job(kafka, name, group):
    """A query of one kind, with `failOnDataLoss=false`."""

    def one(kind: str, **options: object) -> Job:
        what = {"assign": json.dumps({name: [0]})} if kind == "assign" else {"subscribe": name}
        commit = "batch" if kind == "assign" else kind
        return Job(kafka, group, commit=commit, **{"failOnDataLoss": "false", **what, **options})

    return one


@pytest.fixture
def more(kafka, name):
    """Writes 50 records more."""
    count = 50

    def write() -> None:
        nonlocal count
        produce(kafka.bootstrap_servers, name, 50, first=count)
        count += 50

    return write


def wait_for_committed(groups, group: str, expected: dict[TopicPartition, int]) -> None:
    """A transaction's offsets are visible a moment after its end: the coordinator writes the markers then."""
    wait_until_committed(groups, group, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_run_skips_what_comes_after_the_group_was_found_beyond_the_end(groups, group, tp, job, more, kind, caplog):
    groups.rewind(group, {tp: BEYOND}, checkpoints_follow=False)
    query = job(kind)
    with caplog.at_level(logging.WARNING):
        assert query.run() == []
    assert [r.getMessage() for r in caplog.records if "stepped back" in r.getMessage()] == [
        f"stepped back {tp.topic}-0 from={BEYOND} to=50"
    ]
    for end in (100, 150, 200):
        wait_for_committed(groups, group, {tp: end - 50})
        more()
        assert query.run() == list(range(end - 50, end))
    wait_for_committed(groups, group, {tp: 200})


def test_batches_that_commit_set_the_group_back_and_read_what_comes_later(spark, kafka, groups, group, tp, more):
    groups.rewind(group, {tp: BEYOND}, checkpoints_follow=False)
    options = {"kafka_group_id": group, "failOnDataLoss": "false", "group_membership": "true"}
    assert reader(spark, kafka, tp.topic, commit="task", **options).load().count() == 0
    wait_for_committed(groups, group, {tp: 50})
    groups.rewind(group, {tp: BEYOND}, checkpoints_follow=False)
    given = {key.replace("_", "."): value for key, value in options.items()}
    given |= {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": tp.topic}
    with pinned(spark, given) as frame:
        assert frame.count() == 0
    wait_for_committed(groups, group, {tp: 50})
    more()
    more()
    assert reader(spark, kafka, tp.topic, commit="task", **options).load().count() == 100
