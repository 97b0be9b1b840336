"""The assignor `redundant` in streams: standbys take over when the primary's application dies, or all copies emit."""

import itertools
from collections import Counter
from contextlib import closing
from functools import partial

import pytest

from kafka_source.errors import RetriableError, UnknownGroupError
from kafka_source.source import read_task
from tests.apps.process import streaming_app
from tests.support.mixed_group import Trickle
from tests.support.queries import Job, query_of
from tests.support.records import produce, running, stream, to_files, written, written_records, written_rows
from tests.support.waiting import wait_until, wait_until_committed

PARTITIONS = 4
EVERYTHING = list(range(PARTITIONS))


@pytest.fixture
def name(topic):
    return topic("redundant", partitions=PARTITIONS)


def options(kafka, name, **more):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "kafka.partition.assignment.strategy": "redundant",
        "group.members": 1,
        "kafka.session.timeout.ms": 6_000,
        "kafka.heartbeat.interval.ms": 300,
        "startingOffsets": "earliest",
        **more,
    }


def start(spark, kafka, name, folder, **more):
    """A query in the tests' own Spark."""
    given = {key.replace(".", "_"): value for key, value in options(kafka, name, **more).items()}
    del given["kafka_bootstrap_servers"], given["subscribe"]
    return to_files(stream(spark, kafka, name, **given), folder).start()


def copies(groups, name):
    """The partitions of each member, once the group is stable."""
    try:
        found = groups.describe(f"{name}-group")
    except (RetriableError, UnknownGroupError):
        return None  # The first group of a broker waits for its coordinator, and then for its first member.
    return [[tp.partition for tp in m.partitions] for m in found.members] if found.state == "Stable" else None


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_standby_takes_over_when_the_primarys_application_dies(spark, kafka, name, groups, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    with closing(Trickle(kafka.bootstrap_servers, name)) as trickle, running(start(spark, kafka, name, here)):
        with streaming_app(there, options(kafka, name)) as app:
            wait_until(lambda: copies(groups, name) == [EVERYTHING, EVERYTHING], "a copy of everything for both", 200)
            wait_until(lambda: written(there / "out"), "both to read")
            read = Counter((p, o) for p, o, _ in written_records(here / "out") + written_records(there / "out"))
            assert max(read.values()) == 1
            app.kill()
        committed = {tp.partition: offset for tp, offset in groups.committed(f"{name}-group").items()}
        wait_until(lambda: copies(groups, name) == [EVERYTHING], "the end of the dead one's session")
        trickle.close()
        theirs = {value for _, _, value in written_records(there / "out")}
        wait_until(lambda: len(theirs | set(written(here / "out"))) == trickle.count, "the standby to read all")
    both = itertools.chain(written_records(here / "out"), written_records(there / "out"))
    times = Counter((p, o) for p, o, _ in both)
    assert len(times) == trickle.count
    # Only what the dead application had written and not yet committed was read again.
    assert [place for place, count in times.items() if count > 1 and place[1] < committed[place[0]]] == []
    assert max(times.values()) <= 2


def rows(folder):
    """(value, replica) of all rows."""
    return sorted((int(value), replica) for value, replica in written_rows(folder / "out", "value", "replica"))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_all_copies_emit_rows_with_their_number(spark, kafka, name, groups, tmp_path):
    more = {"redundant.emit": "all"}
    produce(kafka.bootstrap_servers, name, 100)
    first = start(spark, kafka, name, tmp_path / "first", **more)
    second = None
    try:
        wait_until(lambda: len(written(tmp_path / "first" / "out")) == 100, "the first one to read", 200)
        second = start(spark, kafka, name, tmp_path / "second", **more)
        wait_until(lambda: len(written(tmp_path / "second" / "out")) == 100, "the second one to read it all too")
        wait_until(lambda: copies(groups, name) == [EVERYTHING, EVERYTHING], "a copy of everything for both")
        produce(kafka.bootstrap_servers, name, 100, first=100)
        for folder in ("first", "second"):
            wait_until(partial(lambda f: len(written(tmp_path / f / "out")) == 200, folder), f"the {folder} to read on")
        second.stop()
        wait_until(lambda: copies(groups, name) == [EVERYTHING], "the second one to leave")
        produce(kafka.bootstrap_servers, name, 100, first=200)
        wait_until(lambda: len(written(tmp_path / "first" / "out")) == 300, "the first one to read on alone")
        wait_until_committed(groups, f"{name}-group", 300)
    finally:
        first.stop()
        if second is not None:
            second.stop()
    ours, theirs = rows(tmp_path / "first"), rows(tmp_path / "second")
    assert [value for value, _ in ours] == list(range(300))
    assert [value for value, _ in theirs] == list(range(200))
    assert {replica for value, replica in ours if not 100 <= value < 200} == {0}
    both = [(value, {replica, dict(theirs)[value]}) for value, replica in ours if 100 <= value < 200]
    assert all(replicas == {0, 1} for _, replicas in both)
    assert {replica for value, replica in ours if 100 <= value < 200} == {0, 1}


@pytest.mark.parametrize("emit", ["primary", "all"])
def test_tasks_that_commit_at_the_same_time_do_not_fence_each_other(kafka, name, groups, emit):
    produce(kafka.bootstrap_servers, name, 100)
    more = {"group.members": 2, "commit": "task", "redundant.emit": emit, "min.records.per.task": 1}
    given = options(kafka, name, **more)
    job, query = Job(kafka, f"{name}-group", **given), query_of(given)
    with closing(job.planner()) as planner:
        end = planner.next(job.offsets[-1], limited=True)
        # Each slot has a copy of each partition.
        reading = [read_task.read_bundle(bundle, query) for bundle in planner.tasks(job.offsets[-1], end)]
        assert len(reading) == 2
        first = [next(batches) for batches in reading]
        rest = [batch for batches in reading for batch in batches]
        assert sum(batch.num_rows for batch in (*first, *rest)) == (100 if emit == "primary" else 200)
        wait_until_committed(groups, f"{name}-group", 100)
