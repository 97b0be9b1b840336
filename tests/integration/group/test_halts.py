"""Queries of a group are paused, stopped and resumed from outside."""

import contextlib
import itertools
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.commits.side_groups import HALT
from kafka_source.errors import InvalidConfigurationError, RetriableError
from kafka_source.group.siblings import Siblings
from kafka_source.model.driver_figures import KEY, DriverFigures
from kafka_source.model.halt import HaltKind
from kafka_source.schema import source_schema
from kafka_source.source import read_task
from kafka_source.source.stream import StreamReaderSpark40
from kafkagroup import arrow
from kafkagroup.admin import AtTime, Groups, halt_of_group, pause, resume, stop, wait_until_halted
from kafkagroup.admin.halts import At
from kafkagroup.embedded import EmbeddedKafka, Security
from kafkagroup.embedded.tcp_proxy import CutConnection, Frame, TcpProxy, pass_on
from tests.apps.process import streaming_app
from tests.support.commands import Command
from tests.support.queries import Pipe, query_of
from tests.support.records import write_records, written
from tests.support.waiting import wait_until, wait_until_committed

RECORDS = 40
OFFSET_FETCH = 9
PARTITIONS = 6


class Numbers:
    """Writes numbers to a topic by turns, until it is closed: the offset o of partition p has o * PARTITIONS + p."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._ended, self.flows = topic, threading.Event(), threading.Event()
        self.flows.set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            self.flows.wait()
            if self._ended.is_set():
                return
            self._producer.produce(self._topic, str(number), partition=number % PARTITIONS)
            self._producer.poll(0)
            time.sleep(0.002)

    def hold(self, groups: Groups, group: str) -> dict[TopicPartition, int]:
        """Write nothing until `flows` is set; the ends of the partitions."""
        self.flows.clear()
        time.sleep(0.1)
        assert self._producer.flush(30) == 0
        return {one.topic_partition: one.offset for one in groups.moves(group, "latest")}

    def close(self) -> None:
        self._ended.set()
        self.flows.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


class Stream:
    """A query as Spark runs it, one trigger at a time.

    Args:
        given: The options of its source.
    """

    def __init__(self, given: dict[str, str]) -> None:
        self._given, self._reader = given, StreamReaderSpark40(given, source_schema(headers=False))
        self._is_new = True
        # Its checkpoint.
        self.log: list[dict[str, Any]] = [self._reader.initialOffset()]
        self.read: list[int] = []

    def trigger(self) -> bool:
        """Plan a batch, read and commit it; return whether there was one."""
        planned = self.plan()
        if planned:
            self.finish()
        return planned

    def read_all(self) -> None:
        """Trigger until there is nothing new."""
        while self.trigger():
            pass

    def plan(self) -> bool:
        """Plan a batch; return whether there is one."""
        if not self._is_new:
            # Spark asks for the last batch again.
            self._reader.partitions(self.log[-2], self.log[-1])
            self._is_new = True
        end = self._reader.latestOffset()
        if end == self.log[-1]:
            return False
        self.log.append(json.loads(json.dumps(end)))
        return True

    def finish(self) -> None:
        """Read and commit the batch that is planned."""
        query = query_of(self._given)
        for bundle in self._reader.partitions(self.log[-2], self.log[-1]):
            assert isinstance(bundle, read_task.TaskBundle)
            for batch in read_task.read_bundle(bundle, query):
                self.read += [int(value.as_py()) for value in batch["value"]]
        self._reader.commit(self.log[-1])

    def run(self, ended: threading.Event) -> None:
        """Trigger until that is set."""
        while not ended.is_set():
            if not self.trigger():
                time.sleep(0.05)

    @property
    def shown(self) -> HaltKind | None:
        """What its progress shows."""
        halt = DriverFigures.from_json(self.log[-1][KEY]).halt
        return None if halt is None else halt.kind

    def restart(self) -> None:
        """Start the query again from its checkpoint; what it has read is forgotten."""
        self.close()
        self._reader = StreamReaderSpark40(self._given, source_schema(headers=False))
        self._is_new, self.read = False, []

    def close(self) -> None:
        self._reader.stop()


@pytest.fixture
def name(topic, kafka) -> str:
    """A topic with 20 records in each of two partitions."""
    made: str = topic("halts", partitions=2)
    produce_evenly(kafka.bootstrap_servers, made, RECORDS)
    return made


def produce_evenly(servers: str, topic: str, count: int, partitions: int = 2) -> None:
    """Write numbers, by turns to the partitions."""
    records = ({"value": str(number), "partition": number % partitions} for number in range(count))
    write_records(servers, topic, records)


@pytest.fixture
def start(kafka, name, group, opened) -> Callable[..., Stream]:
    """Starts queries of the group; options with _ for . in their names."""

    def one(**options: object) -> Stream:
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": name,
            "kafka.group.id": group,
            "group.members": "1",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "6",
            **{key.replace("_", "."): str(value) for key, value in options.items()},
        }
        if given.get("kafka.group.protocol") != "consumer":
            given["kafka.heartbeat.interval.ms"] = "200"
        stream = Stream(given)
        opened.callback(stream.close)
        return stream

    return one


KINDS = [
    {"commit": "batch"},
    {"commit": "task", "minOffsetsPerTrigger": 6},
    {"commit": "batch", "kafka_group_protocol": "consumer"},
    # Members with the user's instance id leave, too: their session is longer than the wait.
    {"commit": "batch", "kafka_group_instance_id": "billing-1"},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_query_is_stopped_at_offsets_and_resumed(start, settings, name, group, options):
    query = start(**options)
    query.trigger()
    boundaries = {TopicPartition(name, 0): 17, TopicPartition(name, 1): 9}
    halted = stop(settings, group, boundaries)
    query.read_all()
    assert query.shown is HaltKind.STOP
    query.trigger()
    stopped = wait_until_halted(settings, group, halted.halt, timeout=30)
    assert stopped.is_done
    assert {one.partition: (one.committed, one.is_there) for one in stopped.partitions} == {0: (17, True), 1: (9, True)}
    assert len(query.read) == 26
    # It asks on, and a restart changes nothing.
    assert not query.trigger()
    query.restart()
    assert not query.trigger()
    assert not query.read
    command = Command(settings["bootstrap.servers"])
    idle = f"pid {os.getpid()}"
    assert idle in command.says("group", group)
    assert idle in command.says("healthcheck", group)
    assert idle in command.run("groups", "--lag")
    assert "still run with idle queries" in command.says("stop", group, "--yes")
    resume(settings, group)
    wait_until(lambda: query.trigger() or query.shown is None, "its progress to say that it reads")
    wait_until(lambda: not query.trigger(), "it to have read what is there")
    assert len(query.read) >= RECORDS - 26 - options.get("minOffsetsPerTrigger", 0)


def test_a_paused_query_keeps_its_place_and_reads_nothing_also_after_a_restart(start, settings, groups, name, group):
    query = start()
    query.trigger()
    before = len(query.read)
    pause(settings, group)
    query.trigger()
    assert query.shown is HaltKind.PAUSE
    assert not query.trigger()
    assert len(groups.describe(group).members) == 1
    query.restart()
    query.read_all()
    assert not query.read
    assert groups.describe(group).members
    found = halt_of_group(settings, group)
    assert found is not None
    assert found.kind is HaltKind.PAUSE
    assert "@" in found.author
    command = Command(settings["bootstrap.servers"])
    assert f"Group {group} is paused by {found.author}" in command.run("healthcheck", group, "--within", "1")
    assert f"Group {group} is paused by" in command.says("group", group)
    (row,) = (one for one in command.json("groups") if one["group"] == group)
    assert row["halt"] == str(found)
    resume(settings, group)
    assert halt_of_group(settings, group) is None
    query.read_all()
    assert len(query.read) == RECORDS - before


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_pause_is_done_when_a_batch_that_was_planned_before_is_committed(start, settings, groups, group, options):
    query = start(**options)
    query.trigger()
    assert query.plan()
    wait_until_committed(groups, group, len(query.read))
    before = groups.committed(group)
    halt = pause(settings, group, before).halt
    found = wait_until_halted(settings, group, halt, timeout=0)
    assert not found.is_done
    assert not any(one.obeys for one in found.partitions)
    says = Command(settings["bootstrap.servers"]).says("pause", group, "--yes", "--timeout", "1", code=3)
    assert "Partitions whose owners may still read on" in says
    query.finish()
    query.read_all()
    newest = halt_of_group(settings, group)
    assert newest is not None
    found = wait_until_halted(settings, group, newest, timeout=30)
    assert found.is_done
    committed = groups.committed(group)
    assert {one.partition: one.committed for one in found.partitions} == {
        tp.partition: committed[tp] for tp in committed
    }
    assert sum(committed.values()) == len(query.read) > sum(before.values())
    # The same halt holds for a later member.
    query.restart()
    query.read_all()
    assert wait_until_halted(settings, group, newest, timeout=30).is_done
    assert groups.committed(group) == committed


def test_a_query_that_joins_while_its_group_is_paused_reads_nothing(start, settings, groups, group, monkeypatch):
    # Otherwise the first query would rejoin for the second without a trigger.
    monkeypatch.setattr(Siblings, "find", lambda *_: None)
    first, second, ended = start(), start(), threading.Event()
    first.trigger()
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(2))
        stack.callback(ended.set)
        running = [threads.submit(second.run, ended)]
        wait_until(lambda: groups.describe(group).state == "PreparingRebalance", "the second query to join")
        halt = pause(settings, group).halt
        assert not wait_until_halted(settings, group, halt, timeout=0).is_done
        running.append(threads.submit(first.run, ended))
        wait_until(lambda: groups.describe(group).state == "Stable", "the first query to rejoin")
        assert wait_until_halted(settings, group, halt, timeout=120).is_done
        assert len(groups.describe(group).members) == 2
        ended.set()
        for one in running:
            one.result(60)
    assert not second.read


def test_a_trigger_that_cannot_ask_for_halts_may_pass_a_boundary_and_the_command_says_so(group):
    with TcpProxy() as proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        name, settings = kafka.create_topic("orders", 1), Settings({"bootstrap.servers": kafka.bootstrap_servers})
        produce_evenly(kafka.bootstrap_servers, name, RECORDS, partitions=1)

        def silent(frame: Frame) -> Iterable[bytes]:
            if frame.api_key == OFFSET_FETCH and HALT.of(group).encode() in frame.payload:
                raise CutConnection
            return [frame.payload]

        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "kafka.group.id": group}
        given |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6", "coordinator.timeout.ms": "3000"}
        query, later = Stream(given), Stream(given)
        try:
            query.trigger()
            halt = stop(settings, group, {TopicPartition(name, 0): 9}).halt
            proxy.on_request = silent
            query.trigger()
            assert len(query.read) == 12
            with pytest.raises(RetriableError):
                later.trigger()
            proxy.on_request = pass_on
            query.read_all()
            query.trigger()
            found = wait_until_halted(settings, group, halt, timeout=30)
            assert [(one.committed, one.boundary, one.is_there) for one in found.partitions] == [(12, 9, False)]
        finally:
            proxy.on_request = pass_on
            query.close()
            later.close()


def test_a_stopped_group_that_brokers_have_forgotten_is_resumed(start, settings, groups, group):
    query = start()
    query.trigger()
    halted = stop(settings, group)
    query.read_all()
    assert wait_until_halted(settings, group, halted.halt, timeout=30).is_done
    # As when offsets.retention.minutes are over.
    groups.delete(group)
    assert not query.trigger()
    resume(settings, group)
    assert query.trigger()


# One query of each kind is stopped above.
GROUPS = [
    (1, {"commit": "batch"}),
    (2, {"commit": "task"}),
    (3, {"commit": "task"}),
    (2, {"commit": "batch", "kafka.group.protocol": "consumer"}),
    (3, {"commit": "batch", "kafka.group.protocol": "consumer"}),
]


@pytest.mark.parametrize(("count", "options"), GROUPS, ids=str)
def test_every_partition_ends_exactly_at_its_boundary(kafka, topic, settings, groups, group, start, count, options):
    name = topic("bounds", partitions=PARTITIONS)
    numbers = Numbers(kafka.bootstrap_servers, name)
    queries = [start(subscribe=name, maxOffsetsPerTrigger=1000, **options) for _ in range(count)]
    ended = threading.Event()

    def stopped(at: At) -> dict[TopicPartition, int]:
        """Stop the group, and check that what is before its offsets was read, each once, and nothing else."""
        found = wait_until_halted(settings, group, stop(settings, group, at).halt, timeout=120)
        assert found.is_done, found
        # A query may have planned a batch with what comes behind the end.
        assert at == "end" or all(one.is_there for one in found.partitions), found
        committed = groups.committed(group)
        expected = [offset * PARTITIONS + tp.partition for tp, end in committed.items() for offset in range(end)]
        assert sorted(number for query in queries for number in query.read) == sorted(expected)
        return committed

    def all_read_on(since: dict[TopicPartition, int]) -> None:
        def is_so() -> bool:
            committed = groups.committed(group)
            return len(committed) == PARTITIONS and all(committed[tp] > since.get(tp, 0) for tp in committed)

        wait_until(is_so, "every partition to be read")

    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(count))
        running = [threads.submit(query.run, ended) for query in queries]
        stack.callback(ended.set)
        stack.callback(numbers.close)
        all_read_on({})
        wait_until(lambda: len(groups.describe(group).members) == count, "all queries in the group")
        # A query must not pass them before it is told.
        boundaries = {tp: end + 100 for tp, end in numbers.hold(groups, group).items()}
        stop(settings, group, boundaries)
        numbers.flows.set()
        assert stopped(boundaries) == boundaries
        resume(settings, group)
        all_read_on(boundaries)
        assert wait_until_halted(settings, group, pause(settings, group).halt, timeout=120).is_done
        at = round(time.time() * 1000)

        def has_later_records() -> bool:
            last = {one.topic_partition: one.offset for one in groups.moves(group, "latest")}
            return all(one.offset < last[one.topic_partition] for one in groups.moves(group, AtTime(at)))

        wait_until(has_later_records, "a later record in each partition")
        # A stop replaces the pause.
        of_time = stopped(AtTime(at))
        first = groups.moves(group, AtTime(at))
        assert of_time == {one.topic_partition: one.offset for one in first}
        resume(settings, group)
        all_read_on(of_time)
        at_end = stopped("end")
        resume(settings, group)
        all_read_on(at_end)
        stopped("now")
        ended.set()
        for one in running:
            one.result(60)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_sink_commits_the_boundaries_of_its_query(kafka, topic, settings, groups, name, group, protocol):
    sink = topic("copied")
    options = {"maxOffsetsPerTrigger": 6, "kafka_group_protocol": protocol}
    with closing(Pipe(kafka.bootstrap_servers, name, sink, group, group, **options)) as pipe:
        pipe.whole_batch()
        boundaries = {TopicPartition(name, 0): 17, TopicPartition(name, 1): 9}
        stop(settings, group, boundaries)
        while pipe.whole_batch() >= 0:
            pass
        assert pipe.stream.has_stopped
        assert groups.committed(group) == boundaries
    # A batch that was killed before its decision is not in the group, so the query comes back for it.
    resume(settings, group)
    pipe = pipe.restarted(maxOffsetsPerTrigger=6)
    pipe.batch()
    later = {TopicPartition(name, 0): 20, TopicPartition(name, 1): 16}
    stop(settings, group, later)
    pipe.close()
    with closing(pipe.restarted()) as pipe:
        pipe.replay()
        pipe.decide()
        while pipe.whole_batch() >= 0:
            pass
        wait_until_committed(groups, group, later)


def test_a_partition_that_another_query_takes_over_ends_at_its_boundary(kafka, topic, settings, groups, group, start):
    name = topic("taken", partitions=PARTITIONS)
    with contextlib.ExitStack() as stack:
        numbers = Numbers(kafka.bootstrap_servers, name)
        stack.callback(numbers.close)
        first, second = (start(subscribe=name) for _ in range(2))
        threads = stack.enter_context(ThreadPoolExecutor(2))
        ends = [threading.Event(), threading.Event()]
        running = [threads.submit(query.run, end) for query, end in zip((first, second), ends, strict=True)]
        for end in ends:
            stack.callback(end.set)
        wait_until(lambda: len(groups.committed(group)) == PARTITIONS, "every partition to be read")
        wait_until(lambda: len(groups.describe(group).members) == 2, "both queries in the group")
        boundaries = {tp: end + 300 for tp, end in numbers.hold(groups, group).items()}
        halt = stop(settings, group, boundaries).halt
        ends[0].set()
        running[0].result(60)
        first.close()
        assert any(groups.committed(group)[tp] < boundary for tp, boundary in boundaries.items())
        numbers.flows.set()
        found = wait_until_halted(settings, group, halt, timeout=120)
        assert found.is_done, found
        assert groups.committed(group) == boundaries
        ends[1].set()
        running[1].result(60)


def test_a_boundary_that_is_passed_or_has_no_offset_yet_is_refused(start, settings, groups, name, group):
    query = start()
    query.read_all()
    wait_until_committed(groups, group, RECORDS)
    with pytest.raises(InvalidConfigurationError, match=f"{name}-0 is at 20, beyond 5"):
        stop(settings, group, {TopicPartition(name, 0): 5})
    command = Command(settings["bootstrap.servers"])
    assert "is in the future" in command.refused("stop", group, "--at", "2100-01-01T00:00:00Z", "--yes")
    assert halt_of_group(settings, group) is None


def test_the_command_stops_applications_and_a_later_one_waits(kafka, name, group, groups, tmp_path):
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": group,
        "group.members": 1,
        "startingOffsets": "earliest",
        "kafka.heartbeat.interval.ms": 300,
        "maxOffsetsPerTrigger": 20,
    }
    command = Command(kafka.bootstrap_servers)
    folders = [tmp_path / app for app in "ab"]
    with contextlib.ExitStack() as stack:
        apps = [stack.enter_context(streaming_app(folder, options)) for folder in folders]
        wait_until(lambda: groups.states().get(group), "an application in the group")
        wait_until(lambda: len(groups.describe(group).members) == 2, "both applications in the group")
        wait_until(lambda: len(groups.committed(group)) == 2, "the starting offsets")
        produce_evenly(kafka.bootstrap_servers, name, 200)
        assert "Nothing was changed" in command.says("stop", group, "--at", "end")
        rows = command.json("stop", group, "--at", "end", "--yes", "--timeout", "120")
        assert {(row["partition"], row["committed"], row["member"], row["is_there"]) for row in rows} == {
            (0, 120, None, True),
            (1, 120, None, True),
        }
        for app in apps:
            app.wait_for("stopped", 240)
        assert Counter(number for folder in folders for number in written(folder / "out")) == Counter(
            [*range(RECORDS), *range(200)]
        )
        produce_evenly(kafka.bootstrap_servers, name, RECORDS)
        later = stack.enter_context(streaming_app(folders[0], options, name="later"))
        reason = f"group={group} stopped by"
        wait_until(lambda: reason in later.log.read_text(), "the later application to say why it waits")
        assert not groups.describe(group).members
        command.run("resume", group, "--yes")
        later.wait_for("batch", 240)
        later.stop()


def test_the_iterator_of_a_program_ends_at_the_boundaries(kafka, settings, groups, name, group):
    given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "heartbeat.interval.ms": "200"}
    boundaries = {TopicPartition(name, 0): 17, TopicPartition(name, 1): 9}
    groups.create(group, dict.fromkeys(boundaries, 0))
    halt = stop(settings, group, boundaries).halt
    with arrow.consume(name, given, columns="value string") as numbers:
        assert sum(batch.num_rows for batch in numbers) == 26
        assert [*numbers] == []
        numbers.commit()
        assert len(groups.describe(group).members) == 1
    assert wait_until_halted(settings, group, halt, timeout=30).is_done
    assert groups.committed(group) == boundaries
    resume(settings, group)
    with arrow.consume(name, given, columns="value string", max_wait=2) as numbers:
        assert sum(batch.num_rows for batch in numbers) == RECORDS - 26


@pytest.mark.long
def test_a_halt_outlives_the_time_for_which_brokers_keep_offsets():
    # The least that brokers take is a minute.
    config = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}
    with EmbeddedKafka(config=config) as kafka:
        name, settings = kafka.create_topic("kept", 2), Settings({"bootstrap.servers": kafka.bootstrap_servers})
        groups = Groups(settings)
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
        queries = {halted: Stream({**given, "kafka.group.id": halted}) for halted in ("paused", "stopped")}
        try:
            produce_evenly(kafka.bootstrap_servers, name, RECORDS)
            for query in queries.values():
                query.trigger()
            halts = [pause(settings, "paused").halt, stop(settings, "stopped").halt]
            for halt, (group, query) in zip(halts, queries.items(), strict=True):
                query.read_all()
                assert wait_until_halted(settings, group, halt, timeout=30).is_done
            produce_evenly(kafka.bootstrap_servers, name, RECORDS)
            wait_until(lambda: not groups.committed("stopped"), "the offsets of a group to expire", 180)
            time.sleep(10)
            assert sum(groups.committed("paused").values()) == RECORDS
            for halt, (group, query) in zip(halts, queries.items(), strict=True):
                assert halt_of_group(settings, group) == halt
                assert not query.trigger()
                resume(settings, group)
                while len(query.read) < 2 * RECORDS:
                    query.trigger()
                assert Counter(query.read) == Counter(dict.fromkeys(range(RECORDS), 2))
        finally:
            for query in queries.values():
                query.close()


def test_a_query_that_may_not_look_says_so_once_and_reads(caplog):
    security = Security("SASL_PLAINTEXT", {"alice": "correct-horse"}, acls=True)
    with EmbeddedKafka(security=security) as kafka, caplog.at_level(logging.INFO):
        kafka.create_topic("orders", 2)
        produce_evenly(kafka.internal_bootstrap_servers, "orders", RECORDS)
        kafka.allow("alice", "READ", "DESCRIBE", name="orders")
        kafka.allow("alice", "READ", resource="group", name="billing")
        login = {f"kafka.{name}": value for name, value in kafka.java_client_config("alice", "PLAIN").items()}
        with closing(
            Stream({**login, "subscribe": "orders", "kafka.group.id": "billing", "startingOffsets": "earliest"})
        ) as query:
            query.trigger()
            settings = Settings({"bootstrap.servers": kafka.internal_bootstrap_servers})
            halt = stop(settings, "billing").halt
            produce_evenly(kafka.internal_bootstrap_servers, "orders", RECORDS)
            wait_until(lambda: query.trigger() or len(query.read) == 2 * RECORDS, "the query to read on")
            assert wait_until_halted(settings, "billing", halt, timeout=0).members
    assert caplog.text.count("group=billing: this query cannot be paused or stopped from outside: ") == 1
