"""A query as a member of the consumer protocol (KIP-848): `kafka.group.protocol=consumer`."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import FencedError, InvalidConfigurationError
from kafka_source.group.consumer.member_state import Subscription
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.consumer.slot import ConsumerSlot
from kafka_source.group.model import BatchInFlight, GroupSettings, Topics
from kafka_source.kafka_client import Deadline, KafkaClient
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.memberships import everything, held
from tests.support.queries import Pipe
from tests.support.records import CommittedReader, add_partitions
from tests.support.waiting import wait_until

SOON = {
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 6_000,
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """A node with heartbeats in half a second, and short sessions."""
    with EmbeddedKafka(config=SOON) as node:
        yield node


@pytest.fixture
def joined(kafka, group, opened) -> Callable[..., ConsumerMembership]:
    """Joins with slots; closes all at the end."""

    def make(*topics: str, slots: int = 2, pattern: str | None = None, **more: object) -> ConsumerMembership:
        settings = GroupSettings(group, slots=slots, **{"metadata_max_age_ms": 300, **more})  # type: ignore[arg-type]
        config = Settings({"bootstrap.servers": kafka.bootstrap_servers})
        one: ConsumerMembership = ConsumerMembership(config, settings, Topics(topics, pattern))
        opened.callback(one.close)
        one.join(60)
        return one

    return make


def share(topic: str, count: int, *memberships: ConsumerMembership) -> bool:
    """Whether these have all partitions, each one of them, and none twice."""
    return all(held(one) for one in memberships) and held(*memberships) == everything(topic, count)


def test_two_members_share_without_a_call(joined, topic):
    orders = topic("orders", partitions=4)
    first = joined(orders)
    assert held(first) == everything(orders, 4)
    second = joined(orders)
    # Neither is called: heartbeats give partitions up and take them.
    wait_until(lambda: share(orders, 4, first, second), "both to have a share")
    second.close()
    wait_until(lambda: held(first) == everything(orders, 4), "all partitions to come back")


def test_what_a_batch_reads_is_kept_and_everything_else_moves_at_once(joined, topic, group, groups):
    orders = topic("orders", partitions=6)
    busy, idle = joined(orders, slots=1), joined(orders, slots=1)
    wait_until(lambda: share(orders, 6, busy, idle), "both to have a share")
    reading = held(busy)
    busy.set_batch_in_flight(BatchInFlight(dict.fromkeys(reading, 5)))
    third = joined(orders, slots=1)
    wait_until(lambda: held(third), "a partition of the idle one")
    assert held(busy) == reading
    described = {member.member_id: member for member in groups.describe(group).members}
    waits, brings = (described[one.credentials[0].member_id] for one in (busy, third))
    # An operator sees what the batch holds up, and who waits for it.
    assert waits.epoch < brings.epoch
    assert waits.partitions == tuple(reading)
    assert waits.revoking == brings.awaiting != ()
    assert waits.awaiting == brings.revoking == ()
    wait_until(busy.rebalance_needed, "what it has to give up")
    told_at = time.monotonic()
    busy.take_rebalances()
    busy.commit({0: dict.fromkeys(reading, 5)})
    waited = time.monotonic() - told_at
    busy.set_batch_in_flight(BatchInFlight())
    wait_until(lambda: share(orders, 6, busy, idle, third) and len(held(third)) == 2, "everybody to have a share")
    assert {entry.offset for entry in busy.committed_entries(reading).values()} == {5}
    (gave_up,) = busy.take_rebalances()
    assert gave_up.took_ms >= int(waited * 1000)


@pytest.mark.long  # for the download of an older Kafka
def test_a_newcomer_does_not_wait_for_a_batch_that_holds_its_partitions(monkeypatch):
    monkeypatch.setattr("kafka_source.group.consumer.membership._SHARE_SECONDS", 600.0)
    # Before Kafka 4.3 nobody has a partition, as the brokers tell, that its owner has still to give up (KAFKA-20431).
    with EmbeddedKafka(version="4.0.1", config=SOON) as kafka, ThreadPoolExecutor(1) as pool:
        settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
        orders = kafka.create_topic("orders", partitions=6)
        busy, second, third = (
            ConsumerMembership(settings, GroupSettings("billing", client_id=f"{n}"), Topics((orders,)))
            for n in range(3)
        )
        with closing(busy), closing(second), closing(third):
            busy.join(60)
            busy.set_batch_in_flight(BatchInFlight(dict.fromkeys(held(busy), 5)))
            second.join(60)
            wait_until(busy.rebalance_needed, "what it has to give up")
            joining = pool.submit(third.join, 600)
            wait_until(joining.done, "the newcomer")
            assert held(third) == []
            busy.set_batch_in_flight(BatchInFlight())
            wait_until(lambda: share(orders, 6, busy, second, third), "everybody to have a share")


def suspend(kafka: EmbeddedKafka, group: str, membership: ConsumerMembership) -> None:
    """Send no heartbeats, as if the process were suspended, until the sessions of the group's members have ended."""
    membership._client.run(membership._tasks.stop())
    admin = kafka.admin()
    wait_until(lambda: not admin.describe_consumer_groups([group])[group].result(10).members, "the removal")


