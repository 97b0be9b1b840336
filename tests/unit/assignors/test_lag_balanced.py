"""`lag-balanced`: from lags, rates and user data to assignments."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import (
    Assignment,
    AssignmentError,
    ClusterMetadata,
    Measures,
    PartitionWork,
    StickyUserData,
    Subscription,
    TopicPartition,
    encode_sticky_user_data,
    load,
)
from assignors.lag_balanced import LagBalancedAssignor, decode_measures, encode_measures
from assignors.testing import measure

TOPICS = ("a", "b", "c")


def member(
    topics: Sequence[str] = TOPICS,
    speed: float | None = None,
    owned: Sequence[TopicPartition] = (),
    rates: Mapping[TopicPartition, float] | None = None,
    rack: str | None = None,
) -> Subscription:
    data = encode_measures(Measures(speed, rates or {}), StickyUserData(owned, 1 if owned else -1))
    return Subscription(topics, data, rack=rack)


def lags(topic: str, *numbers: int | None, rate: float | None = None) -> dict[TopicPartition, PartitionWork]:
    return {TopicPartition(topic, number): PartitionWork(lag, rate) for number, lag in enumerate(numbers)}


def lag_of(given: Assignment, work: Mapping[TopicPartition, PartitionWork]) -> int:
    return sum(work[tp].lag or 0 for tp in given.partitions)


def owners(answer: Mapping[str, Assignment]) -> dict[TopicPartition, str]:
    return {tp: name for name, given in answer.items() for tp in given.partitions}


@st.composite
def groups(draw: st.DrawFn, *, work: bool = True) -> tuple[ClusterMetadata, dict[str, Subscription]]:
    counts = {topic: draw(st.integers(0, 6)) for topic in TOPICS}
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    known: dict[TopicPartition, PartitionWork] = {}
    if work:
        figures = st.builds(
            PartitionWork, st.none() | st.integers(-5, 10**6), st.none() | st.floats(0, 1e5, allow_nan=False)
        )
        known = {tp: draw(figures) for tp in partitions if draw(st.booleans())}
    names = draw(st.lists(st.sampled_from("KLMNOP"), unique=True, min_size=1))
    place = st.sampled_from(["r1", "r2"])
    racks = {topic: draw(st.lists(st.lists(place, unique=True), max_size=count)) for topic, count in counts.items()}
    left = list(partitions)
    group = {}
    for name in names:
        topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
        owned = [tp for tp in left if draw(st.booleans())]
        left = [tp for tp in left if tp not in owned or draw(st.integers(0, 9)) == 0]
        speed = draw(st.none() | st.floats(1e-3, 1e6)) if work else None
        rates = {tp: draw(st.floats(0, 1e4)) for tp in owned} if work and draw(st.booleans()) else {}
        group[name] = member(topics, speed, owned, rates, draw(st.none() | place))
        if draw(st.integers(0, 9)) == 0:
            group[name] = Subscription(topics, draw(st.none() | st.binary(max_size=40)))
    return ClusterMetadata(counts, racks, known), group


@settings(deadline=None, max_examples=60)
@given(groups())
def test_every_assignment_is_valid_and_complete(case: tuple[ClusterMetadata, dict[str, Subscription]]) -> None:
    cluster, group = case
    figures = measure(cluster, group, load("lag-balanced").assign(cluster, group), {})
    assert not figures.invalid
    assert not figures.uncovered


@settings(deadline=None, max_examples=40)
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_members_topics_and_figures_makes_no_difference(
    case: tuple[ClusterMetadata, dict[str, Subscription]], chance: random.Random
) -> None:
    cluster, group = case

    def shuffled(table):
        return dict(chance.sample(list(table.items()), len(table)))

    other = ClusterMetadata(shuffled(cluster.partitions), shuffled(cluster.racks), shuffled(cluster.work))
    before, after = (
        load("lag-balanced").assign(seen, members) for seen, members in ((cluster, group), (other, shuffled(group)))
    )
    assert owners(before) == owners(after)


@settings(deadline=None, max_examples=40)
@given(groups(work=False))
def test_where_nothing_is_known_the_assignment_is_that_of_sticky(
    case: tuple[ClusterMetadata, dict[str, Subscription]],
) -> None:
    cluster, group = case
    said = {name: decode_measures(sub.user_data).claim for name, sub in group.items()}
    sticky = {
        name: Subscription(sub.topics, encode_sticky_user_data(*said[name]), rack=sub.rack)
        for name, sub in group.items()
    }
    assert owners(load("lag-balanced").assign(cluster, group)) == owners(load("sticky").assign(cluster, sticky))


@settings(deadline=None, max_examples=40)
@given(groups())
def test_co_partitioned_topics_stay_together(case: tuple[ClusterMetadata, dict[str, Subscription]]) -> None:
    cluster, group = case
    cluster = ClusterMetadata({**cluster.partitions, "b": cluster.partitions["a"]}, cluster.racks, cluster.work)
    alike = {name: Subscription(TOPICS, sub.user_data, rack=sub.rack) for name, sub in group.items()}
    answer = load("lag-balanced", {"groups": [["a", "b"]]}).assign(cluster, alike)
    figures = measure(cluster, alike, answer, {})
    assert not figures.invalid
    assert not figures.uncovered
    for given_ in answer.values():
        numbers = {topic: {tp.partition for tp in given_.partitions if tp.topic == topic} for topic in "ab"}
        assert numbers["a"] == numbers["b"]


def test_members_get_work_in_proportion_to_their_speeds() -> None:
    work = lags("a", 100_000, 50_000, 30_000, 25_000, 20_000, 15_000, 10_000, 5_000, 3_000, 2_000)
    group = {"fast": member(["a"], 900.0), "slow": member(["a"], 300.0)}
    answer = load("lag-balanced").assign(ClusterMetadata({"a": 10}, work=work), group)
    assert lag_of(answer["slow"], work) == pytest.approx(260_000 / 4, rel=0.05)


def test_the_rate_of_the_horizon_counts_as_lag_does() -> None:
    # No lag anywhere; one partition grows as fast as the three others together.
    work = {TopicPartition("a", number): PartitionWork(0, 30.0 if number == 2 else 10.0) for number in range(4)}
    group = {"M": member(["a"], 100.0), "N": member(["a"], 100.0)}
    answer = load("lag-balanced").assign(ClusterMetadata({"a": 4}, work=work), group)
    assert sorted(len(given.partitions) for given in answer.values()) == [1, 3]


def test_members_tell_rates_that_the_leader_does_not_know() -> None:
    partitions = [TopicPartition("a", number) for number in range(4)]
    rates = {tp: 30.0 if tp.partition == 2 else 10.0 for tp in partitions}
    group = {"M": member(["a"], 100.0, partitions, rates), "N": member(["a"], 100.0)}
    answer = load("lag-balanced").assign(ClusterMetadata({"a": 4}), group)
    assert sorted(len(given.partitions) for given in answer.values()) == [1, 3]


def test_a_member_of_unknown_speed_gets_its_share_by_number() -> None:
    work = lags("a", *[1000 >> number // 4 for number in range(40)])
    group = {"ours-1": member(["a"], 500.0), "ours-2": member(["a"], 500.0), "theirs": Subscription(["a"], b"???")}
    answer = load("lag-balanced").assign(ClusterMetadata({"a": 40}, work=work), group)
    assert len(answer["theirs"].partitions) in (13, 14)


def test_a_speed_that_is_far_from_the_others_is_not_believed() -> None:
    work = lags("a", *[1000] * 300)
    for odd in (1e-6, 1e9):
        group = {"M": member(["a"], 100.0), "N": member(["a"], 100.0), "odd": member(["a"], odd)}
        answer = load("lag-balanced").assign(ClusterMetadata({"a": 300}, work=work), group)
        assert all(given.partitions for given in answer.values())


def test_a_group_without_work_keeps_what_it_has_and_shares_the_rest_by_number() -> None:
    work = lags("a", *[0] * 9, rate=0.0)
    held = {name: [TopicPartition("a", n) for n in numbers] for name, numbers in (("M", (0, 1, 2)), ("N", (3, 4, 5)))}
    group = {name: member(["a"], 100.0, owned) for name, owned in held.items()} | {"O": member(["a"])}
    answer = load("lag-balanced").assign(ClusterMetadata({"a": 9}, work=work), group)
    assert [len(answer[name].partitions) for name in "MNO"] == [3, 3, 3]
    assert all(set(held[name]) <= set(answer[name].partitions) for name in "MN")


def test_partitions_prefer_their_rack() -> None:
    racks = {"a": [["r1"], ["r2"]] * 6}
    group = {"M": member(["a"], 10.0, rack="r1"), "N": member(["a"], 10.0, rack="r2")}
    cluster = ClusterMetadata({"a": 12}, racks, lags("a", *[500] * 12))
    assert measure(cluster, group, load("lag-balanced").assign(cluster, group), {}).rack_mismatches == 0


def test_a_set_whose_topics_differ_is_refused_with_the_reason() -> None:
    with pytest.raises(AssignmentError, match="a has 4, b has 6; make them equal, or take them out of the set"):
        load("lag-balanced", {"groups": [["a", "b"]]}).assign(ClusterMetadata({"a": 4, "b": 6}), {"M": member()})


def rebalanced(members: Mapping[str, LagBalancedAssignor], cluster: ClusterMetadata, generation: int):
    group = {name: Subscription(["a"], own.subscription_user_data(["a"])) for name, own in members.items()}
    answer = next(iter(members.values())).assign(cluster, group)
    for name, own in members.items():
        own.on_assignment(answer[name], generation)
    return group, answer


def test_a_group_that_has_drifted_asks_for_one_rebalance_and_is_content_after_it() -> None:
    members = {name: LagBalancedAssignor(speed=100.0) for name in ("M", "N")}
    even = ClusterMetadata({"a": 8}, work=lags("a", *[10_000] * 8, rate=1.0))
    group, first = rebalanced(members, even, 1)
    leader = members["M"]
    assert leader.should_rebalance(even, group, first) is None
    full = {tp.partition for tp in first["M"].partitions}
    drifted = ClusterMetadata({"a": 8}, work=lags("a", *[50_000 if n in full else 0 for n in range(8)], rate=1.0))
    assert "1.9 times" in (leader.should_rebalance(drifted, group, first) or "")
    group, second = rebalanced(members, drifted, 2)
    assert owners(first) != owners(second)
    assert leader.should_rebalance(drifted, group, second) is None


def test_an_assignment_that_is_not_known_whole_is_not_judged() -> None:
    group = {"M": member(["a"], 1.0), "N": member(["a"], 1.0)}
    cluster = ClusterMetadata({"a": 2}, work=lags("a", 9000, 9000))
    held = {"M": Assignment([TopicPartition("a", 0), TopicPartition("a", 1)])}
    assert load("lag-balanced").should_rebalance(cluster, group, held) is None
    assert load("lag-balanced").should_rebalance(cluster, group, {**held, "N": Assignment([])}) is not None
    unknown = ClusterMetadata({"a": 2})
    assert load("lag-balanced").should_rebalance(unknown, group, {**held, "N": Assignment([])}) is None


def test_a_speed_that_the_user_sets_is_sent_whatever_is_measured() -> None:
    stated, measured = LagBalancedAssignor(speed=700.0), LagBalancedAssignor()
    for own in (stated, measured):
        own.on_measures(Measures(5.0))
    sent = {own: own.subscription_user_data(["a"]) for own in (stated, measured)}
    assert sent[stated] == encode_measures(Measures(700.0), StickyUserData((), -1))
    assert sent[measured] == encode_measures(Measures(5.0), StickyUserData((), -1))


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 0},
        {"speed": -1.0},
        {"speed": True},
        {"speed": "fast"},
        {"interval": 0},
        {"interval": float("inf")},
        {"groups": [["a", "b"], ["b", "c"]]},
    ],
)
def test_options_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be a number|two co-partitioned sets: b"):
        load("lag-balanced", options)
