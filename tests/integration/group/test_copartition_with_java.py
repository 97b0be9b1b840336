"""Two Spark applications and a Java consumer share two topics; the same partitions of both are always at one member."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafkagroup.admin import Groups
from tests.apps.process import App, java_consumer, streaming_app
from tests.support.mixed_group import Worker
from tests.support.records import written_rows
from tests.support.waiting import wait_until

PARTITIONS = 6
SLOTS = 2
ROUND = 60

Shares = Mapping[str, Mapping[str, frozenset[int]]]
"""The partitions of each topic that a member has, by member id."""


class Watch(Worker):
    """Asks the coordinator about a group all the time, and keeps each assignment that it saw."""

    def __init__(self, groups: Groups, group: str) -> None:
        self._groups, self._group = groups, group
        self.seen: list[tuple[str, Shares]] = []
        super().__init__()

    def _run(self) -> None:
        while not self._closing.wait(0.05):
            found = self.look()
            if found is not None and found not in self.seen[-1:]:
                self.seen.append(found)

    def look(self) -> tuple[str, Shares] | None:
        """The assignor and who has what; None unless the group is stable."""
        try:
            described = self._groups.describe(self._group)
        except KafkaGroupError:
            # There is no group yet, or its coordinator is being made.
            return None
        if described.state != "Stable":
            return None
        shares: dict[str, dict[str, frozenset[int]]] = {}
        for member in described.members:
            of_topic: dict[str, set[int]] = defaultdict(set)
            for tp in member.partitions:
                of_topic[tp.topic].add(tp.partition)
            shares[member.member_id] = {topic: frozenset(numbers) for topic, numbers in of_topic.items()}
        return described.assignor, shares

    def settled(self, members: int) -> str:
        """Wait until so many members have all partitions; return the assignor."""
        assignor = ""

        def whole() -> bool:
            nonlocal assignor
            self.check()
            found = self.look()
            if found is None or len(found[1]) != members:
                return False
            assignor = found[0]
            return sum(len(numbers) for share in found[1].values() for numbers in share.values()) == 2 * PARTITIONS

        wait_until(whole, f"{members} members with all partitions")
        return assignor


class Pairs:
    """Writes pairs of records with one key, one to each topic: the numbers `n` and `-n`."""

    def __init__(self, servers: str, topics: tuple[str, str]) -> None:
        self._producer = Producer({"bootstrap.servers": servers})
        self._topics, self._numbers = topics, itertools.count(1)

    def write(self) -> set[int]:
        numbers = set(itertools.islice(self._numbers, ROUND))
        for number in numbers:
            for topic, value in zip(self._topics, (number, -number), strict=True):
                self._producer.produce(topic, key=str(number), value=str(value))
        assert self._producer.flush(60) == 0
        return numbers


def read_by_spark(folder: Path) -> set[int]:
    return {int(value) for (value,) in written_rows(folder / "out", "value")}


def read_by_java(app: App) -> set[int]:
    return {int(line.split()[3]) for line in app.lines() if line.startswith("record ") and len(line.split()) == 4}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_keys_of_both_topics_stay_at_one_member_while_applications_come_and_go(kafka, topic, tmp_path):
    left, right = topic("left", partitions=PARTITIONS), topic("right", partitions=PARTITIONS)
    servers, group = kafka.bootstrap_servers, f"{left}-group"
    groups = Groups(Settings({"bootstrap.servers": servers}))
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": f"{left},{right}",
        "kafka.group.id": group,
        "kafka.partition.assignment.strategy": "copartition,range",
        "group.members": SLOTS,
        "startingOffsets": "earliest",
        "kafka.session.timeout.ms": 10_000,
        "kafka.heartbeat.interval.ms": 300,
    }
    pairs, folders = Pairs(servers, (left, right)), {name: tmp_path / name for name in "ab"}
    watch, running = Watch(groups, group), dict[str, App]()

    def read() -> dict[str, set[int]]:
        found = {name: read_by_spark(folder) for name, folder in folders.items()}
        return found | ({"java": read_by_java(running["java"])} if "java" in running else {})

    def pairs_are_together() -> dict[str, set[int]]:
        """Write a round of pairs while nobody comes or goes; each pair is read, and at one application."""
        numbers = pairs.write()
        both = {*numbers, *(-number for number in numbers)}
        wait_until(lambda: both <= set().union(*read().values()), "the round to be read")
        shares = {name: values & both for name, values in read().items()}
        assert sum(map(len, shares.values())) == len(both), "read twice"
        assert all(-value in values for values in shares.values() for value in values)
        return shares

    try:
        running["a"] = streaming_app(folders["a"], options)
        assert watch.settled(SLOTS) == "copartition"
        assert pairs_are_together()["a"]
        running["b"] = streaming_app(folders["b"], options)
        assert watch.settled(2 * SLOTS) == "copartition"
        assert all(pairs_are_together()[name] for name in "ab")
        (tmp_path / "java").mkdir()
        running["java"] = java_consumer(tmp_path / "java", servers, group, f"{left},{right}")
        assert watch.settled(2 * SLOTS + 1) == "range"
        assert all(pairs_are_together()[name] for name in ("a", "b", "java"))
        running.pop("a").kill()
        assert watch.settled(SLOTS + 1) == "range"
        assert all(pairs_are_together()[name] for name in ("b", "java"))
        running["a"] = streaming_app(folders["a"], options, name="again")
        assert watch.settled(2 * SLOTS + 1) == "range"
        assert all(pairs_are_together()[name] for name in ("a", "b", "java"))
        running.pop("java").stop()
        assert watch.settled(2 * SLOTS) == "copartition"
        assert all(pairs_are_together()[name] for name in "ab")
    finally:
        watch.close()
        for app in running.values():
            app.kill()
    apart = [
        (assignor, shares)
        for assignor, shares in watch.seen
        if any(share.get(left) != share.get(right) for share in shares.values())
    ]
    assert len(watch.seen) >= 6
    assert apart == []