def test_slots_that_were_removed_join_again_with_the_same_member_ids(kafka, joined, topic, group):
    orders = topic("orders", partitions=4)
    membership = joined(orders)
    before = membership.credentials
    suspend(kafka, group, membership)
    assert membership.lost() is not None
    assert held(membership) == everything(orders, 4)
    with membership.rebalance_paused():
        membership.rejoin(30)
    assert membership.lost() is None
    assert [one.member_id for one in membership.credentials] == [one.member_id for one in before]
    assert held(membership) == everything(orders, 4)


def test_a_slot_takes_nothing_while_a_heartbeat_says_that_it_has_nothing(kafka, topic, group):
    # Were the heartbeat handled after another member's join, the coordinator would count what the slot takes now as
    # given up, and would still take the slot's commits, because the answer has its epoch.
    orders = topic("orders", partitions=4)
    client = KafkaClient(Settings({"bootstrap.servers": kafka.bootstrap_servers}), client_id="a")
    slot = ConsumerSlot(0, client, GroupSettings(group, slots=1))
    told = Subscription((orders,), 60_000)

    async def take_early() -> tuple[bool, bool]:
        snapshot = await client.metadata([orders], Deadline(10))
        names = {one.topic_id: one.name for one in snapshot.topics.values() if one.topic_id is not None}
        slot.rejoin()
        while not slot.can_take(names):
            await slot.beat(told, Deadline(10))
        under_way = asyncio.create_task(slot.beat(told, Deadline(10)))
        await asyncio.sleep(0)
        early = slot.reconcile(names, ())
        await under_way
        late = slot.reconcile(names, ())
        await slot.leave(Deadline(10), comes_back=False)
        return early, late

    assert client.run(take_early(), 60) == (False, True)
    client.close()


def test_a_pattern_takes_topics_that_appear(joined, topic):
    name = topic("pattern", partitions=1)
    membership = joined(pattern=f"{name}.*", slots=1)
    assert held(membership) == everything(name, 1)
    more = topic(name, partitions=2)
    wait_until(lambda: held(membership) == everything(name, 1) + everything(more, 2), "the new topic")


def test_new_partitions_are_taken(kafka, joined, topic):
    orders = topic("orders", partitions=2)
    membership = joined(orders, slots=1)
    add_partitions(kafka, orders, 4)
    wait_until(lambda: held(membership) == everything(orders, 4), "the new partitions")


def test_a_topic_that_does_not_exist_yet_is_taken_when_it_appears(kafka, joined, topic):
    orders = topic("orders", partitions=1)
    later = f"{orders}-later"
    membership = joined(orders, later, slots=1)
    kafka.create_topic(later, 2)
    wait_until(lambda: held(membership) == everything(orders, 1) + everything(later, 2), "the topic that appears")


