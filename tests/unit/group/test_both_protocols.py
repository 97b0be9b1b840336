"""What `Membership` says in the same words for both protocols, before a broker has answered."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from assignors import load
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.consumer import member_state as consumer
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.membership import Membership
from kafka_source.group.model import GroupSettings, Topics

NOWHERE = Settings({"bootstrap.servers": "127.0.0.1:1"})
SETTINGS = GroupSettings("g", slots=3)
TOPICS = Topics(("orders",))


def classic(lost: Sequence[int]) -> Membership:
    made = ClassicMembership(NOWHERE, SETTINGS, TOPICS, [load("range")])
    for number in lost:
        made._slots[number].member.status = MemberStatus(State.LOST)
    return made


def by_brokers(lost: Sequence[int]) -> Membership:
    made = ConsumerMembership(NOWHERE, SETTINGS, TOPICS)
    for number in lost:
        made._slots[number].member = replace(made._slots[number].member, state=consumer.State.LOST)
    return made


@pytest.mark.parametrize("make", [classic, by_brokers])
@pytest.mark.parametrize(("lost", "named"), [([], None), ([1], "slot 1"), ([0, 2], "2 slots")])
def test_slots_that_the_group_has_removed_are_named(
    make: Callable[[Sequence[int]], Membership], lost: Sequence[int], named: str | None
) -> None:
    with closing(make(lost)) as membership:
        reason = membership.lost()
        if named is None:
            assert reason is None
        else:
            assert reason == f"the group has removed {named}, because {membership.removed_because}"


@pytest.mark.parametrize("make", [classic, by_brokers])
def test_slots_that_have_not_joined_have_no_assignment_and_close_twice(
    make: Callable[[Sequence[int]], Membership],
) -> None:
    membership = make([])
    with pytest.raises(ApplicationRecoverableError, match="have not joined group g"):
        _ = membership.assignment
    assert membership.take_rebalances() == ()
    with membership.rebalance_paused():
        membership.check()
    membership.close()
    membership.close()
