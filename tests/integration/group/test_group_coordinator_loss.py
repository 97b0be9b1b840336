"""The coordinator is lost at each step of a rebalance, and while the group is stable."""

import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import RetriableError, UnknownGroupError, UnknownOutcomeError
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.model import BatchInFlight, GroupSettings, Topics
from kafka_source.group.requests import commit_offsets
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafkagroup.admin import Groups, rewind_running_group
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import CutConnection, Frame, TcpProxy, pass_on
from tests.support.memberships import Memberships, everything, held, leave, members_of, rejoin_until_joined
from tests.support.records import produce
from tests.support.rewinding import Streams
from tests.support.waiting import wait_until

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT, OFFSET_FETCH = 11, 12, 13, 8, 9
DESCRIBE_GROUPS, DELETE_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 42, 69
COORDINATOR_LOAD_IN_PROGRESS = (14).to_bytes(2, "big")


@pytest.fixture(scope="module")
def behind():
    """A broker behind a proxy."""
    with TcpProxy() as proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        kafka.create_topic("orders", 6)
        yield kafka, proxy


@pytest.fixture
def proxied(behind, group):
    kafka, proxy = behind
    members = Memberships(Settings({"bootstrap.servers": kafka.bootstrap_servers}), group)
    yield members, proxy
    proxy.on_request = proxy.on_response = pass_on
    members.close()


def once(api_key):
    """A hook that cuts the connection of the first frame of an API, and lets all others pass."""
    cut: list[Frame] = []

    def hook(frame):
        if frame.api_key == api_key and not cut:
            cut.append(frame)
            raise CutConnection
        return [frame.payload]

    return hook, cut


def always(api_key):
    """A hook that cuts the connection of each frame of an API."""

    def hook(frame):
        if frame.api_key == api_key:
            raise CutConnection
        return [frame.payload]

    return hook


def test_a_rejoin_that_failed_is_due_again(proxied):
    members, proxy = proxied
    membership = members.make("orders", slots=1)
    membership.join(30)
    proxy.on_request = always(JOIN_GROUP)
    with pytest.raises(RetriableError):
        membership.rejoin(3)
    proxy.on_request = pass_on
    # Else the query would read on with the partitions of a generation in which it is no member.
    assert membership.rebalance_needed()
    membership.rejoin(30)
    assert held(membership) == everything("orders", 6)
    assert membership.rebalance_needed() is None


def test_a_member_that_was_suspended_notices_its_removal_although_its_connection_has_ended(proxied, monkeypatch):
    members, proxy = proxied
    membership = members.make("orders", slots=1, heartbeat_interval_ms=15_000)
    membership.join(30)
    leave(members.config, membership.credentials[0])
    proxy.on_request, cut = once(HEARTBEAT)
    assert membership.lost() is None
    monkeypatch.setattr(membership, "_session_may_have_ended", lambda: True)
    assert membership.lost()
    assert cut


def test_a_batch_is_read_although_its_slots_cannot_leave(behind, proxied, group, caplog):
    kafka, proxy = behind
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "orders", "kafka.group.id": group}
    produce(kafka.bootstrap_servers, "orders", 10)
    proxy.on_request = always(LEAVE_GROUP)
    assert BatchReader({**given, "commit": "none"}, source_schema(headers=False)).partitions()
    assert "stay until their sessions end" in caplog.text


def test_a_rejoin_does_not_wait_for_the_names_in_its_log_line(proxied, caplog):
    members, proxy = proxied
    caplog.set_level(logging.INFO, "kafka_source.group.rebalance_log")
    leading = members.make("orders", slots=1, app="a")
    leading.join(30)
    following = members.make("orders", slots=1, app="b")
    with ThreadPoolExecutor(1) as pool:
        rejoin_until_joined(leading, pool.submit(following.join, 60))
        following.take_rebalances()
        answer = threading.Event()

        def hold(frame):
            if frame.api_key == DESCRIBE_GROUPS:
                assert answer.wait(60)
            return [frame.payload]

        def told():
            lines = [record.getMessage() for record in caplog.records]
            return [line for line in lines if " leading=False " in line and f"generation={generation} " in line]

        proxy.on_response = hold
        again = pool.submit(leading.rejoin, 60)
        wait_until(following.rebalance_needed, "the rebalance")
        generation = following.rejoin(60).generation
        again.result()
        assert told() == [], "the coordinator has not answered yet"
        (record,) = following.take_rebalances()
        assert (record.generation, record.members) == (generation, None)
        answer.set()
        (line,) = wait_until(told, "the line")
    # Whether it knows who was there before depends on when the description of that generation came.
    assert re.search(
        "members=2 came=(none|unknown) went=(none|unknown) slots=1 partitions=3 gained=none lost=none", line
    )
    assert following.take_rebalances() == (), "it was taken before"