def test_static_members_come_back_to_their_partitions(joined, topic, group):
    orders = topic("orders", partitions=4)
    settings = {"instance_id_prefix": f"{group}-app", "leave_on_close": False}
    first = joined(orders, **settings)
    before = [one.partitions for one in first.assignment.slots]
    first.close()
    assert [one.partitions for one in joined(orders, **settings).assignment.slots] == before


def test_a_killed_static_member_is_replaced_when_its_session_is_over(joined, topic, group):
    orders = topic("orders", partitions=4)
    settings = {"instance_id_prefix": f"{group}-app", "leave_on_close": False}
    killed = joined(orders, **settings)
    killed._client.run(killed._tasks.stop())
    again = joined(orders, **settings)
    assert held(again) == everything(orders, 4)
    with pytest.raises(FencedError, match="Another process"):
        wait_until(killed.lost, "the loss")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_is_shared_with_librdkafka_in_both_protocols(kafka, joined, topic, group, protocol):
    orders = topic("orders", partitions=4)
    with closing(ConfluentConsumer(kafka.bootstrap_servers, group, orders, protocol)) as other:
        wait_until(lambda: other.assigned, "partitions for the other member")
        membership = joined(orders)
        everybody = list(range(4))

        def is_shared() -> bool:
            ours = [tp.partition for tp in held(membership)]
            return bool(ours and other.assigned) and sorted([*ours, *other.assigned]) == everybody

        wait_until(is_shared, "both to share the partitions")
    wait_until(lambda: held(membership) == everything(orders, 4), "all partitions to come back")


def test_an_assignor_that_the_brokers_do_not_have_is_refused(joined, topic):
    with pytest.raises(InvalidConfigurationError, match=r"kafka\.group\.remote\.assignor=best"):
        joined(topic("orders", partitions=4), remote_assignor="best")
    assert held(joined(topic("orders", partitions=4), remote_assignor="range"))


def test_brokers_without_the_protocol_are_named():
    with EmbeddedKafka(config={"group.coordinator.rebalance.protocols": "classic"}) as kafka:
        settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
        with closing(ConsumerMembership(settings, GroupSettings("billing"), Topics(("orders",)))) as membership:
            with pytest.raises(InvalidConfigurationError, match=r"KIP-848.*kafka\.group\.protocol=classic"):
                membership.join(30)


# ---- queries

COUNT = 400


@pytest.fixture
def pipe(kafka, topic, group, opened) -> Callable[..., Pipe]:
    """Makes queries from one topic with numbers to another one, exactly once, as members of the consumer protocol."""
    source, sink = topic("in", partitions=4, records=COUNT), topic("out", partitions=1)

    def make(name: str, **options: object) -> Pipe:
        given: dict[str, Any] = {"kafka_group_protocol": "consumer", "maxOffsetsPerTrigger": COUNT // 4, **options}
        one = Pipe(kafka.bootstrap_servers, source, sink, group, f"{group}-{name}", **given)
        opened.callback(one.close)
        return one

    return make


def check(kafka: EmbeddedKafka, *queries: Pipe) -> None:
    """Run to the end; the output has each number once."""
    with CommittedReader(kafka.bootstrap_servers, queries[0].topic) as reader:

        def is_read() -> bool:
            # A query may have nothing to read for a moment: what another one has given up comes with a heartbeat.
            return [query.whole_batch() for query in queries] == [-1] * len(queries) and len(reader.records) >= COUNT

        wait_until(is_read, "everything to be read and written")
    assert reader.values == sorted(str(number).encode() for number in range(COUNT))


def test_a_sink_decides_with_an_epoch_that_has_risen_since_the_batch_was_planned(kafka, pipe, monkeypatch):
    query = pipe("a", group_members=1)
    owner = query.stream._owner
    query.stream.join()
    membership = owner._membership
    (now,) = membership.credentials
    # What brokers before 4.3 answer to any epoch but the last one, and later ones to this one (KIP-1251).
    stale = replace(now, generation=now.generation - 1, right=owner._right_id)
    with monkeypatch.context() as patched:
        patched.setattr(owner, "credentials", lambda _: stale)
        query.batch()
        membership._known_epochs = {(stale.generation,)}
    query.decide()
    check(kafka, query)
