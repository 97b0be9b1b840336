from collections.abc import Mapping
from dataclasses import replace

import pytest

from assignors import (
    Assignment,
    AssignmentError,
    Assignor,
    ClusterMetadata,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_subscription,
    load,
)
from kafka_source.group.classic import leader
from kafka_source.group.model import GroupMember

CLUSTER = ClusterMetadata({"orders": 4, "clicks": 2})
MEMBERS = (
    GroupMember("m-a", "app-0", encode_subscription(Subscription(("orders",)))),
    GroupMember("m-b", None, encode_subscription(Subscription(("orders", "clicks"), rack="r1"))),
)
GROUP = leader.subscriptions(MEMBERS)


class Says(Assignor):
    """Says what it is told to."""

    name = "says"

    def __init__(self, plan: Mapping[str, list[tuple[str, int]]]) -> None:
        self._plan = plan

    def assign(self, cluster: ClusterMetadata, group: object) -> Mapping[str, Assignment]:
        return {m: Assignment(tuple(TopicPartition(*tp) for tp in tps)) for m, tps in self._plan.items()}


class Breaks(Assignor):
    name = "breaks"

    def assign(self, cluster: ClusterMetadata, group: object) -> Mapping[str, Assignment]:
        raise KeyError("no such thing")


def test_subscriptions_know_the_instance_ids() -> None:
    assert {
        "m-a": Subscription(("orders",), instance_id="app-0"),
        "m-b": Subscription(("clicks", "orders"), rack="r1"),
    } == GROUP
    assert leader.topics_of(GROUP) == {"orders", "clicks"}


def test_a_malformed_subscription_names_its_member() -> None:
    with pytest.raises(AssignmentError, match="member app-9 is malformed"):
        leader.subscriptions([GroupMember("m-x", "app-9", b"\x00")])


def test_a_good_plan_passes_and_is_encoded_for_everyone() -> None:
    plan = leader.assign(load("range"), CLUSTER, GROUP)
    states = leader.encode(plan)
    assert {m: decode_assignment(s).partitions for m, s in states.items()} == {
        m: tuple(a.partitions) for m, a in plan.items()
    }


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"m-a": [], "m-b": [], "m-c": []}, "m-c, which is not a member"),
        ({"m-a": []}, "returned no assignment for member m-b"),
        ({"m-a": [("orders", 4)], "m-b": []}, "orders-4, which does not exist"),
        ({"m-a": [("orders", -1)], "m-b": []}, "orders--1, which does not exist"),
        ({"m-a": [("ghosts", 0)], "m-b": []}, "ghosts-0, which does not exist"),
        ({"m-a": [("clicks", 0)], "m-b": []}, "clicks-0 to m-a, which does not subscribe to the topic"),
        ({"m-a": [("orders", 1)], "m-b": [("orders", 1)]}, "orders-1 to m-a and to m-b"),
        ({"m-a": [("orders", 1), ("orders", 1)], "m-b": []}, "a partition twice to m-a"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(plan: dict[str, list[tuple[str, int]]], problem: str) -> None:
    with pytest.raises(AssignmentError, match=f"the assignor says .*{problem}"):
        leader.assign(Says(plan), CLUSTER, GROUP)


def test_an_assignor_that_breaks_is_a_reason_too() -> None:
    with pytest.raises(AssignmentError, match="the assignor breaks failed: KeyError: 'no such thing'"):
        leader.assign(Breaks(), CLUSTER, GROUP)


def test_a_failure_reaches_every_member_as_an_empty_assignment_with_the_reason() -> None:
    states = leader.failure("orders has 4 partitions, clicks has 2 — no co-partitioning", MEMBERS)
    assert set(states) == {"m-a", "m-b"}
    for state in states.values():
        assignment = decode_assignment(state)
        assert assignment.partitions == ()
        assert leader.failure_reason(assignment) == "orders has 4 partitions, clicks has 2 — no co-partitioning"
    assert leader.failure_reason(Assignment((), b"of the assignor")) is None
    assert leader.failure_reason(Assignment(())) is None


def test_an_assignment_that_fits_is_kept() -> None:
    assert leader.stale(CLUSTER, GROUP, leader.assign(load("range"), CLUSTER, GROUP)) is None


def test_an_assignment_made_for_another_time_is_found_out() -> None:
    held = leader.assign(load("range"), CLUSTER, GROUP)
    grown = ClusterMetadata({"orders": 5, "clicks": 2})
    assert leader.stale(grown, GROUP, held) == "orders-4 is assigned to no member"
    shrunk = ClusterMetadata({"orders": 4, "clicks": 1})
    assert leader.stale(shrunk, GROUP, held) == "clicks-1 no longer exists"
    other = {**GROUP, "m-b": replace(GROUP["m-b"], topics=("orders",))}
    assert leader.stale(CLUSTER, other, held) == "topic clicks is no longer subscribed to"


def test_topics_that_the_leader_may_not_describe_are_told_by_member() -> None:
    refused = {"clicks": 29, "others": 29}
    assert leader.undescribed(GROUP, refused) == {"m-b": ("clicks",)}
    assert "cannot describe clicks (TOPIC_AUTHORIZATION_FAILED)" in leader.refusal(["clicks"], refused)
