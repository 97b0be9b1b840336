"""A dry run gives what the leader would give."""

import pytest

from assignors import ClusterMetadata, Subscription, TopicPartition, load
from kafka_source.errors import AssignmentFailed, OptionError
from kafkagroup.admin.assignment_plan import PlanMember, members_of, plan
from kafkagroup.admin.rows import Group, MemberDescription, UserData

CLUSTER = ClusterMetadata({"orders": 6, "clicks": 6})
TOPICS = ("clicks", "orders")


def slots(count: int, **more: object) -> list[PlanMember]:
    return [PlanMember(f"slot-{n}", TOPICS, **more) for n in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky", "copartition", "rack-aware"])
def test_it_is_the_assignment_of_the_assignor_itself(name: str) -> None:
    rows = plan(name, CLUSTER, slots(4))
    group = {f"slot-{n}": Subscription(TOPICS, instance_id=f"slot-{n}") for n in range(4)}
    expected = load(name).assign(CLUSTER, group)
    assert {row.member: row.partitions for row in rows} == {
        member: tuple(sorted(given.partitions)) for member, given in expected.items()
    }
    assert [row.count for row in rows] == [len(row.partitions) for row in rows]


def test_weights() -> None:
    members = [PlanMember("big", TOPICS, options={"weight": 3}), PlanMember("small", TOPICS)]
    assert {row.member: row.count for row in plan("weighted", CLUSTER, members)} == {"big": 9, "small": 3}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "weighted"])
def test_what_a_new_member_moves(name: str) -> None:
    held = [tuple(sorted(row.partitions)) for row in plan(name, CLUSTER, slots(2))]
    before = [PlanMember(f"slot-{n}", TOPICS, owned=held[n]) for n in range(2)]
    rows = {row.member: row for row in plan(name, CLUSTER, [*before, PlanMember("new", TOPICS)])}
    assert rows["new"].gained == rows["new"].partitions
    assert rows["new"].count == 4
    assert {tp for n in range(2) for tp in rows[f"slot-{n}"].lost} == set(rows["new"].partitions)
    assert all(rows[f"slot-{n}"].gained == () for n in range(2))


def test_copies() -> None:
    rows = plan("redundant", ClusterMetadata({"orders": 4}), [PlanMember(f"m{n}", ("orders",)) for n in range(2)])
    assert [row.count for row in rows] == [4, 4]
    assert sorted(tp for row in rows for tp in row.standby) == [TopicPartition("orders", n) for n in range(4)]


def test_racks() -> None:
    cluster = ClusterMetadata({"orders": 4}, {"orders": [["a"], ["a"], ["b"], ["b"]]})
    members = [
        PlanMember("in-a", ("orders",), "a"),
        PlanMember("in-b", ("orders",), "b"),
        PlanMember("no", ("orders",)),
    ]
    assert {row.member: row.outside_rack for row in plan("range", cluster, members[:2])} == {"in-a": 0, "in-b": 0}
    assert {row.member: row.outside_rack for row in plan("roundrobin", cluster, members)}["no"] is None


def test_what_cannot_be_assigned() -> None:
    with pytest.raises(AssignmentFailed, match="copartition assigns nothing"):
        plan("copartition", ClusterMetadata({"orders": 6, "clicks": 4}), slots(2))
    with pytest.raises(OptionError, match="no assignor named 'nobody'"):
        plan("nobody", CLUSTER, slots(1))
    with pytest.raises(OptionError, match="weight"):
        plan("weighted", CLUSTER, [PlanMember("m", TOPICS, options={"weight": 0})])
    with pytest.raises(OptionError, match="at least one member"):
        plan("range", CLUSTER, [])


def test_members_of_a_group_keep_what_they_report() -> None:
    held = (TopicPartition("orders", 1),)
    member = MemberDescription("m-1", "app-0", "c", "h", held, ("orders",), "a", UserData(4, weight=3))
    group = Group("billing", "Stable", "weighted", (member,), "b:9092")
    assert members_of(group, "weighted", {}) == [PlanMember("app-0", ("orders",), "a", {"weight": 3}, held)]
    assert members_of(group, "sticky", {}) == [PlanMember("app-0", ("orders",), "a", {}, held)], "it takes no weight"
