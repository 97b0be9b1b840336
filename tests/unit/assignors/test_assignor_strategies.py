"""What each strategy is for, and Java's known faults, which do not exist here."""

import pytest

from assignors import (
    Assignment,
    AssignmentError,
    ClusterMetadata,
    Subscription,
    TopicPartition,
    encode_sticky_user_data,
    load,
)
from assignors.redundant import primaries
from assignors.testing import measure


def partitions(text: str) -> list[TopicPartition]:
    """'a0 a1 b0' as partitions."""
    return [TopicPartition(word[0], int(word[1:])) for word in text.split()]


def names(assignment: Assignment) -> str:
    return " ".join(f"{topic}{number}" for topic, number in sorted(assignment.partitions))


def sticky_member(topics: str, owned: str = "", generation: int = -1, rack: str | None = None) -> Subscription:
    user_data = encode_sticky_user_data(partitions(owned), generation) if owned else None
    return Subscription(topics.split(), user_data, rack=rack)


def cooperative_member(topics: str, owned: str = "", generation: int = -1) -> Subscription:
    return Subscription(topics.split(), owned=partitions(owned), generation=generation)


class TestJavasFaults:
    @pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky", "rack-aware"])
    def test_a_member_with_an_empty_subscription_gets_nothing(self, strategy: str) -> None:
        for empty in ("A", "Z"):
            group = {empty: Subscription([]), "M": Subscription(["t"]), "N": Subscription(["t"])}
            answer = load(strategy).assign(ClusterMetadata({"t": 4}), group)
            assert not answer[empty].partitions
            assert len(answer["M"].partitions) == len(answer["N"].partitions) == 2

    @pytest.mark.parametrize("gone", ["t4 t5", "t-1", "u0"])
    def test_claims_of_partitions_that_do_not_exist_are_dropped(self, gone: str) -> None:
        for topics in (["t"], ["t", "other"]):
            claim = [TopicPartition(word[0], int(word[1:])) for word in f"t0 {gone}".split()]
            group = {
                "A": Subscription(["t"], owned=claim, generation=3),
                "B": Subscription(topics, owned=partitions("t1"), generation=3),
            }
            cluster = ClusterMetadata({"t": 4})
            figures = measure(cluster, group, load("cooperative-sticky").assign(cluster, group))
            assert not figures.invalid
            assert not figures.uncovered
            assert figures.kept == 2

    def test_a_stale_claim_makes_no_direct_transfer(self) -> None:
        # B's claim is of an older generation: A still has everything, and B may get nothing of it in this round.
        group = {
            "A": cooperative_member("t", "t0 t1 t2 t3", generation=5),
            "B": cooperative_member("t u", "t0 t1", generation=4),
        }
        answer = load("cooperative-sticky").assign(ClusterMetadata({"t": 4, "u": 1}), group)
        assert not set(answer["B"].partitions) & set(partitions("t0 t1 t2 t3"))

    def test_a_contested_partition_is_kept_by_nobody_in_the_same_generation(self) -> None:
        group = {"A": cooperative_member("t", "t0 t1", 2), "B": cooperative_member("t", "t0 t2", 2)}
        answer = load("cooperative-sticky").assign(ClusterMetadata({"t": 3}), group)
        assert names(answer["A"]) == "t1"
        assert names(answer["B"]) == "t2"


class TestCopartition:
    def test_the_same_numbers_go_to_the_same_member(self) -> None:
        group = {member: Subscription(["a", "b", "c"]) for member in ("M", "N", "O")}
        answer = load("copartition", {"groups": [["a", "b"]]}).assign(ClusterMetadata({"a": 7, "b": 7, "c": 2}), group)
        for given in answer.values():
            assert {p.partition for p in given.partitions if p.topic == "a"} == {
                p.partition for p in given.partitions if p.topic == "b"
            }

    def test_unequal_counts_are_refused_with_the_reason(self) -> None:
        group = {"M": Subscription(["a", "b"])}
        with pytest.raises(AssignmentError, match="a has 4, b has 6") as refused:
            load("copartition").assign(ClusterMetadata({"a": 4, "b": 6}), group)
        assert refused.value.reason == str(refused.value)

    def test_unequal_subscribers_are_refused_with_the_reason(self) -> None:
        group = {"M": Subscription(["a", "b"]), "N": Subscription(["a"])}
        with pytest.raises(AssignmentError, match="N subscribes to only one of a and b"):
            load("copartition").assign(ClusterMetadata({"a": 4, "b": 4}), group)

    def test_what_all_topics_have_can_be_colocated(self) -> None:
        group = {"M": Subscription(["a", "b"]), "N": Subscription(["a", "b"]), "O": Subscription(["b"])}
        cluster = ClusterMetadata({"a": 4, "b": 7})
        answer = load("copartition", {"groups": [["a", "b"]], "mismatch": "colocate"}).assign(cluster, group)
        assert names(answer["M"]) == "a0 a1 b0 b1 b4"
        assert names(answer["N"]) == "a2 a3 b2 b3 b5"
        assert names(answer["O"]) == "b6"

    def test_topics_nobody_reads_together_are_refused(self) -> None:
        group = {"M": Subscription(["a"]), "N": Subscription(["b"])}
        with pytest.raises(AssignmentError, match="no member subscribes to all of"):
            load("copartition", {"mismatch": "colocate"}).assign(ClusterMetadata({"a": 1, "b": 1}), group)

    def test_a_topic_in_two_groups_is_refused(self) -> None:
        with pytest.raises(ValueError, match="two co-partitioned sets: b"):
            load("copartition", {"groups": [["a", "b"], ["b", "c"]]})


