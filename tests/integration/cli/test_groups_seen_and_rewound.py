"""What people ask about a group, from a broker's first second on; and rewinding a group."""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError, UnknownGroupError
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import produce
from tests.support.waiting import wait_until


@pytest.fixture
def committed(kafka, topic, group):
    """A topic of 30 records of which the group has committed 7 in partition 0."""
    name = topic("seen", partitions=2)
    produce(kafka.bootstrap_servers, name, 30)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[Position(name, 0, 7)], asynchronous=False)
    consumer.close()
    return name


def test_a_broker_that_has_just_started_knows_no_group_yet():
    with EmbeddedKafka() as new:
        new.create_topic("orders", 2)
        groups = Groups(Settings({"bootstrap.servers": new.bootstrap_servers}))
        assert groups.committed("nobody") == {}
        assert list(groups.list()) == []
        with pytest.raises(UnknownGroupError, match="Group nobody does not exist"):
            groups.describe("nobody")
        with pytest.raises(UnknownGroupError):
            groups.lag("nobody")
        rows = groups.lag("nobody", (TopicPartition("orders", 0), TopicPartition("orders", 1)))
        assert [(row.committed, row.end, row.lag) for row in rows] == [(None, 0, None)] * 2


def test_lag_is_the_distance_to_the_end_where_something_was_committed(groups, committed, group):
    rows = {row.partition: row for row in groups.lag(group, (TopicPartition(committed, 1),))}
    assert (rows[0].committed, rows[0].lag) == (7, rows[0].end - 7)
    assert (rows[1].committed, rows[1].lag) == (None, None)
    assert rows[0].end + rows[1].end == 30


def test_an_offset_in_an_open_transaction_is_not_committed_yet(kafka, groups, committed, group):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{group}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([Position(committed, 0, 9)], consumer.consumer_group_metadata(), 30)
    assert groups.committed(group) == {TopicPartition(committed, 0): 7}
    producer.commit_transaction(30)
    consumer.close()
    wait_until(lambda: groups.committed(group) == {TopicPartition(committed, 0): 9}, "the transaction's offset")


def test_a_member_is_shown_with_what_it_has_whichever_protocol_its_group_speaks(kafka, groups, committed, group):
    for protocol, assignor in (("classic", "range"), ("consumer", "uniform")):
        name = f"{group}-{protocol}"
        common = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "client.id": "shown"}
        consumer = Consumer({**common, "group.protocol": protocol, "group.instance.id": "first"})
        assigned: list[Position] = []
        consumer.subscribe([committed], on_assign=partial(lambda to, _, partitions: to.extend(partitions), assigned))
        wait_until(
            partial(lambda consumer, to: consumer.poll(0.1) is not None or bool(to), consumer, assigned), "the member"
        )
        wait_until(partial(lambda name: groups.describe(name).state == "Stable", name), "a stable group")
        seen = groups.describe(name)
        assert (seen.group, seen.assignor) == (name, assignor)
        (member,) = seen.members
        assert (member.name, member.client_id) == ("first", "shown")
        assert member.partitions == (TopicPartition(committed, 0), TopicPartition(committed, 1))
        assert groups.states()[name] == "Stable"
        consumer.close()


def test_a_group_without_members_is_rewound(groups, committed, group):
    groups.rewind(group, {TopicPartition(committed, 0): 2, TopicPartition(committed, 1): 0})
    assert groups.committed(group) == {TopicPartition(committed, 0): 2, TopicPartition(committed, 1): 0}


def test_a_group_with_members_is_not_rewound(kafka, groups, committed, group):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    assigned = []
    consumer.subscribe([committed], on_assign=lambda _, partitions: assigned.extend(partitions))
    wait_until(lambda: consumer.poll(0.1) is not None or bool(assigned), "the member")
    with pytest.raises(FencedError, match=f"Group {group} has members.*stop them"):
        groups.rewind(group, {TopicPartition(committed, 0): 2})
    assert groups.committed(group) == {TopicPartition(committed, 0): 7}
    consumer.close()
