"""The rules of a member of the consumer protocol."""

import uuid
from dataclasses import replace
from typing import cast

from kafka_source.error_codes import NONE, ErrorCode
from kafka_source.group.consumer.member_state import (
    Answer,
    Heartbeat,
    IdPartition,
    Member,
    State,
    Subscription,
    answered,
    heartbeat,
    join,
    left,
    reconcile,
    unanswered,
)
from kafka_source.group.consumer.slot import ConsumerSlot
from kafka_source.group.model import GroupSettings
from kafka_source.kafka_client import KafkaClient

TOPIC = uuid.UUID(int=7)
NEW_TOPIC = uuid.UUID(int=8)
SUBSCRIPTION = Subscription(("orders",), 300_000)
FIRST, SECOND = IdPartition(TOPIC, 0), IdPartition(TOPIC, 1)


def beat(member: Member, answer: Answer) -> tuple[Heartbeat, Member]:
    sent = heartbeat(member, SUBSCRIPTION)
    return sent, answered(member, sent, answer)


def joined(*target: IdPartition, epoch: int = 3) -> Member:
    """A member that has its target and has said so."""
    _, member = beat(join(Member("a")), Answer(NONE, epoch, 500, frozenset(target)))
    _, member = beat(reconcile(member, {TOPIC}), Answer(NONE, epoch, 500))
    assert member.owned == frozenset(target)
    return member


def test_the_first_heartbeat_has_all_fields_and_no_partitions():
    sent, member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    assert sent == Heartbeat(0, SUBSCRIPTION, ())
    assert (member.state, member.epoch, member.interval_ms) == (State.MEMBER, 3, 500)
    assert member.target == {FIRST}


def test_what_was_taken_is_told_at_once_and_then_left_out():
    _, member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    taken = reconcile(member, {TOPIC})
    assert taken.has_news
    sent, member = beat(taken, Answer(NONE, 3))
    assert sent == Heartbeat(3, None, (FIRST,))
    assert not member.has_news
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(3, None, None)


def test_a_heartbeat_while_partitions_are_given_up_says_nothing_of_them():
    _, member = beat(joined(FIRST, SECOND), Answer(NONE, 3, 500, frozenset({SECOND})))
    assert member.revoking == {FIRST}
    assert not member.has_news
    assert heartbeat(member, SUBSCRIPTION).owned is None
    given_up = reconcile(member, {TOPIC})
    assert given_up.has_news
    assert heartbeat(given_up, SUBSCRIPTION).owned == (SECOND,)


def test_a_member_without_partitions_says_so_in_each_heartbeat():
    member = joined()
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(3, None, ())


def test_nothing_is_told_until_the_owner_has_acted_on_a_new_target():
    _, member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    # "Nothing" is still true, but not any more when the coordinator reads it.
    assert not member.has_news
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(3, None, None)
    assert heartbeat(reconcile(member, {TOPIC}), SUBSCRIPTION) == Heartbeat(3, None, (FIRST,))


def test_a_slot_asks_for_a_heartbeat_at_once_only_when_it_has_taken_something():
    slot = ConsumerSlot(0, cast(KafkaClient, None), GroupSettings("billing"))
    _, slot.member = beat(join(Member("a")), Answer(NONE, 3, 500, frozenset({FIRST})))
    assert slot.reconcile({TOPIC: "orders"}, ())
    assert slot.wake.is_set()
    # The coordinator is away. The heartbeat is sent again after a pause, and not at once.
    slot.wake.clear()
    slot.member = unanswered(slot.member)
    assert not slot.reconcile({TOPIC: "orders"}, ())
    assert not slot.wake.is_set()


def test_all_fields_are_sent_again_after_a_heartbeat_without_an_answer():
    _, member = beat(joined(FIRST, SECOND), Answer(NONE, 3, 500, frozenset({SECOND})))
    lost = unanswered(reconcile(member, {TOPIC}))
    assert heartbeat(lost, SUBSCRIPTION) == Heartbeat(3, SUBSCRIPTION, (SECOND,))
    # While it still needs what is taken away, it says so.
    assert heartbeat(unanswered(member), SUBSCRIPTION) == Heartbeat(3, SUBSCRIPTION, (FIRST, SECOND))


