"""`kafkagroup.admin` on a real broker: list, describe, create, move, clone, export, import and delete groups."""

import asyncio
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError, UnknownGroupError, UnknownTopicError
from kafka_source.group.requests import describe_consumer_protocol
from kafkagroup.admin import AtOffset, AtTime, ByDuration, Groups, Shift, Topics
from kafkagroup.embedded import EmbeddedKafka
from tests.support.memberships import everything
from tests.support.records import open_transaction, send
from tests.support.waiting import wait_until


def _commit(kafka, group, *positions):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=list(positions), asynchronous=False)
    consumer.close()


@pytest.fixture
def committed(kafka, topic, group):
    """A topic with 10 records in partition 0 and 20 in partition 1, of which the group has committed 4 and 6."""
    name = topic("api", partitions=2)
    send(kafka, name, range(10), 0)
    send(kafka, name, range(10, 30), 1)
    _commit(kafka, group, Position(name, 0, 4, metadata="a note"), Position(name, 1, 6))
    return name


@pytest.fixture
def consumer(kafka, group, opened):
    """Makes a consumer of librdkafka in a group and waits for its partitions."""

    def make(topic, protocol="classic", name=group):
        one = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": name,
                "group.protocol": protocol,
                "client.rack": "east",
                "enable.auto.commit": False,
            }
        )
        assigned: list[Position] = []
        one.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
        wait_until(lambda: one.poll(0.1) is not None or bool(assigned), "the member's partitions")
        return opened.enter_context(closing(one))

    return make


def of(rows, group):
    (row,) = [row for row in rows if row.group == group]
    return row


def test_groups_of_every_kind_are_listed(groups, committed, group, consumer, members):
    consumer(committed, "consumer", f"{group}-new")
    ours = members.make(committed, slots=2)
    joined = ours.join(30)
    ours.commit({slot.credentials.slot: dict.fromkeys(slot.partitions, 3) for slot in joined.slots})
    rows = groups.list(lag=True, pattern=f"^{group}")
    assert (of(rows, group).type, of(rows, group).state, of(rows, group).members) == ("classic", "Stable", 2)
    assert of(rows, group).lag == 30 - 6
    new = of(rows, f"{group}-new")
    assert (new.type, new.protocol, new.state, new.members, new.lag) == ("consumer", "consumer", "Stable", 1, 30)
    assert [row.group for row in groups.list(types=["Consumer"], pattern=f"^{group}")] == [f"{group}-new"]
    assert {row.group for row in groups.list(states=["stable"], pattern=f"^{group}")} == {group, f"{group}-new"}
    assert [(row.members, row.lag) for row in groups.list(pattern=f"^{group}$")] == [(None, None)]
    frame = rows.to_pandas()
    assert list(frame[frame["group"] == group]["lag"]) == [24]


def test_a_member_is_described_with_rack_and_user_data(groups, committed, group, members):
    membership = members.make(committed, slots=1, strategies=["weighted"], rack="west")
    membership.join(30)
    described = groups.describe(group)
    assert (described.type, described.assignor, described.epoch) == ("classic", "weighted", None)
    (member,) = described.members
    assert (member.rack, member.topics) == ("west", (committed,))
    assert member.user_data is not None
    assert member.user_data.weight == 1
    membership.leave()


def test_a_member_of_the_new_protocol_is_described_with_rack_and_epoch(groups, committed, group, consumer):
    consumer(committed, "consumer")
    wait_until(
        lambda: groups.describe(group).members[0].partitions == tuple(everything(committed, 2)), "all partitions"
    )
    described = groups.describe(group)
    (member,) = described.members
    assert (described.type, member.rack, member.topics) == ("consumer", "east", (committed,))
    assert described.epoch is not None
    assert member.epoch == described.epoch


def test_a_group_that_does_not_exist_is_an_error(groups, group):
    for call in (groups.describe, groups.lag, groups.delete, groups.export_offsets):
        with pytest.raises(UnknownGroupError, match=f"{group}"):
            call(group)
    with pytest.raises(UnknownGroupError):
        groups.clone(group, f"{group}-copy")
    assert groups.committed(group) == {}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("earliest", [0, 0]),
        ("latest", [10, 20]),
        ("current", [4, 6]),
        (AtOffset(15), [10, 15]),
        (Shift(-5), [0, 1]),
        (AtTime(0), [0, 0]),
        (AtTime(1 << 42), [10, 20]),
        (ByDuration(3_600_000), [0, 0]),
    ],
    ids=str,
)
def test_a_group_is_moved_to(groups, committed, group, target, expected):
    moves = groups.moves(group, target, topics=[committed])
    assert [move.offset for move in moves] == expected
    assert [move.committed for move in moves] == [4, 6]
    assert groups.committed(group) == dict(zip(everything(committed, 2), [4, 6], strict=True)), "nothing is changed yet"
    groups.rewind(group, {move.topic_partition: move.offset for move in moves})
    assert list(groups.committed(group).values()) == expected


