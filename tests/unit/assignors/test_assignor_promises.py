"""Every strategy keeps its promises in random groups' lives, by the test kit that users have too."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from assignors import Assignment, Assignor, ClusterMetadata, GroupSubscription, RebalanceProtocol, load
from assignors.testing import check_assignor
from examples.my_assignor import FewestBytesAssignor

EXAMPLES = 20

# `check_assignor` draws its groups with Hypothesis.
pytestmark = pytest.mark.hypothesis


@pytest.mark.parametrize(
    ("name", "options", "promises"),
    [
        ("range", {}, {"balanced": False, "sticky": False}),
        ("roundrobin", {}, {"balanced": False, "sticky": False}),
        ("roundrobin", {}, {"mixed": False, "sticky": False}),
        ("sticky", {}, {"racks": False}),
        # With racks Java's algorithm, and so ours, lets partitions wander that are off every free member's rack.
        ("sticky", {}, {"sticky": False}),
        ("cooperative-sticky", {}, {"racks": False}),
        ("cooperative-sticky", {}, {"sticky": False}),
        ("rack-aware", {}, {"racks": False}),
        ("rack-aware", {}, {"sticky": False}),
        ("copartition", {"mismatch": "refuse", "groups": []}, {"balanced": False, "sticky": False}),
        ("redundant", {}, {"copies": 2}),
        ("redundant", {"copies": 3}, {"copies": 3}),
        ("weighted", {}, {}),
        # Without lags it is `sticky`.
        ("lag-balanced", {}, {"racks": False}),
    ],
)
def test_promises(name: str, options: Mapping[str, object], promises: dict[str, Any]) -> None:
    check_assignor(lambda: load(name, options), examples=EXAMPLES, **promises)


def test_the_template_for_users() -> None:
    check_assignor(FewestBytesAssignor, balanced=False, sticky=False, examples=EXAMPLES)


class Bad(Assignor):
    """A range that is wrong in one way."""

    name: ClassVar[str] = "bad"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        return load("range").assign(cluster, group)


class ForgetsMembers(Bad):
    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        return {member: given for member, given in super().assign(cluster, group).items() if given.partitions}


class LosesPartitions(Bad):
    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        return {member: Assignment(given.partitions[1:]) for member, given in super().assign(cluster, group).items()}


class GivesTwice(Bad):
    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        return load("redundant").assign(cluster, group)


class TransfersAtOnce(Bad):
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (ForgetsMembers, "no assignment for member"),
        (LosesPartitions, "not assigned to enough members"),
        (GivesTwice, "is assigned to 2 members"),
        (TransfersAtOnce, "before the owner revoked it"),
        (Bad, "two fewer"),
    ],
)
def test_the_kit_finds_what_is_wrong(wrong: type[Assignor], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_assignor(wrong, balanced=wrong is Bad, sticky=False, examples=200, shrink=False)
