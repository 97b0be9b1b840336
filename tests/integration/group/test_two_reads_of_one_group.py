"""Several reads of one group in one Spark driver: in no order do they wait for each other."""

import functools
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from kafka_source.group.siblings import Siblings
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.queries import query_of
from tests.support.records import produce, stream, to_files, written
from tests.support.waiting import wait_until

SECONDS = 150
"""Far below `kafka.max.poll.interval.ms`, after which the group goes on without a read that keeps it waiting."""

SETTINGS = {
    "kafka_session_timeout_ms": 10_000,
    "kafka_heartbeat_interval_ms": 300,
    "startingOffsets": "earliest",
    "group_members": 2,
}


@pytest.fixture
def start(spark, kafka, tmp_path, request):
    """Starts a query over the union of reads in one group."""

    def begin(group, *topics, **options):
        reads = [stream(spark, kafka, topic, kafka_group_id=group, **SETTINGS, **options) for topic in topics]
        union = functools.reduce(lambda left, right: left.union(right), reads)
        query = to_files(union, tmp_path).start()
        request.addfinalizer(query.stop)
        return query

    return begin


def test_a_union_of_two_topics_goes_on_through_every_rebalance(kafka, topic, group, start, tmp_path):
    servers, (x, y) = kafka.bootstrap_servers, (topic("x", partitions=4), topic("y", partitions=2))
    produce(servers, x, 100)
    produce(servers, y, 100, first=1000)
    query = start(group, x, y)
    ours = functools.partial(written, tmp_path / "out")
    wait_until(lambda: len(ours()) >= 200, "the first records of both topics", SECONDS)
    produce(servers, x, 50, first=100)
    produce(servers, y, 50, first=1100)
    wait_until(lambda: len(ours()) >= 300, "another micro-batch", SECONDS)
    with closing(ConfluentConsumer(servers, group, x)) as other:
        wait_until(lambda: bool(other.assigned), "a partition for another consumer of the group", SECONDS)
        produce(servers, x, 50, first=150)
        produce(servers, y, 50, first=1150)
        wait_until(lambda: len(ours()) + len(other.records) >= 400, "records for all members", SECONDS)
    produce(servers, x, 50, first=200)
    produce(servers, y, 50, first=1200)
    wait_until(lambda: len(ours()) + len(other.records) >= 500, "records after the consumer has left", SECONDS)
    query.stop()
    assert sorted([*ours(), *(value for _, _, value in other.records)]) == [*range(250), *range(1000, 1250)]


@pytest.mark.parametrize(
    "options",
    [
        {"commit": "task"},
        pytest.param({"kafka_partition_assignment_strategy": "cooperative-sticky"}, marks=pytest.mark.long),
    ],
)
def test_three_reads_restart_in_the_middle_of_a_batch(kafka, topic, group, start, tmp_path, options):
    servers, names = kafka.bootstrap_servers, [topic(f"many-{n}", partitions=2) for n in range(3)]
    for n, name in enumerate(names):
        produce(servers, name, 100, first=1000 * n)
    query = start(group, *names, **options)
    wait_until(lambda: len(written(tmp_path / "out")) == 300, "the first records", SECONDS)
    # The rows are there before Spark notes the end of their batch.
    noted = tmp_path / "checkpoint" / "commits"
    wait_until(lambda: any(noted.glob("[0-9]*")), "the end of a batch", SECONDS)
    query.stop()
    # As if the driver had died before Spark noted the end of its last batch: it is run again.
    last = max(noted.glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    for n, name in enumerate(names):
        produce(servers, name, 100, first=1000 * n + 100)
    query = start(group, *names, **options)
    wait_until(lambda: len(written(tmp_path / "out")) >= 600, "all records after a restart", SECONDS)
    query.stop()
    assert written(tmp_path / "out") == [1000 * n + value for n in range(3) for value in range(200)]


def test_nothing_is_lost_where_another_client_leads_with_an_eager_strategy(kafka, topic, group, start, tmp_path):
    servers, (x, y) = kafka.bootstrap_servers, (topic("lead-x", partitions=4), topic("lead-y", partitions=4))
    with closing(ConfluentConsumer(servers, group, x)) as leading:
        wait_until(lambda: bool(leading.assigned), "the first member", SECONDS)
        query = start(group, x, y)
        ours = functools.partial(written, tmp_path / "out")

        def read():
            return {*ours(), *(value for _, _, value in leading.records)}

        produce(servers, x, 100)
        produce(servers, y, 100, first=1000)
        wait_until(lambda: len(read()) == 200, "all records", SECONDS)
        with closing(ConfluentConsumer(servers, group, y)) as second:
            wait_until(lambda: bool(second.assigned), "the second consumer", SECONDS)
            produce(servers, x, 100, first=100)
            produce(servers, y, 100, first=1100)
            wait_until(
                lambda: len(read() | {value for _, _, value in second.records}) == 400, "all records of all", SECONDS
            )
        query.stop()


# ---- without Spark, call by call


@pytest.fixture
def read(kafka, group):
    """Makes a read of the group as a stream's reader process does."""
    made: list[MicroBatches] = []

    def make(topic, **options):
        # Reads of one application may spell the address of their cluster differently.
        host = "localhost" if made else "127.0.0.1"
        given = {
            "kafka.bootstrap.servers": f"{host}:{kafka.port(1)}",
            **({} if topic is None else {"subscribe": topic}),
            "kafka.group.id": group,
            **SETTINGS,
            **options,
        }
        siblings = Siblings.find(group, os.getppid())
        made.append(MicroBatches(query_of(given), siblings))
        return made[-1]

    yield make
    for batches in made:
        batches.close()


def turn(reads, ends, read_by):
    """One trigger of Spark's: every read in turn; returns nothing."""
    before = list(ends)
    for n, batches in enumerate(reads):
        ends[n] = batches.next(before[n], limited=True)
    for n, end in enumerate(ends):
        if end is not before[n]:
            reads[n].tasks(before[n], end)
            read_by[n] += sum(max(0, span.end - span.start) for span in end.partitions.values())


@pytest.mark.parametrize("commit", ["batch", "task"])
def test_another_query_of_the_driver_joins_while_tasks_read(kafka, topic, group, read, commit):
    name = topic("tasks", partitions=4, records=400)
    first, second = read(name, commit=commit), read(name, commit=commit)
    end = first.next(StreamOffset(), limited=True)
    bundles = first.tasks(StreamOffset(), end)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.next, StreamOffset(), limited=True)
        if commit == "batch":
            # The tasks begin in a generation that has ended.
            joining.result(SECONDS)
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "kafka.group.id": group}
        query = query_of({**given, "commit": commit})
        assert sum(b.num_rows for bundle in bundles for b in read_task.read_bundle(bundle, query)) == 400
        other = joining.result(SECONDS)
    assert all(span.start == span.end for span in other.partitions.values())
    ends, read_by = [end, other], [400, 0]
    wait_until(lambda: turn([first, second], ends, read_by) or settled(first, second), "the group to settle", SECONDS)
    produce(kafka.bootstrap_servers, name, 400, first=400)
    wait_until(lambda: turn([first, second], ends, read_by) or sum(read_by) >= 800, "all records", SECONDS)
    assert sum(read_by) == 800


