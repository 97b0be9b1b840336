"""Which partitions have no reader, and after which looks they are healed."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from assignors import Assignment, Subscription, TopicPartition, encode_assignment, encode_subscription
from kafka_source.group.classic.leader import read_by_members, with_held
from kafka_source.group.model import GroupMember
from kafka_source.group.requests import STABLE, DescribedMember, GroupDescription
from kafka_source.group.unread import Found, Look, decide, read_as_assigned_by_brokers
from kafka_source.kafka_client.messages.group import ConsumerGroupDescribeResponse

P = [TopicPartition("orders", number) for number in range(4)]
ALL = frozenset(P)
parts = st.frozensets(st.sampled_from(P))
Described = ConsumerGroupDescribeResponse.DescribedGroup


@given(st.lists(st.builds(Look, st.integers(1, 3), parts, parts), max_size=12))
def test_only_what_two_looks_of_one_epoch_find_unread_is_healed_and_once(looks: list[Look]) -> None:
    found, last, before = Found(), Look(-1, frozenset(), frozenset()), frozenset[TopicPartition]()
    healed: set[TopicPartition] = set()
    for look in looks:
        found = decide(found, look)
        unread = (look.existing & last.existing) - look.read
        equal = unread & before if look.epoch == last.epoch else frozenset()
        healed &= unread
        assert found.heal == equal - healed
        assert found.warn <= equal & healed
        assert not found.heal & look.read
        healed |= found.heal
        last, before = look, unread


def test_a_new_partition_is_healed_in_the_third_look_then_told_once_and_again_after_it_was_read() -> None:
    found, said = Found(), []
    for look in [*[Look(5, ALL, ALL - {P[1]})] * 6, Look(6, ALL, ALL), *[Look(6, ALL, ALL - {P[1]})] * 4]:
        found = decide(found, look)
        said.append((len(found.heal), len(found.warn)))
    assert said == [(0, 0)] * 2 + [(1, 0), (0, 1)] + [(0, 0)] * 4 + [(1, 0), (0, 1), (0, 0)]


def _member(name: str, state: bytes, *owned: TopicPartition) -> DescribedMember:
    metadata = encode_subscription(Subscription(("orders",), owned=owned))
    return DescribedMember(GroupMember(name, None, metadata), state, "c", "h", frozenset({"orders"}))


def test_in_a_classic_group_held_and_claimed_partitions_are_read_and_own_slots_say_what_they_have() -> None:
    holding = with_held(Assignment((P[0],)), (P[1],))
    members = (_member("a", encode_assignment(holding)), _member("b", b"\0\0" + bytes(8), P[2]))
    mine = _member("mine", encode_assignment(Assignment((P[3],))))
    group = GroupDescription(STABLE, "consumer", "range", (*members, mine))
    assert read_by_members(group, {"mine": ()}) == ALL - {P[3]}
    assert read_by_members(group, {"mine": (P[3],)}) == ALL
    assert read_by_members(group, {"gone": ()}) is None
    assert read_by_members(GroupDescription("PreparingRebalance", "consumer", "", group.members), {"mine": ()}) is None
    unknown = GroupDescription(STABLE, "consumer", "own", (*group.members, _member("c", b"\xff")))
    assert read_by_members(unknown, {"mine": ()}) is None


def _of_brokers(members: int, topics: list[str], state: str = STABLE) -> Described:
    def assignment(member: int) -> Described.Member.Assignment:
        topic_type = Described.Member.Assignment.TopicPartitions
        return Described.Member.Assignment([topic_type(uuid.UUID(int=1), name, [member]) for name in topics])

    return Described(
        group_id="g",
        group_state=state,
        group_epoch=7,
        assignment_epoch=7,
        assignor_name="uniform",
        members=[
            Described.Member(
                member_id=f"m{number}",
                member_epoch=7,
                subscribed_topic_names=topics,
                assignment=assignment(number),
                target_assignment=assignment(number),
            )
            for number in range(members)
        ],
    )


def test_what_brokers_have_given_to_a_slot_that_does_not_have_it_is_unread() -> None:
    assert read_as_assigned_by_brokers(_of_brokers(3, ["orders"]), {"m0": ()}) == frozenset(P[1:3])
    assert read_as_assigned_by_brokers(_of_brokers(3, ["orders"]), {"m0": (P[0],)}) == frozenset(P[:3])
    assert read_as_assigned_by_brokers(_of_brokers(3, ["orders"], "Reconciling"), {"m0": ()}) is None
    assert read_as_assigned_by_brokers(_of_brokers(3, ["orders"]), {"gone": ()}) is None
