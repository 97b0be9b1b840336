import uuid

from kafka_source.group.model import Topics
from kafka_source.group.topics import TopicState, changes, reason_of, states_of, topics_of
from kafka_source.kafka_client import PartitionMetadata, Snapshot, TopicMetadata

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(name: str, partitions: int, topic_id: uuid.UUID = ONE) -> TopicMetadata:
    return TopicMetadata(
        name, topic_id, {n: PartitionMetadata(leader=1, leader_epoch=0, replicas=(1,)) for n in range(partitions)}
    )


def snapshot(*topics: TopicMetadata) -> Snapshot:
    return Snapshot("c", {}, {t.name: t for t in topics})


ALL = snapshot(topic("orders", 4), topic("orders-eu", 2), topic("my-orders", 1), topic("__consumer_offsets", 50))


def test_a_pattern_is_found_anywhere_in_a_name_and_never_in_an_internal_one() -> None:
    assert topics_of(Topics(pattern="orders"), ALL) == ("my-orders", "orders", "orders-eu")
    assert topics_of(Topics(pattern="^orders"), ALL) == ("orders", "orders-eu")
    assert topics_of(Topics(pattern="^orders$"), ALL) == ("orders",)
    assert topics_of(Topics(pattern=".*"), ALL) == ("my-orders", "orders", "orders-eu")


def test_names_are_taken_as_they_are() -> None:
    assert topics_of(Topics(topics=("b", "a", "b")), ALL) == ("a", "b")


def test_what_changes_an_assignment_is_found_and_nothing_else() -> None:
    before = states_of(snapshot(topic("a", 1), topic("b", 2), topic("c", 3), topic("d", 4)), ["a", "b", "c", "d", "e"])
    now = states_of(
        snapshot(topic("a", 1), topic("b", 5), topic("c", 3, TWO), topic("e", 1)), ["a", "b", "c", "d", "e"]
    )
    assert changes(before, before) == []
    assert changes(before, now) == [
        "topic b has 5 partitions, 2 before",
        "topic c was deleted and recreated",
        "topic d is gone",
        "topic e appeared with 1 partitions",
    ]


def test_brokers_without_topic_ids_are_no_change() -> None:
    assert changes({"a": TopicState(1, None)}, {"a": TopicState(1, ONE)}) == []


def test_a_burst_of_changes_is_one_reason_of_one_line() -> None:
    reason = reason_of([f"topic t{n} is gone" for n in range(50)])
    assert reason == "topic t0 is gone; topic t1 is gone; topic t2 is gone and 47 more"