def test_heartbeats_do_not_wait_for_a_description_that_is_late(proxied, caplog):
    members, proxy = proxied
    caplog.set_level(logging.INFO, "kafka_source.group.classic.background")
    looks, answer, beats = threading.Event(), threading.Event(), []

    def hold(frame):
        if frame.api_key == DESCRIBE_GROUPS:
            looks.set()
            assert answer.wait(60)
        elif looks.is_set() and frame.api_key == HEARTBEAT:
            beats.append(frame)
        return [frame.payload]

    members.make("orders", slots=1, metadata_max_age_ms=500, heartbeat_interval_ms=1_000).join(30)
    proxy.on_response = hold
    wait_until(lambda: len(beats) > 3, "heartbeats")
    answer.set()
    assert "heartbeat" not in caplog.text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_may_not_be_described_is_read_with_one_warning(proxied, caplog, protocol):
    members, proxy = proxied
    refused = []

    def refuse(frame):
        if frame.api_key not in (DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE):
            return [frame.payload]
        refused.append(frame)
        # The error code of the only group: GROUP_AUTHORIZATION_FAILED.
        return [frame.payload[:10] + b"\x00\x1e" + frame.payload[12:]]

    proxy.on_response = refuse
    membership = members.make("orders", slots=1, rebalance_timeout_ms=1_000)
    if protocol == "consumer":
        settings = GroupSettings(members.group, metadata_max_age_ms=300, rebalance_timeout_ms=1_000)
        membership = ConsumerMembership(members.config, settings, Topics(("orders",)))
    with closing(membership):
        membership.join(30)
        with membership.rebalance_paused():
            membership.set_batch_in_flight(BatchInFlight({TopicPartition("orders", 0): 5}))
        seen = len(refused)
        # It looks for unread partitions, and whether others wait after max.poll.interval.ms.
        wait_until(lambda: len(refused) > seen + 8, "looks at the group")
        assert held(membership) == everything("orders", 6)
        assert membership.lost() is None
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "may not describe the group" in warning
    assert "READ on the group" in warning


# ---- three nodes


def coordinator_of(kafka, group):
    client = kafka.admin()
    return client.describe_consumer_groups([group])[group].result(timeout=10).coordinator.id


@pytest.fixture
def on_three(cluster, group, opened):
    return opened.enter_context(closing(Memberships(Settings({"bootstrap.servers": cluster.bootstrap_servers}), group)))


@pytest.mark.parametrize("end", ["kill", pytest.param("pause", marks=pytest.mark.long)])
def test_the_coordinators_node_dies_and_the_group_goes_on_without_a_rebalance(cluster, on_three, group, end):
    name = cluster.create_topic(f"orders-{end}", 6, 3)
    membership = on_three.make(name, session_timeout_ms=45_000)
    joined = membership.join(60)
    membership.commit({s.credentials.slot: dict.fromkeys(s.partitions, 1) for s in joined.slots})
    node = coordinator_of(cluster, group)
    getattr(cluster, end)(node)
    try:
        membership.commit({s.credentials.slot: dict.fromkeys(s.partitions, 2) for s in joined.slots}, 90)
        committed = membership.committed_entries(everything(name, 6))
        assert [entry.offset for entry in committed.values()] == [2] * 6
        assert coordinator_of(cluster, group) != node
        assert membership.rebalance_needed() is None
        assert membership.assignment.generation == joined.generation
        assert len(members_of(cluster, group)) == 3
        again = membership.rejoin(60)
        assert again.generation > joined.generation
        assert held(membership) == everything(name, 6)
    finally:
        cluster.resume(node) if end == "pause" else cluster.restart(node)
        cluster.wait_ready()


