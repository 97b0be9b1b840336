"""Queries of a group are paused, stopped and resumed from outside."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from assignors import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.driver_figures import KEY, DriverFigures
from kafka_source.model.halt import HaltKind
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.source import read_task
from kafka_source.source.read_task import Query
from kafka_source.source.stream import StreamReaderSpark40
from kafkagroup.admin import halt_of_group, pause, resume, stop, wait_until_stopped
from tests.apps.process import streaming_app
from tests.support.commands import Command
from tests.support.records import written
from tests.support.waiting import wait_until

RECORDS = 40


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
        if not self._is_new:
            # Spark asks for the last batch again.
            self._reader.partitions(self.log[-2], self.log[-1])
            self._is_new = True
        end = self._reader.latestOffset()
        if end == self.log[-1]:
            return False
        self.log.append(json.loads(json.dumps(end)))
        query = Query.of(self._given, source_schema(headers=False), Where.STREAM)
        for bundle in self._reader.partitions(self.log[-2], self.log[-1]):
            assert isinstance(bundle, read_task.TaskBundle)
            for batch in read_task.read_bundle(bundle, query):
                self.read += [int(value.as_py()) for value in batch["value"]]
        self._reader.commit(self.log[-1])
        return True

    @property
    def shown(self) -> HaltKind | None:
        """What its progress shows."""
        halt = DriverFigures.from_json(self.log[-1][KEY]).halt
        return None if halt is None else halt.kind

    def restart(self) -> None:
        """Start the query again from its checkpoint; what it has read is forgotten."""
        self.close()
        self._reader, self._is_new, self.read = (
            StreamReaderSpark40(self._given, source_schema(headers=False)),
            False,
            [],
        )

    def close(self) -> None:
        self._reader.stop()


@pytest.fixture
def name(topic, kafka) -> str:
    """A topic with 20 records in each of two partitions."""
    made: str = topic("halts", partitions=2)
    produce_evenly(kafka, made, RECORDS)
    return made


def produce_evenly(kafka, topic: str, count: int) -> None:
    """Write numbers, by turns to both partitions."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0


@pytest.fixture
def start(kafka, name, group) -> Iterator[Callable[..., Stream]]:
    """Starts queries of the group; options with _ for . in their names."""
    made: list[Stream] = []

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
        made.append(Stream(given))
        return made[-1]

    yield one
    for stream in made:
        stream.close()


KINDS = [
    {"commit": "batch"},
    {"commit": "task"},
    {"commit": "batch", "kafka_group_protocol": "consumer"},
    {"commit": "batch", "group_membership": "true", "kafka_partition_assignment_strategy": "range"},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_query_is_stopped_at_offsets_and_resumed(start, settings, groups, name, group, options):
    query = start(**options)
    query.trigger()
    boundaries = {TopicPartition(name, 0): 17, TopicPartition(name, 1): 9}
    halted = stop(settings, group, boundaries)
    while query.trigger():
        pass
    assert query.shown is HaltKind.STOP
    query.trigger()
    stopped = wait_until_stopped(settings, group, halted.halt, timeout=30)
    assert stopped.has_stopped
    assert {one.partition: (one.committed, one.is_there) for one in stopped.partitions} == {0: (17, True), 1: (9, True)}
    assert len(query.read) == 26
    # It asks on, and a restart changes nothing.
    assert not query.trigger()
    query.restart()
    assert not query.trigger()
    assert not query.read
    resume(settings, group)
    while query.trigger():
        pass
    assert len(query.read) == RECORDS - 26
    assert query.shown is None


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
    while query.trigger():
        pass
    assert not query.read
    assert groups.describe(group).members
    found = halt_of_group(settings, group)
    assert found is not None
    assert found.kind is HaltKind.PAUSE
    assert "@" in found.author
    resume(settings, group)
    assert halt_of_group(settings, group) is None
    while query.trigger():
        pass
    assert len(query.read) == RECORDS - before


def test_a_boundary_that_is_passed_is_refused_with_the_position(start, settings, name, group):
    query = start()
    while query.trigger():
        pass
    with pytest.raises(InvalidConfigurationError, match=f"{name}-0 is at 20, behind 5"):
        stop(settings, group, {TopicPartition(name, 0): 5})
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
        produce_evenly(kafka, name, 200)
        assert "Nothing was changed" in command.says("stop", group, "--at", "end")
        rows = command.json("stop", group, "--at", "end", "--yes", "--timeout", "120")
        assert {(row["partition"], row["committed"], row["member"], row["is_there"]) for row in rows} == {
            (0, 120, None, True),
            (1, 120, None, True),
        }
        for app in apps:
            app.wait_for("stopped", 60)
        assert Counter(number for folder in folders for number in written(folder / "out")) == Counter(
            [*range(RECORDS), *range(200)]
        )
        produce_evenly(kafka, name, RECORDS)
        later = stack.enter_context(streaming_app(folders[0], options, name="later"))
        reason = f"group={group} stopped by"
        wait_until(lambda: reason in later.log.read_text(), "the later application to say why it waits")
        assert not groups.describe(group).members
        command.run("resume", group, "--yes")
        later.wait_for("batch", 60)
        later.stop()
