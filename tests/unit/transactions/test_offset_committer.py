"""The name of the transactional id with which members commit offsets."""

from __future__ import annotations

from assignors import TopicPartition
from kafka_source.transactions.offset_committer import transactional_id_of


def test_groups_and_topics_whose_names_join_to_one_text_have_different_ids() -> None:
    ids = [
        transactional_id_of("a", [TopicPartition("b-c", 0)]),
        transactional_id_of("a-b", [TopicPartition("c", 0)]),
        transactional_id_of("a", [TopicPartition("b", 0)]),
        transactional_id_of("a", [TopicPartition("b-c", 1)]),
    ]
    assert len(set(ids)) == len(ids)
    assert ids[0].startswith("a-b-c-0-")
    assert ids[1].startswith("a-b-c-0-")


def test_the_first_of_the_owned_partitions_names_the_id() -> None:
    owned = [TopicPartition("t", 10), TopicPartition("t", 9), TopicPartition("u", 0)]
    assert transactional_id_of("g", owned) == transactional_id_of("g", owned[1:2])
