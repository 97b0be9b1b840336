"""Groups that a consumer of the new protocol (KIP-848) has converted: the brokers assign, each slot has an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import NewPartitions

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError, InvalidConfigurationError
from kafka_source.group.membership import GroupMembership
from kafka_source.group.model import BatchInFlight, GroupAssignment
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafka_source.source.read_task import ReadTask
from kafka_source.transactions.offset_committer import TransactionalCommitter
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.memberships import attach, everything, held
from tests.support.records import produce
from tests.support.waiting import wait_until

PARTITIONS = 4

StartConsumer = Callable[..., ConfluentConsumer]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """A node whose consumers of the new protocol hear of a rebalance sooner than after five seconds."""
    soon = {"group.consumer.heartbeat.interval.ms": 300, "group.consumer.min.heartbeat.interval.ms": 300}
    with EmbeddedKafka(config=soon) as node:
        yield node


@pytest.fixture
def consumer(kafka, group) -> Iterator[StartConsumer]:
    """Starts consumers of the new protocol in the group; waits until each has partitions."""
    started: list[ConfluentConsumer] = []

    def start(topic: str, *, waits: bool = True) -> ConfluentConsumer:
        one = ConfluentConsumer(kafka.bootstrap_servers, group, topic, "consumer")
        started.append(one)
        if waits:
            wait_until(lambda: bool(one.assigned), "partitions for the consumer of the new protocol")
        return one

    yield start
    for one in started:
        one.close()


@pytest.fixture
def beside(kafka, topic, consumer):
    """A topic whose only reader converts the group, so that our slots have all partitions of their own topic."""
    other = topic("beside", partitions=1)
    consumer(other)
    return other


def rejoin_until(membership: GroupMembership, condition: Callable[[], object], what: str) -> None:
    def there() -> object:
        if membership.rebalance_needed():
            membership.rejoin(60)
        return condition()

    wait_until(there, what)


def shared(membership: GroupMembership, other: ConfluentConsumer) -> bool:
    ours = [tp.partition for tp in held(membership)]
    return bool(other.assigned) and bool(ours) and sorted([*ours, *other.assigned]) == list(range(PARTITIONS))


def own_all(membership: GroupMembership, topic: str) -> GroupAssignment:
    """Join with all slots and wait until they have all partitions: the brokers compute assignments with some delay."""
    membership.join(60)
    rejoin_until(membership, lambda: held(membership) == everything(topic, PARTITIONS), "all partitions for the slots")
    return membership.assignment


def test_a_live_group_is_converted_and_back_while_we_are_in_it(members, topic, consumer, caplog):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2)
    assert membership.join(30).assignor == "range"
    other = consumer(orders, waits=False)
    rejoin_until(membership, lambda: shared(membership, other), "both to share the partitions")
    assert membership.assignment.assignor == "brokers"
    assert sum("the brokers assign its partitions" in line for line in caplog.messages) == 1
    membership.commit({s.credentials.slot: dict.fromkeys(s.partitions, 7) for s in membership.assignment.slots})
    assert set(membership.committed(held(membership)).values()) == {7}
    other.close()
    rejoin_until(membership, lambda: held(membership) == everything(orders, PARTITIONS), "all partitions to come back")
    assert (membership.assignment.assignor, membership.assignment.leading) == ("range", True)
    assert sum("is a classic group again" in line for line in caplog.messages) == 1


def test_a_slot_that_is_behind_when_the_group_is_converted_back_cannot_commit(members, topic, consumer):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2)
    membership.join(30)
    first = consumer(orders, waits=False)
    rejoin_until(membership, lambda: shared(membership, first), "both to share the partitions")
    # The group changes while a micro-batch is under way, and is a classic one again before that ends.
    second = consumer(orders, waits=False)
    wait_until(membership.rebalance_needed, "the next change")
    second.close()
    first.close()
    wait_until(membership.lost, "the slots to be removed")
    with pytest.raises(FencedError, match="ILLEGAL_GENERATION"):
        membership.commit({s.credentials.slot: dict.fromkeys(s.partitions, 7) for s in membership.assignment.slots})
    membership.rejoin(60)
    rejoin_until(membership, lambda: held(membership) == everything(orders, PARTITIONS), "all partitions to come back")


@pytest.mark.parametrize("strategies", [["copartition"], ["copartition", "range"]])
def test_a_query_that_relies_on_its_strategy_stops_when_the_group_is_converted(members, topic, consumer, strategies):
    orders = topic("orders", partitions=PARTITIONS)
    # Brokers would do for `range`, unless the query says that it relies on topics that stay together.
    membership = members.make(orders, slots=2, strategies=strategies, refuses_conversion="range" in strategies)
    membership.join(30)
    other = consumer(orders, waits=False)
    wait_until(membership.rebalance_needed, "the conversion")
    with pytest.raises(
        InvalidConfigurationError, match=r"strategy=copartition(,range)? has no effect.*group\.on\.converted"
    ):
        membership.rejoin(60)
    membership.close()
    wait_until(lambda: sorted(other.assigned) == list(range(PARTITIONS)), "all partitions for the consumer")


@pytest.mark.parametrize("strategy", ["copartition", "redundant"])
def test_it_goes_on_without_its_strategy_if_it_is_told_to(members, topic, consumer, caplog, strategy):
    orders = topic("orders", partitions=PARTITIONS)
    other = consumer(orders)
    membership = members.make(orders, slots=2, strategies=[strategy], without_strategy=True)
    membership.join(60)
    rejoin_until(membership, lambda: shared(membership, other), "both to share the partitions")
    assert sum("What the strategy promises" in line for line in caplog.messages) == 1


def test_new_partitions_are_noticed(kafka, members, topic, consumer):
    orders = topic("orders", partitions=PARTITIONS)
    other = consumer(orders)
    membership = members.make(orders, slots=2)
    membership.join(60)
    rejoin_until(membership, lambda: shared(membership, other), "both to share the partitions")
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(orders, 2 * PARTITIONS)])[orders].result(10)

    def whole() -> bool:
        ours = [tp.partition for tp in held(membership)]
        return sorted([*ours, *other.assigned]) == list(range(2 * PARTITIONS))

    rejoin_until(membership, whole, "the new partitions to be assigned")


def test_static_members_come_back_to_their_partitions(members, topic, beside):
    orders = topic("orders", partitions=PARTITIONS)
    first = members.make(orders, slots=2, leave_on_close=False)
    before = own_all(first, orders)
    first.close()
    after = members.make(orders, slots=2, leave_on_close=False).join(60)
    assert [s.partitions for s in after.slots] == [s.partitions for s in before.slots]


def test_partitions_of_a_micro_batch_are_kept_until_it_is_committed(kafka, members, topic, group, beside, consumer):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2)
    own_all(membership, orders)
    membership.set_batch_in_flight(BatchInFlight(dict.fromkeys(everything(orders, PARTITIONS), 5)))
    other = consumer(orders, waits=False)
    rejoin_until(membership, lambda: membership.assignment.held, "partitions to be taken away")
    kept = membership.assignment
    assert sorted([*kept.held, *held(membership)]) == everything(orders, PARTITIONS)
    # The slots that hold something wait for their next epoch; each commits with its own.
    ends: dict[int, dict[TopicPartition, int]] = {}
    for slot in kept.slots:
        ends[slot.credentials.slot] = dict.fromkeys([*slot.partitions, *slot.held], 5)
    membership.commit(ends)
    assert set(membership.committed(everything(orders, PARTITIONS)).values()) == {5}
    assert not other.assigned
    membership.set_batch_in_flight(BatchInFlight())
    rejoin_until(membership, lambda: shared(membership, other), "the consumer to get its share")


def test_a_transaction_commits_each_slots_offsets_with_its_own_epoch(kafka, members, topic, group, beside):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2)
    first, second = (slot.credentials for slot in own_all(membership, orders).slots)
    assert first.per_member_epoch
    assert second.per_member_epoch
    committer = TransactionalCommitter(Settings({"bootstrap.servers": kafka.bootstrap_servers}), f"{group}-offsets")
    late = replace(second, generation=second.generation - 1)
    with pytest.raises(FencedError):
        committer.commit_as([(c, dict.fromkeys(c.partitions, 3)) for c in (first, late)])
    assert set(membership.committed(everything(orders, PARTITIONS)).values()) == {None}
    committer.commit_as([(c, dict.fromkeys(c.partitions, 4)) for c in (first, second)])
    assert set(membership.committed(everything(orders, PARTITIONS)).values()) == {4}


@pytest.mark.parametrize("notices_by", ["heartbeat", "commit"])
def test_a_second_application_with_the_same_instance_id_fences_the_first(members, topic, beside, notices_by):
    orders = topic("orders", partitions=PARTITIONS)
    first = members.make(orders, slots=2)
    joined = own_all(first, orders)
    if notices_by == "commit":
        first.detach()
    second = members.make(orders, slots=2)
    own_all(second, orders)
    if notices_by == "commit":
        with pytest.raises(FencedError):
            first.commit({0: dict.fromkeys(joined.slots[0].partitions, 5)})
    else:

        def fenced() -> bool:
            try:
                first.rebalance_needed()
            except FencedError:
                return True
            return False

        wait_until(fenced, "the fence")
    # It does not join again, which would fence the second application in turn.
    with pytest.raises(FencedError):
        first.rejoin(30)
    assert second.lost() is None
    assert set(second.committed(everything(orders, PARTITIONS)).values()) == {None}


def test_a_query_that_hangs_gives_its_partitions_up(members, topic, consumer):
    orders = topic("orders", partitions=PARTITIONS)
    other = consumer(orders)
    membership = members.make(orders, slots=2, rebalance_timeout_ms=3_000)
    membership.join(60)
    rejoin_until(membership, lambda: shared(membership, other), "both to share the partitions")
    with membership.rebalance_paused():
        membership.set_batch_in_flight(BatchInFlight(dict.fromkeys(held(membership), 5)))
    wait_until(lambda: sorted(other.assigned) == list(range(PARTITIONS)), "all partitions for the consumer")
    lost = membership.lost()
    assert lost is not None
    assert "max.poll.interval.ms" in lost


@pytest.fixture
def slots(members, topic, beside):
    """The credentials of two slots, with all partitions of a topic, and the settings with which they joined."""
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2, session_timeout_ms=10_000)
    joined = own_all(membership, orders)
    return membership, [slot.credentials for slot in joined.slots]


def test_a_task_of_a_stream_acts_as_its_slot(kafka, slots):
    membership, credentials = slots
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    session = attach(settings, credentials[1])
    session.commit(dict.fromkeys(credentials[1].partitions, 9))
    assert set(membership.committed(credentials[1].partitions).values()) == {9}
    late = replace(credentials[1], generation=credentials[1].generation - 1)
    with pytest.raises(FencedError):
        attach(settings, late)


def test_a_batch_reads_all_partitions_although_the_brokers_assign_them_with_a_delay(kafka, topic, group, beside):
    orders = topic("orders", partitions=PARTITIONS)
    produce(kafka.bootstrap_servers, orders, 100)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": orders, "kafka.group.id": group}
    planned = BatchReader(given, source_schema(headers=False)).partitions()
    ranges = [r for task in planned if isinstance(task, ReadTask) for r in task.ranges]
    assert sorted(r.partition for r in ranges) == list(range(PARTITIONS))
    assert sum(r.size for r in ranges) == 100