class TestRedundant:
    def test_a_standby_becomes_primary_without_moving(self) -> None:
        cluster, members = ClusterMetadata({"t": 6}), {name: load("redundant") for name in "ABC"}

        def rebalance(generation: int) -> dict[str, Assignment]:
            group = {
                name: Subscription(["t"], member.subscription_user_data(["t"])) for name, member in members.items()
            }
            answer = dict(members["A"].assign(cluster, group))
            for name, member in members.items():
                member.on_assignment(answer[name], generation)
            return answer

        before = rebalance(1)
        assert [len(given.partitions) for given in before.values()] == [4, 4, 4]
        leading = {name: set(primaries(given)) for name, given in before.items()}
        assert [len(of) for of in leading.values()] == [2, 2, 2]
        assert rebalance(2) == before
        del members["C"]
        after = rebalance(3)
        assert [len(primaries(given)) for given in after.values()] == [3, 3]
        for name in "AB":
            assert set(before[name].partitions) <= set(after[name].partitions)
            # Whoever leads a partition now held it before: the role moved, the partition did not.
            assert set(primaries(after[name])) <= set(before[name].partitions)

    def test_new_copies_go_from_hand_to_hand_so_that_nobody_gives_up_what_it_had(self) -> None:
        """The member with the fewest copies has the partition whose copy is left, so another's new copy goes to it."""
        cluster, members = ClusterMetadata({"t": 4}), {name: load("redundant") for name in "ABCDE"}
        before = members["A"].assign(cluster, {name: Subscription(["t"]) for name in members})
        assert {name: names(given) for name, given in before.items()} == {
            "A": "t0 t2",
            "B": "t0 t3",
            "C": "t1 t3",
            "D": "t1",
            "E": "t2",
        }
        for name, member in members.items():
            member.on_assignment(before[name], 1)
        del members["A"]
        group = {name: Subscription(["t"], member.subscription_user_data(["t"])) for name, member in members.items()}
        after = members["B"].assign(cluster, group)
        assert {name: names(given) for name, given in after.items()} == {
            "B": "t0 t3",
            "C": "t1 t3",
            "D": "t1 t2",
            "E": "t0 t2",
        }

    def test_fewer_subscribers_than_copies_all_get_one(self) -> None:
        group = {"A": Subscription(["t"]), "B": Subscription(["t"])}
        answer = load("redundant", {"copies": 5}).assign(ClusterMetadata({"t": 3}), group)
        assert names(answer["A"]) == names(answer["B"]) == "t0 t1 t2"
        assert len(primaries(answer["A"])) + len(primaries(answer["B"])) == 3

    def test_every_copy_has_a_number_and_each_number_is_there_once(self) -> None:
        members = {name: load("redundant", {"copies": 3}) for name in "ABCD"}
        group = {name: Subscription(["t", "u"]) for name in members}
        answer = members["A"].assign(ClusterMetadata({"t": 5, "u": 2}), group)
        numbers: dict[TopicPartition, list[int]] = {}
        for name, given in answer.items():
            replicas = members[name].replicas(given)
            assert not set(replicas) & set(primaries(given))
            for tp in given.partitions:
                numbers.setdefault(tp, []).append(replicas.get(tp, 0))
        assert len(numbers) == 7
        assert {tuple(sorted(of_it)) for of_it in numbers.values()} == {(0, 1, 2)}

    def test_bytes_of_another_strategy_name_no_standby(self) -> None:
        given = Assignment((TopicPartition("t", 0),), b"kafkagroup:assignment-failed:no")
        assert load("redundant").replicas(given) == {}
        assert list(primaries(given)) == []

    def test_copies_must_be_at_least_one(self) -> None:
        with pytest.raises(ValueError, match="at least 1, got 0"):
            load("redundant", {"copies": 0})


class TestRackAware:
    cluster = ClusterMetadata({"t": 4}, {"t": [["east"], ["east"], ["east"], ["west"]]})

    def test_what_is_off_every_rack_stays_where_it_is(self) -> None:
        # Two eastern members hold the eastern partitions; the western one can only be off its rack.
        group = {"A": sticky_member("t", "t0 t3", 1, rack="east"), "B": sticky_member("t", "t1 t2", 1, rack="east")}
        answer = load("rack-aware").assign(self.cluster, group)
        assert names(answer["A"]) == "t0 t3"
        assert names(answer["B"]) == "t1 t2"

    def test_partitions_change_places_to_come_onto_racks(self) -> None:
        group = {"A": sticky_member("t", "t1 t3", 1, rack="east"), "B": sticky_member("t", "t0 t2", 1, rack="west")}
        answer = load("rack-aware").assign(self.cluster, group)
        assert len(answer["A"].partitions) == 2
        assert "t3" in names(answer["B"])


def test_members_in_the_order_of_javas_strings() -> None:
    # U+10000 sorts before U+FF5E in UTF-16 units, and after it by code points.
    answer = load("range").assign(ClusterMetadata({"t": 1}), {m: Subscription(["t"]) for m in ("～", "\U00010000")})
    assert names(answer["\U00010000"]) == "t0"


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    group = {
        "a": Subscription(["t"]),
        "b": Subscription(["t"], instance_id="2"),
        "c": Subscription(["t"]),
        "d": Subscription(["t"], instance_id="1"),
    }
    for strategy in ("range", "roundrobin"):
        answer = load(strategy).assign(ClusterMetadata({"t": 4}), group)
        assert [names(answer[member]) for member in "dbac"] == ["t0", "t1", "t2", "t3"]
