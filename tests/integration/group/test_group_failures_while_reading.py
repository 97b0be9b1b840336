"""Coordinators and leaders of a group are lost while records flow: three nodes, and every record is accounted for."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter

import pytest

from kafka_source.client_config import Settings
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import CutConnection, TcpProxy, pass_on
from tests.support.memberships import Memberships
from tests.support.mixed_group import Application, Trickle
from tests.support.waiting import wait_until

PARTITIONS = 6
JOIN_GROUP, SYNC_GROUP = 11, 14

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def nodes():
    """Three nodes, each behind a proxy, and the proxies by node."""
    with contextlib.ExitStack() as stack:
        proxies = {node: stack.enter_context(TcpProxy()) for node in (1, 2, 3)}
        ports = {node: proxy.port for node, proxy in proxies.items()}
        kafka = stack.enter_context(EmbeddedKafka(nodes=3, advertised_ports=ports))
        for node, proxy in proxies.items():
            proxy.connect_to(kafka.port(node))
        yield kafka, proxies


class Readers:
    """Applications of one group that read one topic while records are written to it."""

    def __init__(self, kafka, group):
        self.topic = kafka.create_topic(f"flow-{group}", PARTITIONS, 3)
        self.group, self.applications = group, []
        self._servers = kafka.bootstrap_servers
        self._members = Memberships(Settings({"bootstrap.servers": self._servers}), group)
        self.trickle = Trickle(kafka.internal_bootstrap_servers, self.topic)

    def start(self, app, slots, **settings):
        made = self._members.make(self.topic, app=app, slots=slots, **{"session_timeout_ms": 20_000, **settings})
        self.applications.append(Application(app, made, self._servers))
        return self.applications[-1]

    def settled(self, *applications):
        """Waits until these have all partitions in one generation, each partition once."""

        def whole():
            for worker in (self.trickle, *self.applications):
                worker.check()
            if not all(a.assignments for a in applications):
                return False
            held = sorted(n for a in applications for share in a.shares() for n in share)
            return held == list(range(PARTITIONS)) and len({a.assignments[-1].generation for a in applications}) == 1

        wait_until(whole, f"all partitions for {[a.name for a in applications]}", 150)

    def times_read(self):
        """How often each record was read, once all are."""
        self.trickle.close()

        def read():
            for application in self.applications:
                application.check()
            return Counter(value for application in self.applications for value in application.values)

        wait_until(lambda: len(read()) == self.trickle.count, "all records to be read", 90)
        assert sorted(read()) == list(range(self.trickle.count))
        return read()

    def close(self):
        with contextlib.ExitStack() as stack:
            for thing in (self._members, *self.applications, self.trickle):
                stack.callback(thing.close)


@pytest.fixture
def readers(nodes, group):
    kafka, proxies = nodes
    made = Readers(kafka, group)
    yield made
    for proxy in proxies.values():
        proxy.on_request = proxy.on_response = pass_on
    made.close()


class KillAt:
    """Hooks for all proxies: the node that first sees a frame of an API, in this direction, dies before it passes."""

    def __init__(self, kafka, proxies, api_key, direction):
        self.node = None
        self._kafka, self._api_key, self._lock = kafka, api_key, threading.Lock()
        for node, proxy in proxies.items():
            setattr(proxy, f"on_{direction}", lambda frame, node=node: self._heed(node, frame))

    def _heed(self, node, frame):
        with self._lock:
            if frame.api_key == self._api_key and self.node is None:
                self._kafka.kill(node)
                self.node = node
                raise CutConnection
        return [frame.payload]


STEPS = {
    "before all have joined": (JOIN_GROUP, "request"),
    "before they hear that they have": (JOIN_GROUP, "response"),
    "before the leader's assignment is kept": (SYNC_GROUP, "request"),
    "before they hear of it": (SYNC_GROUP, "response"),
}


QUICK = {"before they hear that they have"}


@pytest.mark.parametrize(
    "step", [step if step in QUICK else pytest.param(step, marks=pytest.mark.long) for step in STEPS]
)
def test_the_coordinator_dies_in_a_rebalance_and_no_record_is_lost_or_read_twice(nodes, readers, step):
    kafka, proxies = nodes
    first = readers.start("a", 2)
    readers.settled(first)
    kill = KillAt(kafka, proxies, *STEPS[step])
    try:
        second = readers.start("b", 1)
        wait_until(lambda: kill.node, "the coordinator's end")
        readers.settled(first, second)
    finally:
        if kill.node is not None:
            kafka.restart(kill.node)
            kafka.wait_ready()
    assert set(readers.times_read().values()) == {1}
    assert second.values


def test_the_leader_dies_and_another_leads(readers):
    first = readers.start("a", 2, session_timeout_ms=6_000)
    readers.settled(first)
    assert first.assignments[-1].leading
    second = readers.start("b", 1, session_timeout_ms=6_000)
    readers.settled(first, second)
    assert not second.assignments[-1].leading
    first.crash()
    readers.settled(second)
    assert second.assignments[-1].leading
    times = readers.times_read()
    # What the dead one had read and not committed, and nothing else, was read again.
    assert first.unfinished
    assert {value for value, count in times.items() if count > 1} == set(first.unfinished)
    assert max(times.values()) == 2
