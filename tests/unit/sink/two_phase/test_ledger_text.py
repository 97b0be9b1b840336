"""Text in the ledger's groups that is no decision is refused, before it takes memory."""

import tracemalloc

import pytest

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.sink.two_phase.ledger import Decision, homes_of, read_decision

LEDGER = TopicPartition("out", 0)


def read(text: str) -> Decision:
    return read_decision("prefix", 3, (LEDGER,), text, finished=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '["q",2,[["0-0",15,2,5,3]],{"out":[[0,1]]}]',
        "2d06",
        "null",
        "[1,2]",
        "[" * 30_000,
        '["q",2,[[]],{}]',
        '["q",2,[["0-0",15,2,5]],{"out":[[0,1]]}]',
        '["q",2,[["0-0","many",2,5,1]],{}]',
        '["q",2,[["0-0",1,2,3,4,5]],{}]',
        '["q",2,[],[]]',
        '["q",2,[],{"out":[[0]]}]',
        '["q",2,[],{"out":[[0,1e9]]}]',
        '["q",{},[],{}]',
    ],
)
def test_what_is_no_decision_is_refused_by_the_groups_name(text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="prefix-ledger"):
        read(text)


@pytest.mark.parametrize("ranges", ["[[0,2147483647]]", "[[0,-2147483647],[0,2147483647]]"])
def test_a_few_characters_do_not_make_a_billion_partitions(ranges: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidConfigurationError):
            read(f'["q",2,[],{{"out":{ranges}}}]')
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_decision_is_kept_at_a_partition_of_each_of_three_topics() -> None:
    partitions = [TopicPartition(topic, number) for topic in ("d", "b", "c", "a") for number in (7, 3)]
    assert homes_of(partitions) == tuple(TopicPartition(topic, 3) for topic in ("b", "c", "d"))
    assert homes_of(partitions[:2]) == (TopicPartition("d", 3),)
    assert homes_of([]) == ()
