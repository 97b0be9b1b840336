"""The rules of a join over all slots: one generation, who reads, what no longer matches. Without a broker."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import Assignment, ClusterMetadata, TopicPartition, encode_assignment, load
from kafka_source.client_config import Settings
from kafka_source.errors import AssignmentFailed
from kafka_source.group.classic.joining import (
    are_rewinding,
    assignment_of,
    member_ids,
    one_generation,
    raise_failed_assignment,
    stale_of_follower,
    unowned_partitions,
)
from kafka_source.group.classic.leader import failure
from kafka_source.group.classic.member import Joined
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.classic.slot import Slot
from kafka_source.group.model import GroupMember, GroupSettings
from kafka_source.kafka_client import KafkaClient

NAMES = ("clicks", "orders", "users")
P = [TopicPartition("orders", number) for number in range(4)]
Make = Callable[..., Slot]


@pytest.fixture(scope="module")
def client() -> Iterator[KafkaClient]:
    with closing(KafkaClient(Settings({"bootstrap.servers": "127.0.0.1:1"}))) as made:
        yield made


@pytest.fixture
def make(client: KafkaClient) -> Make:
    """Makes a slot that has joined: its number, generation, protocol, leader, partitions."""

    def make(
        number: int, generation: int, *, protocol: str = "range", leader: str = "m0", partitions: tuple[int, ...] = ()
    ) -> Slot:
        slot = Slot(number, client, GroupSettings("g", "app", 3), [load("range")])
        slot.subscribe(["orders"])
        slot.member.status = MemberStatus(State.STABLE, f"m{number}", generation)
        slot.member.joined = Joined(f"m{number}", generation, protocol, leader, (), False)
        slot.store_assignment(encode_assignment(Assignment(tuple(P[n] for n in partitions))))
        return slot

    return make


def test_slots_of_one_generation_are_settled(make: Make) -> None:
    assert one_generation([make(0, 4), make(1, 4)])
    assert not one_generation([make(0, 4), make(1, 5)])


def test_nobody_reads_in_a_generation_of_the_rewinds_protocol(make: Make) -> None:
    assert not are_rewinding([make(0, 4), make(1, 4)])
    assert are_rewinding([make(0, 4), make(1, 4, protocol="kafkagroup-rewind:range")])


def test_the_assignment_of_all_slots_says_who_leads_and_who_assigned(make: Make) -> None:
    slots = [make(0, 4, partitions=(0, 1)), make(1, 4, partitions=(2,))]
    found = assignment_of(slots)
    assert (found.generation, found.assignor, found.leading) == (4, "range", True)
    assert [slot.partitions for slot in found.slots] == [(P[0], P[1]), (P[2],)]
    assert member_ids(slots) == {"m0", "m1"}


def test_a_failed_assignment_is_an_error_with_the_leaders_reason(make: Make) -> None:
    slot = make(0, 4)
    raise_failed_assignment("g", [slot])
    slot.store_assignment(failure("topic orders is unknown", [GroupMember("m0", None, b"")])["m0"])
    with pytest.raises(AssignmentFailed, match="leader of group g could not assign partitions: topic orders is unkno"):
        raise_failed_assignment("g", [slot])


def test_a_follower_gives_up_a_topic_that_it_no_longer_subscribes_to() -> None:
    kept = Assignment((P[0],))
    assert stale_of_follower(["clicks"], P[:1], [kept], NAMES) == "topic orders is no longer subscribed to"
    assert stale_of_follower(["clicks", "orders"], P[:1], [kept], ["orders"]) is None
    assert stale_of_follower(["clicks", "orders"], P[:1], [kept], NAMES) == "topic clicks is assigned to no member"


TOPICS = st.frozensets(st.sampled_from(NAMES))
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from(NAMES), st.integers(0, 2)))


@given(TOPICS, PARTITIONS, PARTITIONS, TOPICS)
def test_an_assignment_matches_a_follower_if_it_has_only_its_topics_and_somebody_has_each(
    topics: frozenset[str], own: frozenset[TopicPartition], others: frozenset[TopicPartition], existing: frozenset[str]
) -> None:
    assignments = [Assignment(tuple(own)), Assignment(tuple(others))]
    matches = {tp.topic for tp in own} <= topics and topics & existing <= {tp.topic for tp in own | others}
    assert (stale_of_follower(topics, own, assignments, existing) is None) == matches


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3)), PARTITIONS, PARTITIONS)
def test_each_partition_of_the_topics_has_an_owner_or_is_named(
    counts: dict[str, int], one: frozenset[TopicPartition], other: frozenset[TopicPartition]
) -> None:
    assignments = [Assignment(tuple(one)), Assignment(tuple(other))]
    unowned = unowned_partitions(ClusterMetadata(counts), assignments)
    every = {TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}
    assert {*unowned} == every - one - other
    assert unowned == sorted({*unowned})
