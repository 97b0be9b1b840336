"""KafkaOffsetReaderSuite: which offsets a read resolves, as far as its rows and errors show them."""

import json

import pytest

from tests.parity.formats import Formats


def suite(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaOffsetReaderSuite", name)


@pytest.fixture
def numbers(formats: Formats) -> str:
    """Five numbers in each of three partitions."""
    return formats.topic("resolved", *(range(first, first + 5) for first in (0, 10, 20)))


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


@pytest.mark.parametrize(
    ("starts", "ends", "expected"),
    [
        pytest.param(
            (1, 2, 3), (2, 3, 4), [1, 12, 23], marks=suite("getOffsetRangesFromUnresolvedOffsets: specific offsets")
        ),
        pytest.param(
            (-2, 1, 2),
            (1, 2, -1),
            [0, 11, 22, 23, 24],
            marks=suite("getOffsetRangesFromUnresolvedOffsets: special offsets"),
        ),
    ],
)
def test_ranges_of_offsets(
    formats: Formats, numbers: str, starts: tuple[int, ...], ends: tuple[int, ...], expected: list[int]
) -> None:
    options = {"startingOffsets": by_partition(numbers, *starts), "endingOffsets": by_partition(numbers, *ends)}
    assert formats.read(subscribe=numbers, **options).same_numbers() == expected


@suite("SPARK-48383: START_OFFSET_DOES_NOT_MATCH_ASSIGNED")
def test_starting_offsets_of_other_partitions(formats: Formats, numbers: str) -> None:
    frames = formats.read(subscribe=numbers, startingOffsets=by_partition(numbers, 0, 0))
    assert frames.same_error() == "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"


@pytest.mark.parametrize("count", [2, 4])
@suite("KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED")
def test_starting_times_of_other_partitions(formats: Formats, numbers: str, count: int) -> None:
    frames = formats.read(subscribe=numbers, startingOffsetsByTimestamp=by_partition(numbers, *[1] * count))
    assert frames.same_error() == "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