def test_a_group_is_created_where_it_shall_start(kafka, groups, committed, group):
    name = f"{group}-made"
    starts = groups.moves(name, AtOffset(8), topics=[committed])
    assert [move.committed for move in starts] == [None, None]
    groups.create(name, {move.topic_partition: move.offset for move in starts}, dry_run=True)
    assert name not in groups.states()
    groups.create(name, {move.topic_partition: move.offset for move in starts})
    assert of(groups.list(), name).state == "Empty"
    with pytest.raises(InvalidConfigurationError, match="exists already"):
        groups.create(name, {TopicPartition(committed, 0): 0})
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "auto.offset.reset": "error"})
    reader.subscribe([committed])
    found = []
    wait_until(
        lambda: len(found.append(reader.poll(0.5)) or [m for m in found if m]) >= 14, "the records behind the start"
    )
    assert min(message.offset() or 0 for message in found if message) == 8
    reader.close()


def test_a_rewound_offset_has_the_epoch_by_which_a_truncation_is_detected(groups, committed, group):
    """Except after the end of the log, where no leader has written."""
    groups.rewind(group, dict(zip(everything(committed, 2), [3, 1_000], strict=True)))
    offsets = groups.export_offsets(group).offsets
    assert [offsets[tp].leader_epoch for tp in everything(committed, 2)] == [0, -1]


def test_a_group_is_cloned_with_what_it_has_noted(groups, committed, group, consumer):
    consumer(committed)
    moves = groups.clone(group, f"{group}-copy", dry_run=True)
    assert [move.offset for move in moves] == [4, 6]
    assert f"{group}-copy" not in groups.states()
    groups.clone(group, f"{group}-copy")
    first, copy = groups.export_offsets(group), groups.export_offsets(f"{group}-copy")
    assert copy.offsets == first.offsets
    # librdkafka sends a byte 0 behind the text.
    assert copy.offsets[TopicPartition(committed, 0)].metadata.startswith("a note")
    with pytest.raises(InvalidConfigurationError, match="exists already"):
        groups.clone(group, f"{group}-copy")


def test_the_offsets_of_a_topic_are_deleted(groups, committed, group, consumer, topic):
    other = topic("other", partitions=1)
    groups.rewind(group, {TopicPartition(other, 0): 0})
    groups.delete_offsets(group, [TopicPartition(committed, 0)])
    assert set(groups.committed(group)) == {TopicPartition(committed, 1), TopicPartition(other, 0)}
    subscribed = consumer(other)
    groups.delete_offsets(group, topics=[committed])
    assert set(groups.committed(group)) == {TopicPartition(other, 0)}
    with pytest.raises(KafkaGroupError, match=r"GROUP_SUBSCRIBED_TO_TOPIC.*Stop the members"):
        groups.delete_offsets(group, topics=[other])
    with pytest.raises(UnknownGroupError, match="no committed offsets of"):
        groups.delete_offsets(group, topics=[committed])
    subscribed.unsubscribe()


def test_topics(settings, committed):
    topics = Topics(settings)
    (row,) = topics.list(pattern=f"^{committed}$")
    assert (row.topic, row.partitions, row.replication, row.offsets, row.leaderless) == (committed, 2, 1, 30, 0)
    assert row.id
    assert "__consumer_offsets" not in {one.topic for one in topics.list()}
    assert "__consumer_offsets" in {one.topic for one in topics.list(internal=True)}
    rows = topics.describe(committed)
    assert [(one.partition, one.start, one.end, len(one.replicas)) for one in rows] == [(0, 0, 10, 1), (1, 0, 20, 1)]
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        topics.describe("no-such-topic")


def test_a_group_that_forms_while_it_is_described_is_described(kafka, groups, group, topic, monkeypatch):
    name, describe = topic("api"), describe_consumer_protocol
    forming = iter([partial(_commit, kafka, group, Position(name, 0, 1))])

    async def then_it_forms(*arguments):
        found = await describe(*arguments)
        await asyncio.to_thread(next(forming))
        return found

    monkeypatch.setattr("kafkagroup.admin.group_requests.describe_consumer_protocol", then_it_forms)
    assert groups.describe(group).state == "Empty"


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


def test_an_offset_in_an_open_transaction_is_not_committed_yet(kafka, groups, committed, group):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    producer = open_transaction(kafka.bootstrap_servers, f"{group}-open", committed)
    producer.send_offsets_to_transaction([Position(committed, 0, 9)], consumer.consumer_group_metadata(), 30)
    assert groups.committed(group) == {TopicPartition(committed, 0): 4, TopicPartition(committed, 1): 6}
    producer.commit_transaction(30)
    consumer.close()
    wait_until(
        lambda: groups.committed(group) == {TopicPartition(committed, 0): 9, TopicPartition(committed, 1): 6},
        "the transaction's offset",
    )
