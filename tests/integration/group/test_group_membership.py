"""Slots of a query as members of a group on a real broker."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest

from kafka_source.commits.rights import Renewal, Right, SlotSession
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError
from kafka_source.group.model import BatchInFlight
from kafka_source.group.requests import commit_offsets
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.commits import CommitOffset, with_notes
from kafka_source.model.credentials import SlotCredentials
from kafkagroup.embedded.jars import broker_version
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.memberships import attach, everything, held, members_of, rejoin_once, rejoin_until_joined, together
from tests.support.waiting import wait_until


def test_all_slots_join_and_share_all_partitions(members, topic, group):
    orders = topic("orders", partitions=8)
    membership = members.make(orders)
    joined = membership.join(30)
    assert held(membership) == everything(orders, 8)
    assert [len(slot.partitions) for slot in joined.slots] == [3, 3, 2]
    assert joined.leading
    assert joined.assignor == "range"
    assert {slot.credentials.generation for slot in joined.slots} == {joined.generation}
    assert [slot.credentials.instance_id for slot in joined.slots] == [f"{group}-app-{k}" for k in range(3)]
    assert membership.rebalance_needed() is None


def test_slots_without_partitions_are_members_too(members, topic):
    orders = topic("orders", partitions=2)
    membership = members.make(orders, slots=5)
    assert sorted(len(slot.partitions) for slot in membership.join(30).slots) == [0, 0, 0, 1, 1]


def test_dynamic_members_join_and_leave(kafka, members, topic, group):
    orders = topic("orders", partitions=4)
    membership = members.make(orders, slots=2, app=None)
    membership.join(30)
    assert held(membership) == everything(orders, 4)
    assert members_of(kafka, group) == [None, None]
    membership.close()
    assert members_of(kafka, group) == []


@pytest.mark.skipif(
    tuple(map(int, broker_version().split(".")[:2])) < (4, 1), reason="these brokers keep no topic ids with offsets"
)
def test_offsets_have_topic_ids_also_where_the_client_has_not_seen_the_topic(members, topic):
    name = topic("orders", partitions=2)
    membership = members.make(name, slots=1)
    membership.join(60)
    membership.commit({0: dict.fromkeys(everything(name, 2), 1)})
    # Its client is as one that has rebootstrapped: it knows nothing yet.
    new = members.make(name, slots=1)
    (topic_id,) = {entry.topic_id for entry in new.committed_entries(everything(name, 2)).values()}
    assert topic_id is not None


def test_offsets_that_are_larger_than_one_record_batch_are_committed(members, topic):
    """As those of about 9,500 partitions or more: a coordinator refuses a request above the size of a record batch.

    Each offset has a long text with it, so that fewer partitions do it.
    """
    orders = topic("orders-of-many", partitions=300)
    membership = members.make(orders, slots=1)
    membership.join(30)
    offsets = {tp: CommitOffset(tp.partition + 1, metadata="x" * 3_900) for tp in everything(orders, 300)}
    membership.commit({0: offsets})
    committed = {tp: entry.offset for tp, entry in membership.committed_entries(offsets).items()}
    assert committed == {tp: tp.partition + 1 for tp in offsets}


def test_a_restart_within_the_session_changes_nothing(members, topic):
    orders = topic("orders", partitions=6)
    first = members.make(orders, leave_on_close=False)
    before = first.join(30)
    first.close()
    after = members.make(orders, leave_on_close=False).join(30)
    assert after.generation == before.generation
    # Before Kafka 3.2 a static leader that comes back is told its former member id as the leader's.
    assert after.leading or broker_version().startswith("2.")
    assert [s.partitions for s in after.slots] == [s.partitions for s in before.slots]


def test_a_second_application_with_the_same_instance_id_fences_the_first(members, topic):
    orders = topic("orders", partitions=4)
    first = members.make(orders)
    joined = first.join(30)
    members.make(orders).join(30)

    def fenced():
        try:
            first.rebalance_needed()
        except FencedError as error:
            return str(error)
        return None

    assert "group.instance.id" in wait_until(fenced, "the fence")
    with pytest.raises(FencedError):
        first.commit({0: dict.fromkeys(joined.slots[0].partitions, 5)})
    with pytest.raises(FencedError):
        first.rejoin(30)
    assert first.committed_entries(everything(orders, 4)) == {}


def test_a_member_that_comes_gets_its_share_in_its_first_join_also_where_it_is_handed_over(members, topic):
    orders = topic("orders", partitions=4)
    first, second = (members.make(orders, slots=1, app=app, strategies=["cooperative-sticky"]) for app in "ab")
    first.join(30)
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.join, 60)
        rejoin_until_joined(first, joining)
    assert len(held(second)) == 2
    assert held(first, second) == everything(orders, 4)


def test_what_a_member_was_handing_over_when_it_died_gets_an_owner_when_it_is_back(kafka, members, topic, group):
    """It gets its assignment back without a rebalance, and nobody knows any more that a second phase has to follow."""
    orders, clicks = topic("orders", partitions=4), topic("clicks", partitions=1)

    def make(app, name):
        return members.make(name, slots=1, app=app, strategies=["cooperative-sticky"], leave_on_close=False)

    leading, dying = make("a", clicks), make("b", orders)
    assert leading.join(30).leading
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(dying.join, 60)
        rejoin_until_joined(leading, joining)
    dying.set_batch_in_flight(BatchInFlight(dict.fromkeys(everything(orders, 4), 5)))
    with closing(ConfluentConsumer(kafka.bootstrap_servers, group, orders, strategy="cooperative-sticky")) as other:
        # Once each: the second phase, for which the dying one would rejoin, does not begin.
        together(*(partial(rejoin_once, each) for each in (leading, dying)))
        assert len(dying.assignment.held) == 2
        # In the middle of its batch.
        dying.detach()
        dying.close()
        back = make("b", orders)
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(back.join, 60)
            rejoin_until_joined(leading, joining)

        def all_are_assigned():
            if any(each.rebalance_needed() is not None for each in (back, leading)):
                together(*(partial(each.rejoin, 60) for each in (back, leading)))
            return sorted([*other.assigned, *(tp.partition for tp in held(back))]) == [0, 1, 2, 3]

        wait_until(all_are_assigned, "an owner for each partition")


def test_leaving_is_one_rebalance_for_the_others(members, topic):
    orders = topic("orders", partitions=6)
    first = members.make(orders, slots=1, app="a")
    first.join(30)
    second = members.make(orders, slots=4, app="b")
    with ThreadPoolExecutor(1) as pool:
        rejoin_until_joined(first, pool.submit(second.join, 60))
    before = first.assignment.generation
    second.close()
    wait_until(first.rebalance_needed, "the rebalance")
    assert first.rejoin(30).generation == before + 1


def test_no_thread_is_left_behind(members, topic):
    before = set(threading.enumerate())
    membership = members.make(topic("orders"))
    membership.join(30)
    membership.close()
    wait_until(lambda: not [t for t in set(threading.enumerate()) - before if "kafkagroup" in t.name], "their end")


# ---- tasks


def test_a_task_attaches_with_the_slots_credentials(members, topic):
    orders = topic("orders", partitions=4)
    joined = members.make(orders, slots=2).join(30)
    slot = pickle.loads(pickle.dumps(joined.slots[1]))
    session = attach(members.config, slot.credentials)
    session.check()
    session.commit(dict.fromkeys(slot.partitions, 9))
    with pytest.raises(FencedError, match=f"generation {joined.generation - 1}"):
        attach(members.config, replace(slot.credentials, generation=joined.generation - 1))


def test_a_task_attaches_several_slots_at_once_and_learns_which_are_lost(members, topic):
    joined = members.make(topic("orders", partitions=4), slots=3).join(30)
    first, second, third = (slot.credentials for slot in joined.slots)
    late = replace(second, generation=joined.generation - 1)
    held, lost, also_held = SlotSession.attach_all(members.config, [first, late, third]).result(30)
    assert isinstance(lost, FencedError)
    assert isinstance(held, SlotSession)
    assert isinstance(also_held, SlotSession)
    assert (held.credentials, also_held.credentials) == (first, third)


@pytest.mark.parametrize("end", [5, 9])
def test_a_stream_that_was_replaced_undoes_no_commit_of_its_successor(members, topic, group, end):
    (tp,) = everything(topic("orders", partitions=1, records=10), 1)
    client, right, deadline = cached_client(members.config), uuid4().hex, Deadline(30)
    own, refusal = SlotCredentials(group, 2, "later", None), FencedError("", code=ErrorCode.ILLEGAL_GENERATION)
    offsets = with_notes({tp: end}, {}, "stream")
    client.run(commit_offsets(client, SlotCredentials.without_membership(group), offsets, deadline))
    client.run(Right(right).publish(client, group, {tp: 5}, {tp: own}, deadline))
    asked = Renewal(group, right, {tp: (0, 5)}, "stream", {}).wait(client, refusal, {(1, "earlier")}, deadline)
    if end > 5:
        with pytest.raises(FencedError, match="another member or a rewind has changed the offsets"):
            client.run(asked)
    else:
        # The task itself has committed, and got no answer.
        assert client.run(asked) == {tp: own}
