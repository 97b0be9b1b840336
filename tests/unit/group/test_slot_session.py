from __future__ import annotations

from assignors import ClusterMetadata, Subscription, TopicPartition, decode_subscription, encode_subscription, load
from kafka_source.group.slot_session import KeepsOwned, claiming
from kafka_source.model.credentials import SlotCredentials

T = [TopicPartition("t", n) for n in range(6)]
CLUSTER = ClusterMetadata({"t": 6})


def plan(**owned: list[TopicPartition]) -> dict[str, list[TopicPartition]]:
    group = {member: Subscription(("t",), owned=tuple(claimed)) for member, claimed in owned.items()}
    answer = KeepsOwned(load("range")).assign(CLUSTER, group)
    return {member: sorted(assignment.partitions) for member, assignment in answer.items()}


def test_what_is_held_stays_and_the_rest_goes_to_those_who_hold_nothing() -> None:
    assert plan(a=T[:2], b=[], c=T[4:]) == {"a": T[:2], "b": T[2:4], "c": T[4:]}


def test_what_two_claim_is_nobodys_and_what_is_gone_is_dropped() -> None:
    assert plan(a=T[:2], b=T[1:3]) == {"a": T[:1], "b": T[2:3]}
    assert plan(a=[TopicPartition("t", 9), TopicPartition("gone", 0)]) == {"a": T}


def test_a_take_over_claims_what_its_slot_was_assigned() -> None:
    said = encode_subscription(Subscription(("t",), user_data=b"u", rack="r"))
    credentials = SlotCredentials("g", 4, "m", "app-0", 0, tuple(T[:2]), (("range", said),))
    ((name, metadata),) = claiming(credentials)
    assert name == "range"
    assert decode_subscription(metadata) == Subscription(("t",), b"u", tuple(T[:2]), 4, "r")
