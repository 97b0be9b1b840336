"""A driver that is frozen in the middle of a micro-batch, for longer than its session, alone in its group."""

import multiprocessing
import os
import signal
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.plan import Admission
from kafkagroup.admin import Groups
from tests.support.memberships import leave, members_of
from tests.support.queries import Pipe, query_of
from tests.support.rewinding import Streams
from tests.support.two_phase import visible
from tests.support.waiting import wait_until, wait_until_committed

COUNT = 100
PARTITIONS = 4
# Not so short that a busy machine ends a session.
OPTIONS: dict[str, object] = {"kafka_session_timeout_ms": 3000}


def freeze(parent: Connection) -> None:
    parent.send("in the middle of a batch")
    os.kill(os.getpid(), signal.SIGSTOP)


def copies(servers, source, sink, group, on_lost, commit, parent):
    """From Kafka to Kafka, with `commit=sink`; frozen before the decision."""
    query = Pipe(servers, source, sink, group, f"{group}-copy", None, **OPTIONS, group_on_lost=on_lost)
    query.batch()
    freeze(parent)
    query.decide()
    assert query.batch() == -1
    query.close()


def reads(servers, source, _, group, on_lost, commit, parent):
    """To somewhere else; frozen before the tasks begin, or with `task` between the first records and the commits."""
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": source,
        "kafka.group.id": group,
        "group.members": "2",
        "kafka.heartbeat.interval.ms": "200",
        "startingOffsets": "earliest",
        "commit": commit,
        "group.on.lost": on_lost,
        **OPTIONS,
    }
    query = query_of(given)
    stream = MicroBatches(query)
    start = StreamOffset()
    end = stream.next(start, limited=True)
    tasks = [read_task.read_bundle(bundle, query) for bundle in stream.tasks(start, end)]
    begun = [next(task) for task in tasks] if commit == "task" else []
    freeze(parent)
    rows = sum(batch.num_rows for batch in begun) + sum(batch.num_rows for task in tasks for batch in task)
    assert rows == COUNT
    assert stream.next(end, limited=True) is end
    stream.close()


def run(driver, arguments, parent):
    try:
        driver(*arguments, parent)
    except FencedError as error:
        parent.send(str(error))
        # It does not leave its group.
        os.kill(os.getpid(), signal.SIGKILL)
    parent.send("it has gone on")


def committed(kafka, group) -> int:
    return sum(Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).committed(group).values())


@pytest.mark.parametrize(("driver", "commit"), [(copies, "sink"), (reads, "batch"), (reads, "task")])
@pytest.mark.parametrize("on_lost", ["rejoin", "stop"])
def test_it_joins_again_and_the_batch_is_committed_unless_it_is_told_to_stop(
    kafka, topic, group, driver, commit, on_lost
):
    source, sink = topic("frozen", partitions=PARTITIONS, records=COUNT), topic("thawed")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (kafka.bootstrap_servers, source, sink, group, on_lost, commit)
    process = context.Process(target=run, args=(driver, arguments, theirs))
    process.start()
    try:
        assert ours.poll(60), "it has made no batch"
        assert ours.recv() == "in the middle of a batch"
        wait_until(lambda: members_of(kafka, group) == [], "the sessions of its members to end")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)
        assert ours.poll(60), "it does not go on"
        said = ours.recv()
        process.join(30)
    finally:
        process.kill()
    if on_lost == "stop":
        assert "member" in said
        assert committed(kafka, group) == 0
        return
    assert said == "it has gone on"
    wait_until_committed(Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})), group, COUNT)
    if driver is copies:
        assert sorted(map(int, visible(kafka.bootstrap_servers, sink, COUNT))) == list(range(COUNT))


def test_a_run_to_an_end_that_loses_its_place_while_it_plans_plans_again(kafka, settings, topic, group, monkeypatch):
    source = topic("lost", partitions=PARTITIONS, records=COUNT)
    stream = Streams(kafka, source, group).planner(group_members=1)
    ends = Admission.ends

    def removed(admission: Admission, *arguments: Any, **more: Any) -> dict[TopicPartition, int]:
        monkeypatch.setattr(Admission, "ends", ends)
        # What becomes of a driver that stands still here.
        member = stream._owner.credentials(0)
        assert member is not None
        leave(settings, member)
        wait_until(lambda: not stream._owner.still_owned(), "the driver to notice")
        return ends(admission, *arguments, **more)

    monkeypatch.setattr(Admission, "ends", removed)
    with closing(stream):
        stream.stop_at_latest()
        end = stream.next(StreamOffset(), limited=True)
        assert sum(end.ends.values()) == COUNT
        stream.tasks(StreamOffset(), end)
        assert stream.next(end, limited=True) is end
        wait_until_committed(Groups(settings), group, COUNT)