def test_all_fields_are_sent_until_the_epoch_has_changed_twice_after_a_heartbeat_without_an_answer():
    _, member = beat(unanswered(joined()), Answer(NONE, 3, 500, frozenset()))
    # Now the coordinator handles the one without an answer, and gives the member a partition in an answer that is lost.
    sent, member = beat(member, Answer(NONE, 4, 500, frozenset({FIRST})))
    assert sent == Heartbeat(3, SUBSCRIPTION, ())
    # In the next epoch the coordinator still takes it.
    sent, member = beat(reconcile(member, {TOPIC}), Answer(NONE, 4))
    assert sent == Heartbeat(4, SUBSCRIPTION, (FIRST,))
    sent, member = beat(member, Answer(NONE, 5))
    assert sent == Heartbeat(4, SUBSCRIPTION, (FIRST,))
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(5, None, None)


def test_a_subscription_that_has_changed_is_sent():
    other = replace(SUBSCRIPTION, topics=("orders", "payments"))
    member = joined(FIRST)
    sent = heartbeat(member, other)
    assert sent == Heartbeat(3, other, None)
    assert answered(member, sent, Answer(NONE, 4)).subscribed == other


def test_a_fenced_member_has_nothing_and_joins_again_with_its_id():
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
        _, member = beat(joined(FIRST), Answer(code))
        assert (member.state, member.owned, member.member_id) == (State.LOST, frozenset(), "a")
        assert heartbeat(join(member), SUBSCRIPTION) == Heartbeat(0, SUBSCRIPTION, ())


def test_a_member_that_is_fenced_before_it_knows_its_epoch_leaves_and_joins_again():
    sent, member = beat(unanswered(join(Member("a"))), Answer(ErrorCode.FENCED_MEMBER_EPOCH))
    assert sent.epoch == 0
    for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_MEMBER_EPOCH):
        # Repeated until a coordinator has answered.
        sent, member = beat(member, Answer(code))
    assert sent.epoch == 0
    for answer in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        sent, left = beat(member, Answer(answer, -1))
        assert sent == Heartbeat(-1, None, None)
        assert (left.state, heartbeat(left, SUBSCRIPTION)) == (State.JOINING, Heartbeat(0, SUBSCRIPTION, ()))


def test_a_group_that_is_gone_is_joined_again_and_one_of_another_kind_is_not():
    _, member = beat(joined(FIRST), Answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert (member.state, member.owned) == (State.LOST, frozenset())
    _, member = beat(join(member), Answer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert member.state is State.FAILED


def test_errors_that_pass_by_themselves_change_nothing_but_the_next_fields():
    member = joined(FIRST)
    for code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ):
        _, after = beat(member, Answer(code))
        assert (after.state, after.epoch, after.owned) == (State.MEMBER, 3, member.owned)
        assert heartbeat(after, SUBSCRIPTION) == Heartbeat(3, SUBSCRIPTION, (FIRST,))


def test_an_instance_id_that_is_still_in_use_is_asked_for_again():
    _, member = beat(join(Member("a")), Answer(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert (member.state, member.code) == (State.JOINING, ErrorCode.UNRELEASED_INSTANCE_ID)
    assert heartbeat(member, SUBSCRIPTION) == Heartbeat(0, SUBSCRIPTION, ())


def test_any_other_error_stops_the_member():
    for code in (
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ):
        _, member = beat(joined(FIRST), Answer(code))
        assert (member.state, member.code) == (State.FAILED, code)


def test_an_interval_that_is_not_positive_is_ignored():
    for interval in (0, -1):
        _, member = beat(joined(FIRST), Answer(NONE, 4, interval))
        assert member.interval_ms == 500


def test_a_topic_whose_name_is_not_known_yet_is_taken_later():
    new = IdPartition(NEW_TOPIC, 0)
    _, member = beat(joined(FIRST), Answer(NONE, 4, 500, frozenset({FIRST, new})))
    assert reconcile(member, {TOPIC}).owned == {FIRST}
    assert reconcile(member, {TOPIC, NEW_TOPIC}).owned == {FIRST, new}


def test_a_member_that_has_left_takes_nothing():
    assert reconcile(left(joined(FIRST)), {TOPIC}).owned == frozenset()


def test_an_offer_that_was_taken_back_is_acknowledged() -> None:
    _, member = beat(joined(FIRST), Answer(NONE, 4, 500, frozenset({FIRST, SECOND})))
    _, member = beat(member, Answer(NONE, 4, 500, frozenset({FIRST})))
    member = reconcile(member, {TOPIC})
    assert member.has_news
    assert heartbeat(member, SUBSCRIPTION).owned == (FIRST,)
