"""KafkaOffsetRangeCalculatorSuite and KafkaOffsetReaderSuite: the same cuts as Spark's source, from its own cases."""

from typing import NamedTuple

import pytest

from kafka_source.model.stream_offset import Range
from kafka_source.source.plan import split

Bounds = list[tuple[int, int, int]]
"""Partition, start, end."""


class Case(NamedTuple):
    """The ranges that Spark cuts from others, into `least` ones or more, of `most` offsets or fewer."""

    least: int | None
    given: Bounds
    expected: Bounds
    most: int | None = None


def suite(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaOffsetRangeCalculatorSuite", name)


CASES = {
    "with no minPartition: N TopicPartitions to N offset ranges": Case(None, [(1, 1, 2)], [(1, 1, 2)]),
    "with no minPartition: empty ranges ignored": Case(None, [(1, 1, 2), (2, 1, 1)], [(1, 1, 2)]),
    "with minPartition = 3: N TopicPartitions to N offset ranges": Case(
        3, [(1, 1, 2), (2, 1, 2), (3, 1, 2)], [(1, 1, 2), (2, 1, 2), (3, 1, 2)]
    ),
    "with minPartition = 4: 1 TopicPartition to N offset ranges": Case(
        4, [(1, 1, 5)], [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]
    ),
    "with minPartition = 4: N skewed TopicPartitions to M offset ranges": Case(
        4, [(1, 1, 5), (2, 1, 21)], [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]
    ),
    "with minPartition = 4: SPARK-30656: ignore empty ranges and split the rest": Case(
        4, [(1, 1, 1), (2, 1, 21)], [(2, 1, 6), (2, 6, 11), (2, 11, 16), (2, 16, 21)]
    ),
    "with minPartition = 4: SPARK-30656: N very skewed TopicPartitions to M offset ranges": Case(
        4, [(1, 1, 2), (2, 1, 1001)], [(1, 1, 2), (2, 1, 334), (2, 334, 667), (2, 667, 1001)]
    ),
    "with minPartition = 1: SPARK-30656: minPartitions less than the length of topic partitions": Case(
        1, [(1, 1, 5), (2, 1, 21)], [(1, 1, 5), (2, 1, 21)]
    ),
    "with minPartition = 3: range inexact multiple of minPartitions": Case(
        3, [(1, 1, 11)], [(1, 1, 4), (1, 4, 7), (1, 7, 11)]
    ),
    "with minPartition = 4: empty ranges ignored": Case(
        4, [(1, 1, 5), (2, 1, 21), (3, 1, 1)], [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]
    ),
    "with minPartition = 6: SPARK-28489: never drop offsets": Case(
        6,
        [(1, 0, 10), (2, 0, 10), (3, 0, 1)],
        [(1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 3), (2, 3, 6), (2, 6, 10), (3, 0, 1)],
    ),
    "with minPartition = 9: SPARK-36576: 0 small unsplit ranges and 3 large split ranges": Case(
        9,
        [(1, 0, 10000), (2, 0, 15000), (3, 0, 20000)],
        [(n, low, low + 5000) for n, end in ((1, 10000), (2, 15000), (3, 20000)) for low in range(0, end, 5000)],
    ),
    "with minPartition = 6: SPARK-36576: 1 small unsplit range and 2 large split ranges": Case(
        6,
        [(1, 0, 500), (2, 0, 12000), (3, 0, 15001)],
        [(1, 0, 500), (2, 0, 6000), (2, 6000, 12000), (3, 0, 5000), (3, 5000, 10000), (3, 10000, 15001)],
    ),
    "with minPartition = 6: SPARK-36576: 2 small unsplit ranges and 1 large split range": Case(
        6,
        [(1, 0, 1), (2, 0, 1), (3, 0, 10000)],
        [(1, 0, 1), (2, 0, 1), *((3, low, low + 2500) for low in range(0, 10000, 2500))],
    ),
    "with minPartition = 4: SPARK-46798: locations not set when ranges split": Case(
        4, [(1, 0, 1), (2, 0, 1), (3, 0, 2)], [(1, 0, 1), (2, 0, 1), (3, 0, 1), (3, 1, 2)]
    ),
    "SPARK-49259: maxRecordsPerPartition": Case(
        None, [(1, 1, 5), (2, 1, 2), (3, 1, 7)], [(1, 1, 5), (2, 1, 2), (3, 1, 4), (3, 4, 7)], most=4
    ),
}


@pytest.mark.parametrize("case", [pytest.param(name, marks=suite(name)) for name in CASES])
def test_cuts(case: str) -> None:
    least, given, expected, most = CASES[case]
    pieces = split([Range("t", *one) for one in given], least, most)
    assert [(r.partition, r.start, r.end) for r in pieces] == expected


READER: dict[str, tuple[int, Bounds, Bounds]] = {
    name: (4, [(0, 0, 100), (1, 0, 3)], [(0, 0, 33), (0, 33, 66), (0, 66, 100), (1, 0, 3)])
    for name in (
        "getOffsetRangesFromResolvedOffsets: 100 and 3 records",
        "getOffsetRangesFromUnresolvedOffsets: multiple topic partitions",
    )
}


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.spark_test("KafkaOffsetReaderSuite", name)) for name in READER]
)
def test_cuts_of_the_offset_reader(case: str) -> None:
    least, given, expected = READER[case]
    assert [(r.partition, r.start, r.end) for r in split([Range("t", *one) for one in given], least, None)] == expected
