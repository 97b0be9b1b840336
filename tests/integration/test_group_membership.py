"""Slots of a query as members of a group on a real broker."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from assignors import TopicPartition, load
from confluent_kafka import Producer
from kafka_source.client_config import Settings
from kafka_source.embedded import EmbeddedKafka
from kafka_source.errors import FencedError
from kafka_source.group import GroupMembership, GroupSettings, SlotSession, Topics

_numbers = itertools.count()
Join = Callable[..., GroupMembership]


@pytest.fixture
def config(kafka: EmbeddedKafka) -> Settings:
    return Settings({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def group() -> str:
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def members(config: Settings) -> Iterator[Join]:
    made: list[GroupMembership] = []

    def make(group: str, *topics: str, slots: int = 3, strategies: tuple[str, ...] = ("range",), **more: object):
        pattern = more.pop("pattern", None)
        more = {"instance_id_prefix": f"{group}-app", "heartbeat_interval_ms": 200, **more}
        settings = GroupSettings(group, slots=slots, **more)
        made.append(GroupMembership(config, settings, Topics(topics, pattern), [load(s) for s in strategies]))
        return made[-1]

    yield make
    for membership in made:
        membership.close()


def partitions_of(membership: GroupMembership) -> list[TopicPartition]:
    return sorted(tp for slot in membership.assignment.slots for tp in slot.partitions)


def everything(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in range(partitions)]


def wait_for(condition: Callable[[], object], what: str, seconds: float = 30) -> object:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {seconds:g} s")


def test_all_slots_join_and_share_all_partitions(members: Join, topic: Callable[..., str], group: str) -> None:
    orders = topic("orders", partitions=8)
    membership = members(group, orders)
    joined = membership.join(30)
    assert partitions_of(membership) == everything(orders, 8)
    assert [len(slot.partitions) for slot in joined.slots] == [3, 3, 2]
    assert joined.leading
    assert joined.assignor == "range"
    assert {slot.credentials.generation for slot in joined.slots} == {joined.generation}
    assert [slot.credentials.instance_id for slot in joined.slots] == [f"{group}-app-{k}" for k in range(3)]
    assert membership.rebalance_needed() is None


def test_offsets_are_committed_and_read_back(members: Join, topic: Callable[..., str], group: str) -> None:
    orders = topic("orders", partitions=4)
    membership = members(group, orders, slots=2)
    joined = membership.join(30)
    assert membership.committed(everything(orders, 4)) == dict.fromkeys(everything(orders, 4))
    membership.commit({s.credentials.slot: dict.fromkeys(s.partitions, 7) for s in joined.slots})
    assert membership.committed(everything(orders, 4)) == dict.fromkeys(everything(orders, 4), 7)


def test_a_restart_within_the_session_changes_nothing(members: Join, topic: Callable[..., str], group: str) -> None:
    orders = topic("orders", partitions=6)
    first = members(group, orders, leave_on_close=False)
    before = first.join(30)
    first.close()
    second = members(group, orders, leave_on_close=False)
    after = second.join(30)
    assert after.generation == before.generation
    assert [s.partitions for s in after.slots] == [s.partitions for s in before.slots]


def test_a_second_application_with_the_same_instance_id_fences_the_first(
    members: Join, topic: Callable[..., str], group: str
) -> None:
    orders = topic("orders", partitions=4)
    first = members(group, orders)
    joined = first.join(30)
    members(group, orders).join(30)

    def fenced() -> bool:
        try:
            first.rebalance_needed()
        except FencedError as error:
            return "group.instance.id" in str(error)
        return False

    wait_for(fenced, "the fence")
    with pytest.raises(FencedError):
        first.commit({0: dict.fromkeys(joined.slots[0].partitions, 5)})
    assert set(first.committed(everything(orders, 4)).values()) == {None}


def test_leaving_empties_the_group(kafka: EmbeddedKafka, members: Join, topic: Callable[..., str], group: str) -> None:
    membership = members(group, topic("orders", partitions=4))
    membership.join(30)
    membership.close()
    assert members_of(kafka, group) == []


def members_of(kafka: EmbeddedKafka, group: str) -> list[str | None]:
    admin = kafka.admin()
    described = admin.describe_consumer_groups([group])[group].result(timeout=10)
    return sorted(member.group_instance_id for member in described.members)


def test_a_second_application_joins_between_batches(members: Join, topic: Callable[..., str], group: str) -> None:
    orders = topic("orders", partitions=6)
    first = members(group, orders, slots=2, instance_id_prefix=f"{group}-a")
    first.join(30)
    second = members(group, orders, slots=1, instance_id_prefix=f"{group}-b")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        joining = pool.submit(second.join, 60)
        reason = wait_for(first.rebalance_needed, "the rebalance")
        assert "joined" in str(reason)
        # The finished micro-batch is committed in the old generation, while the rebalance waits.
        first.commit({s.credentials.slot: dict.fromkeys(s.partitions, 3) for s in first.assignment.slots})
        first.rejoin(30)
        joining.result()
    assert sorted(partitions_of(first) + partitions_of(second)) == everything(orders, 6)
    assert first.assignment.generation == second.assignment.generation
    assert second.committed(everything(orders, 6)) == dict.fromkeys(everything(orders, 6), 3)


def test_a_task_attaches_with_the_slots_credentials(
    config: Settings, members: Join, topic: Callable[..., str], group: str
) -> None:
    orders = topic("orders", partitions=4)
    joined = members(group, orders, slots=2).join(30)
    slot = pickle.loads(pickle.dumps(joined.slots[1]))
    with SlotSession.attach(config, slot.credentials) as session:
        session.check()
        session.commit(dict.fromkeys(slot.partitions, 9))
    with pytest.raises(FencedError, match="generation"):
        SlotSession.attach(config, replace(slot.credentials, generation=joined.generation - 1))


def test_a_batch_is_planned_once_and_read_by_slots_that_are_taken_over(
    config: Settings, members: Join, topic: Callable[..., str], group: str
) -> None:
    orders = topic("orders", partitions=4)
    planner = members(group, orders, slots=2)
    joined = planner.join(30)
    planner.detach()
    planner.close()
    settings = GroupSettings(group, f"{group}-app", 2, heartbeat_interval_ms=200)
    first, second = joined.slots
    with SlotSession.take_over(config, settings, first.credentials) as session:
        assert session.taken_over
        assert session.credentials.generation == joined.generation
        assert session.credentials.member_id != first.credentials.member_id
        with pytest.raises(FencedError):
            SlotSession.attach(config, first.credentials)
        session.commit(dict.fromkeys(first.partitions, 1))
        session.leave()
    # The group waits for the other slot to join again, which it never does: its credentials serve as they are.
    with SlotSession.take_over(config, settings, second.credentials) as session:
        assert session.credentials.member_id == second.credentials.member_id
        session.commit(dict.fromkeys(second.partitions, 2))
        session.check()
        session.leave()
    fresh = members(group, orders, slots=1)
    assert set(fresh.committed(everything(orders, 4)).values()) == {1, 2}


def produce(kafka: EmbeddedKafka, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(count):
        producer.produce(topic, str(n).encode(), partition=n % partitions)
    assert producer.flush(30) == 0
