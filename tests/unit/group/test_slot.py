"""What a slot says to the assignor, and when another round must follow."""

from contextlib import closing
from dataclasses import replace

import pytest

from assignors import Assignment, TopicPartition, decode_subscription, encode_assignment, load
from kafka_source.client_config import Settings
from kafka_source.group.classic.leader import with_held
from kafka_source.group.classic.member import Joined
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.classic.slot import Slot
from kafka_source.group.model import GroupSettings
from kafka_source.kafka_client import KafkaClient

ORDERS = tuple(TopicPartition("orders", number) for number in range(3))


@pytest.fixture(scope="module")
def client():
    with closing(KafkaClient(Settings({"bootstrap.servers": "127.0.0.1:1"}))) as client:
        yield client


@pytest.fixture
def make(client):
    """Makes a slot that has `orders` 0 to 2 in generation 4 of a group that uses the first of the strategies."""

    def make(*strategies):
        slot = Slot(0, client, GroupSettings("group"), [load(name) for name in strategies])
        slot.subscribe(["orders", "clicks"])
        slot.member.status = MemberStatus(State.STABLE, "member", 4)
        slot.member.joined = Joined("member", 4, strategies[0], "leader", (), False)
        assert not slot.store_assignment(encode_assignment(Assignment(ORDERS)))
        return slot

    return make


def said(slot, topics=("orders", "clicks")):
    return {name: decode_subscription(metadata) for name, metadata in slot.subscribe(topics)}


def test_a_cooperative_slot_says_what_it_has_and_since_when(make):
    subscription = said(make("cooperative-sticky"))["cooperative-sticky"]
    assert (subscription.owned, subscription.generation) == (ORDERS, 4)


def test_a_slot_with_an_eager_strategy_too_gives_everything_up(make):
    subscriptions = said(make("cooperative-sticky", "range"))
    assert {name: (s.owned, s.generation) for name, s in subscriptions.items()} == {
        "cooperative-sticky": ((), 4),
        "range": ((), -1),
    }


def test_another_round_follows_if_something_was_taken_away(make):
    slot = make("cooperative-sticky")
    slot.subscribe(["orders"])
    assert slot.store_assignment(encode_assignment(Assignment(ORDERS[:2])))
    slot.subscribe(["orders"])
    assert not slot.store_assignment(encode_assignment(Assignment(ORDERS)))


@pytest.mark.parametrize("state", [State.LOST, State.FENCED])
def test_what_the_group_has_given_up_already_is_neither_claimed_nor_taken_away(make, state):
    slot = make("cooperative-sticky")
    slot.member.status = replace(slot.member.status, state=state)
    assert said(slot)["cooperative-sticky"].owned == ()
    assert not slot.store_assignment(encode_assignment(Assignment(())))


def test_a_topic_that_is_no_longer_wanted_is_let_go_before_joining(make):
    slot = make("cooperative-sticky")
    assert said(slot, ["clicks"])["cooperative-sticky"].owned == ()
    assert not slot.store_assignment(encode_assignment(Assignment(())))


@pytest.mark.parametrize(("strategies", "phases"), [(["range"], False), (["cooperative-sticky", "range"], True)])
def test_whether_partitions_are_handed_over_hangs_on_the_groups_strategy(make, strategies, phases):
    assert make(*strategies).hands_over is phases


def test_under_an_eager_strategy_a_slot_claims_the_partitions_of_its_micro_batch(make):
    slot = make("range")
    (metadata,) = (decode_subscription(m) for _, m in slot.subscribe(["orders"], {ORDERS[1]}))
    assert (metadata.owned, metadata.generation) == (ORDERS[1:2], 4)
    assert said(slot)["range"].generation == -1


def test_what_an_eager_leader_holds_is_claimed_until_the_slot_rejoins_without_a_batch(make):
    slot = make("range")
    slot.subscribe(["orders"], {ORDERS[1]})
    assert not slot.store_assignment(encode_assignment(with_held(Assignment(ORDERS[:1]), ORDERS[1:2])), {ORDERS[1]})
    assert (slot.assignment.partitions, slot.held) == (ORDERS[:1], ORDERS[1:2])
    (metadata,) = (decode_subscription(m) for _, m in slot.subscribe(["orders"], {ORDERS[1]}))
    assert metadata.owned == ORDERS[1:2]
    assert said(slot)["range"].owned == ()
    assert not slot.store_assignment(encode_assignment(Assignment(ORDERS[:1])))
    assert slot.held == ()


def test_a_cooperative_slot_holds_what_its_micro_batch_reads_and_gives_up_the_rest_at_once(make):
    slot = make("cooperative-sticky")
    slot.subscribe(["orders"], {ORDERS[1]})
    assert slot.store_assignment(encode_assignment(Assignment(ORDERS[:1])), {ORDERS[1]})
    assert slot.held == ORDERS[1:2]
    slot.subscribe(["orders"], {ORDERS[1]})
    assert not slot.store_assignment(encode_assignment(Assignment(ORDERS[:1])), {ORDERS[1]})
    assert slot.held == ORDERS[1:2]


def test_copies_are_not_claimed(make):
    slot = make("redundant")
    (metadata,) = (decode_subscription(m) for _, m in slot.subscribe(["orders"], {ORDERS[1]}))
    assert metadata.owned == ()