def settled(*reads):
    """Whether nothing of these reads is to be rebalanced."""
    return all(batches._owner._membership.rebalance_needed() is None for batches in reads)


def test_a_wait_in_a_join_says_for_whom_it_waits(topic, group, members, read, caplog):
    caplog.set_level(logging.INFO, "kafka_source.group")
    name = topic("waits", partitions=2)
    busy = members.make(name, slots=1, app="busy")
    busy.join(30)
    waiting = read(name)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(waiting.next, StreamOffset(), limited=True)
        wait_until(
            lambda: any(f"{group}-busy-0" in line for line in lines(caplog, "join")), "a line about the wait", SECONDS
        )
        busy.rejoin(30)
        joining.result(30)


def test_a_second_read_of_the_same_topic_in_a_driver_is_told_once(topic, group, read, caplog):
    caplog.set_level(logging.INFO, "kafka_source.group")
    name, other = topic("told", partitions=2), topic("told-too", partitions=1)
    reads = [read(name), read(f"{name},{other}")]
    for batches in [*reads, *reads]:
        batches.next(StreamOffset(), limited=True)
    (told,) = (r for r in caplog.records if r.getMessage().startswith("Two reads "))
    assert told.levelno == logging.WARNING
    assert f"group {group} in this driver share the partitions of {name}:" in told.getMessage()
    assert "group.membership=false" in told.getMessage()


def test_reads_of_different_topics_are_no_cause_for_a_warning(topic, read, caplog):
    caplog.set_level(logging.INFO, "kafka_source.group")
    x, y = topic("joined-x", partitions=2), topic("joined-y", partitions=2)
    reads = [read(x), read(y)]
    for batches in [*reads, *reads]:
        batches.next(StreamOffset(), limited=True)
    (told,) = (r for r in caplog.records if r.getMessage().startswith("Two reads "))
    assert told.levelno == logging.INFO
    assert f"{y} here and {x} there" in told.getMessage()
    # A read that does share is told all the same, also if its topics are only known by its pattern.
    pattern = f"^{x}$"
    read(None, subscribePattern=pattern).next(StreamOffset(), limited=True)
    said = [r for r in caplog.records if r.getMessage().startswith("Two reads ")]
    assert [r.levelno for r in said] == [logging.INFO, logging.WARNING]
    assert f"share the partitions of {x}:" in said[-1].getMessage()


def test_the_place_of_a_read_that_died_is_cleared_away(group, read, topic):
    siblings = Siblings.find(group, os.getppid())
    assert siblings is not None
    # 2^22 is the highest process id that Linux gives.
    dead = siblings._directory / f"{siblings._family}-{1 << 23}-1.sock"
    dead.touch()
    started = time.monotonic()
    read(topic("cleared", partitions=1)).next(StreamOffset(), limited=True)
    assert not dead.exists()
    assert time.monotonic() - started < SECONDS


def lines(caplog, word):
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith(f"{word} ")]
