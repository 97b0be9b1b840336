"""`weighted`: partitions in proportion to capacities."""

import pytest

from assignors import AssignmentError, ClusterMetadata, Subscription, load
from assignors.weighted import WeightedAssignor


def test_twice_the_capacity_gets_twice_the_partitions() -> None:
    group = {
        name: Subscription(["t"], WeightedAssignor(weight).subscription_user_data(["t"]))
        for name, weight in {"A": 1, "B": 2, "C": 3}.items()
    }
    answer = WeightedAssignor().assign(ClusterMetadata({"t": 60}), group)
    assert [len(given.partitions) for given in answer.values()] == [10, 20, 30]


def test_who_says_nothing_counts_as_one() -> None:
    heavy = WeightedAssignor(3).subscription_user_data(["t"])
    group = {"A": Subscription(["t"], heavy), "B": Subscription(["t"])}
    answer = WeightedAssignor().assign(ClusterMetadata({"t": 8}), group)
    assert [len(given.partitions) for given in answer.values()] == [6, 2]


def test_a_change_of_weight_moves_only_what_it_must() -> None:
    members = {name: WeightedAssignor(weight) for name, weight in (("A", 1), ("B", 1))}
    cluster = ClusterMetadata({"t": 12})
    group = {name: Subscription(["t"], member.subscription_user_data(["t"])) for name, member in members.items()}
    before = members["A"].assign(cluster, group)
    stronger = WeightedAssignor(2)
    stronger.on_assignment(before["A"], 1)
    members["B"].on_assignment(before["B"], 1)
    group = {
        "A": Subscription(["t"], stronger.subscription_user_data(["t"])),
        "B": Subscription(["t"], members["B"].subscription_user_data(["t"])),
    }
    after = stronger.assign(cluster, group)
    assert set(before["A"].partitions) < set(after["A"].partitions)
    assert len(after["A"].partitions) == 8


@pytest.mark.parametrize("weight", [0, -1, 2**31, 1.5, True, "2"])
def test_a_wrong_weight_is_refused(weight: object) -> None:
    with pytest.raises(ValueError, match="weight must be a whole number"):
        load("weighted", {"weight": weight})


def test_a_wrong_weight_of_another_member_fails_the_assignment() -> None:
    with pytest.raises(AssignmentError, match="member A reports weight 0"):
        WeightedAssignor().assign(ClusterMetadata({"t": 1}), {"A": Subscription(["t"], bytes(12))})
