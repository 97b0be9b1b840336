"""Claims under an eager strategy: what is held, for whom, and how the leader says it."""

from types import MappingProxyType

import pytest

from assignors import Assignment, Assignor, Subscription, TopicPartition, WireFormatError, encode_assignment, load
from kafka_source.group.classic.leader import Claims, hold, with_held, without_held

T = [TopicPartition("t", n) for n in range(4)]


def group(generation: int = 6, **owned: list[TopicPartition]) -> dict[str, Subscription]:
    return {
        member: Subscription(("t",), owned=tuple(claimed), generation=generation) for member, claimed in owned.items()
    }


def plan(**given: list[TopicPartition]) -> dict[str, Assignment]:
    return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}


def held_of(
    members: dict[str, Subscription],
    planned: dict[str, Assignment],
    assignor: Assignor | None = None,
    before: Claims = MappingProxyType({}),
) -> tuple[dict[str, list[TopicPartition]], dict[str, tuple[TopicPartition, ...]]]:
    kept, held = hold(assignor or load("range"), members, planned, range(5, 7), before)
    return {member: list(assignment.partitions) for member, assignment in kept.items()}, held


def test_a_claimed_partition_that_another_member_would_get_is_nobodys_and_held() -> None:
    kept, held = held_of(group(a=T[:3], b=[]), plan(a=T[:2], b=T[2:]))
    assert kept == {"a": T[:2], "b": T[3:]}
    assert held == {"a": (T[2],)}


def test_a_claim_counts_where_the_generation_after_it_had_no_assignments() -> None:
    assert held_of(group(5, a=T[:3], b=[]), plan(a=T[:2], b=T[2:]))[1] == {"a": (T[2],)}


def test_an_older_claim_counts_where_the_leader_has_kept_it_meanwhile() -> None:
    before = {"a": {T[1], T[2]}, "b": {T[3]}}
    assert held_of(group(4, a=T[:3], b=[]), plan(a=[], b=T), before=before)[1] == {"a": (T[1], T[2])}


def test_what_stays_with_its_member_or_is_nobodys_is_not_held() -> None:
    planned = plan(a=T[:2], b=T[3:])
    assert held_of(group(a=T[:3], b=T[3:]), planned) == ({"a": T[:2], "b": T[3:]}, {})


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (group(4, a=T[:2], b=[]), "of an older generation"),
        (group(7, a=T[:2], b=[]), "of a group that was deleted, whose numbers have begun again"),
        (group(6, a=T[:2], b=T[:2]), "contradicting"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_claims_that_may_be_outdated_do_not_count(members: dict[str, Subscription], why: str) -> None:
    assert held_of(members, plan(a=[], b=T))[1] == {}, why


@pytest.mark.parametrize("name", ["redundant", "cooperative-sticky"])
def test_other_strategies_are_left_alone(name: str) -> None:
    assert held_of(group(a=T[:2], b=[]), plan(a=[], b=T), load(name)) == ({"a": [], "b": T}, {})


@pytest.mark.parametrize("data", [None, b"", b"of the strategy"])
def test_the_leader_says_what_is_held_beside_the_strategys_own_data(data: bytes | None) -> None:
    own = Assignment(tuple(T[:2]), data)
    assert without_held(own) == (own, ())
    assert with_held(own, ()) is own
    assert without_held(with_held(own, (T[2], T[3]))) == (own, (T[2], T[3]))


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x00\x00"]
)
def test_malformed_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        without_held(Assignment((), b"kafkagroup:held:" + data))


def test_nothing_is_held_in_an_assignment_of_another_client() -> None:
    (own, held) = without_held(Assignment((), encode_assignment(Assignment(tuple(T)))))
    assert held == ()
    assert own.partitions == ()