@pytest.fixture
def read_at_once(behind, group):
    """A running group of one partition whose tasks do not run, so that every commit after the start is a rewind's."""
    kafka, proxy = behind
    name = kafka.create_topic(f"{group}-rewound", 1)
    produce(kafka.bootstrap_servers, name, 10)
    streams = Streams(kafka, name, group)
    try:
        runner = streams.run(commit="task", group_members=1)
        wait_until(lambda: runner.read, "the records to be read")
        yield Settings({"bootstrap.servers": kafka.bootstrap_servers}), proxy, TopicPartition(name, 0), runner
    finally:
        proxy.on_request = proxy.on_response = pass_on
        streams.close()


def answered_while_it_loads(commits, fetches):
    """A hook: the answer to the first commit is lost; later ones say that the coordinator loads the group.

    Args:
        commits: Collects the answers to commits.
        fetches: Whether offsets can be fetched after the first commit.
    """

    def hook(frame):
        if frame.api_key == OFFSET_FETCH and commits and not fetches:
            raise CutConnection
        if frame.api_key != OFFSET_COMMIT:
            return [frame.payload]
        commits.append(frame)
        if len(commits) == 1:
            raise CutConnection
        # The error code of the only partition is before three empty lists of tagged fields.
        return [frame.payload[:-5] + COORDINATOR_LOAD_IN_PROGRESS + frame.payload[-3:]]

    return hook


def test_a_rewind_is_done_although_only_the_lost_answer_to_its_commit_said_so(read_at_once, group):
    settings, proxy, partition, runner = read_at_once
    seen = len(runner.read)
    commits: list[Frame] = []
    proxy.on_response = answered_while_it_loads(commits, fetches=True)
    done = rewind_running_group(settings, group, {partition: 2}, timeout=60)
    assert done.offsets == {partition: 2}
    assert len(commits) > 1
    assert Groups(settings).committed(group) == {partition: 2}
    wait_until(lambda: (2, 10) in [(r.start, r.end) for r in runner.read[seen:]], "the records to be read again")


def test_nobody_says_that_a_rewind_was_not_done_if_the_offsets_cannot_be_compared(read_at_once, group):
    settings, proxy, partition, _ = read_at_once
    commits: list[Frame] = []
    proxy.on_response = answered_while_it_loads(commits, fetches=False)
    with pytest.raises(UnknownOutcomeError, match="Check its committed offsets"):
        rewind_running_group(settings, group, {partition: 2}, timeout=60)
    proxy.on_response = pass_on
    assert len(commits) > 1
    assert Groups(settings).committed(group) == {partition: 2}


def test_a_commit_whose_answer_was_lost_stays_unknown_while_the_new_coordinator_loads(proxied, group):
    members, proxy = proxied
    commits: list[Frame] = []
    nobody = SlotCredentials.without_membership(group)
    proxy.on_response = answered_while_it_loads(commits, fetches=True)
    with closing(KafkaClient(members.config)) as client, pytest.raises(UnknownOutcomeError):
        client.run(commit_offsets(client, nobody, {TopicPartition("orders", 0): 3}, Deadline(10)))
    assert len(commits) > 1
    proxy.on_response = pass_on
    assert Groups(members.config).committed(group) == {TopicPartition("orders", 0): 3}


@pytest.mark.parametrize("side", ["on_request", "on_response"])
def test_a_group_is_deleted_although_the_first_try_is_lost(proxied, group, side):
    members, proxy = proxied
    groups = Groups(members.config)
    groups.create(group, {TopicPartition("orders", 0): 3})
    hook, cut = once(DELETE_GROUPS)
    setattr(proxy, side, hook)
    groups.delete(group)
    assert cut
    assert group not in groups.states()
    with pytest.raises(UnknownGroupError):
        groups.delete(group)
