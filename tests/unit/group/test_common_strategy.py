from __future__ import annotations

import json

import pytest

from assignors import Subscription, decode_assignment, encode_subscription
from kafka_source.group import strategies
from kafka_source.group.model import GroupMember
from kafka_source.group.strategies import Offer, kept, others_refused, refused, why_refused

RANGE = Offer(("range",))
STICKY = Offer(("sticky",))
BOTH = Offer(("cooperative-sticky", "range"))


def inside(offer: Offer, present: str) -> Offer:
    return Offer(offer.strategies, present)


@pytest.mark.parametrize(
    ("offers", "strategy", "out"),
    [
        ([inside(RANGE, "range"), STICKY], "range", [1]),
        # Newcomers do not outvote members.
        ([inside(RANGE, "range"), STICKY, STICKY, STICKY], "range", [1, 2, 3]),
        # Members that have a second strategy meet a newcomer there.
        ([inside(BOTH, "cooperative-sticky"), inside(BOTH, "cooperative-sticky"), RANGE, STICKY], "range", [3]),
        ([inside(BOTH, "cooperative-sticky"), STICKY], "cooperative-sticky", [1]),
        # In an empty group most members count, then the name.
        ([RANGE, STICKY], "range", [1]),
        ([STICKY, STICKY, RANGE], "sticky", [2]),
        # Who rewinds the group, or does not say what it has, is not refused.
        ([inside(RANGE, "range"), Offer()], "range", []),
        ([inside(RANGE, "range"), STICKY, Offer()], "range", [1]),
        ([Offer()], None, []),
    ],
)
def test_who_is_refused(offers: list[Offer], strategy: str | None, out: list[int]) -> None:
    named = {str(number): offer for number, offer in enumerate(offers)}
    assert kept(named) == strategy
    assert sorted(refused(named)) == list(map(str, out))
    # Whoever leads decides the same.
    assert kept(dict(reversed(named.items()))) == strategy


def test_an_offer_survives_the_wire() -> None:
    offer = inside(BOTH, "range")
    assert Offer.from_bytes(offer.to_bytes()) == offer
    assert Offer.from_bytes(Offer().to_bytes()) == Offer()


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xff\xfe",
        b"[" * 4000,
        b"[]",
        b'"text"',
        b'{"version":2,"strategies":["range"]}',
        b'{"version":1}',
        b'{"version":1,"strategies":"range"}',
        b'{"version":1,"strategies":[1]}',
        b'{"version":1,"strategies":[""]}',
        b'{"version":1,"strategies":["range\\nERROR all is lost"]}',
        json.dumps({"version": 1, "strategies": ["a"] * 101}).encode(),
        json.dumps({"version": 1, "strategies": ["a" * 250]}).encode(),
        json.dumps({"version": 1, "strategies": ["range"], "more": "x" * 5000}).encode(),
    ],
)
def test_what_no_member_of_ours_sends_says_nothing(data: bytes | None) -> None:
    assert Offer.from_bytes(data) == Offer()


def test_a_present_strategy_that_is_not_offered_is_none() -> None:
    assert Offer.from_bytes(inside(RANGE, "sticky").to_bytes()) == RANGE


def member(member_id: str, offer: Offer, instance_id: str | None = None) -> GroupMember:
    return GroupMember(member_id, instance_id, strategies.offer(offer)[1])


def test_the_leader_tells_the_refused_why_and_the_others_whom() -> None:
    states = strategies.lead([member("a", inside(RANGE, "range")), member("b", STICKY, "app-0"), member("r", Offer())])
    said = {one: decode_assignment(state) for one, state in states.items()}
    assert not any(one.partitions for one in said.values())
    why = "it offers sticky, and the group uses range; other members offer range"
    assert {one: why_refused(assignment) for one, assignment in said.items()} == {"a": None, "b": why, "r": None}
    assert others_refused(said["a"]) == others_refused(said["r"]) == f"app-0 ({why})"


def test_in_a_rewind_nobody_is_refused() -> None:
    malformed = GroupMember("m", None, b"\x00")
    plain = GroupMember("p", None, encode_subscription(Subscription(())))
    states = strategies.lead([member("a", inside(RANGE, "range")), member("r", Offer()), malformed, plain])
    assert set(states.values()) == {states["a"]}
    assert decode_assignment(states["a"]).user_data is None
