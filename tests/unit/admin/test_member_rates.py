"""The rate of each member, from two looks at its group."""

from assignors.model import TopicPartition
from kafkagroup.admin.lag import rates_of
from kafkagroup.admin.rows import MemberDescription, Rows

T = [TopicPartition("t", n) for n in range(4)]


def member(name: str, *partitions: TopicPartition) -> MemberDescription:
    return MemberDescription(name, None, "c", "h", partitions)


def test_what_each_member_has_committed() -> None:
    group = (member("a", T[0], T[1]), member("b", T[2]), member("idle"))
    before, now = {T[0]: 100, T[1]: 7, T[2]: 50}, {T[0]: 130, T[1]: 17, T[2]: 50}
    assert rates_of(group, before, group, now, 4.0) == {"a": 10.0, "b": 0.0, "idle": 0.0}


def test_partitions_that_have_just_moved_do_not_count() -> None:
    before = (member("a", T[0], T[1]),)
    now = (member("a", T[0]), member("b", T[1]))
    assert rates_of(before, {T[0]: 0, T[1]: 0}, now, {T[0]: 10, T[1]: 1000}, 1.0) == {"a": 10.0, "b": None}


def test_a_first_commit_and_a_rewind_are_no_rate() -> None:
    group = (member("a", T[0]), member("b", T[1]))
    assert rates_of(group, {T[1]: 90}, group, {T[0]: 500, T[1]: 10}, 1.0) == {"a": None, "b": 0.0}


def test_the_columns_of_members_in_arrow() -> None:
    table = Rows(MemberDescription, (member("a", T[0]),)).to_arrow()
    assert table.column("rate").to_pylist() == [None]
    assert str(table.schema.field("rate").type) == "double"
