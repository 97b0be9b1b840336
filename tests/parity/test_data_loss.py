"""KafkaDontFailOnDataLossSuite, and each kind of data loss that Spark's source knows."""

import json

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.parity.formats import Formats
from tests.support.records import create_again, delete_before


def suite(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaDontFailOnDataLossSuite", name)


@pytest.fixture
def aged(formats: Formats, kafka: EmbeddedKafka) -> str:
    """Ten records, of which retention has left the last four."""
    name = formats.topic("aged", range(10))
    delete_before(kafka, name, {0: 6})
    return name


@suite("failOnDataLoss=false should not return duplicated records: batch v1/v2")
def test_a_batch_from_a_deleted_offset(formats: Formats, aged: str) -> None:
    start = json.dumps({aged: {"0": 0}})
    frames = formats.read(subscribe=aged, startingOffsets=start, failOnDataLoss="false")
    assert frames.same_numbers() == [6, 7, 8, 9]
    failing = formats.read(subscribe=aged, startingOffsets=start)
    assert failing.same_error() == "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"


@suite("failOnDataLoss=false should not return duplicated records: microbatch v1/v2")
def test_a_stream_from_a_deleted_offset(formats: Formats, aged: str) -> None:
    start = json.dumps({aged: {"0": 0}})
    queries = formats.available_now(subscribe=aged, startingOffsets=start, failOnDataLoss="false")
    assert queries.same_numbers() == [6, 7, 8, 9]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_start_beyond_the_log(formats: Formats, fail: str) -> None:
    name = formats.topic("beyond", range(5))
    start = json.dumps({name: {"0": 9}})
    queries = formats.streams(subscribe=name, startingOffsets=start, failOnDataLoss=fail).start()
    if fail == "true":
        assert queries.same_error() == "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"
        return
    queries.process()
    formats.send(name, range(5, 8))
    assert queries.process().same_numbers() == [5, 6, 7]


@pytest.mark.parametrize("fail", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_an_added_partition_that_does_not_begin_at_0(kafka: EmbeddedKafka, formats: Formats, fail: str) -> None:
    first, second = formats.topic("first", range(5)), formats.topic("second", range(10, 20))
    delete_before(kafka, second, {0: 4})
    queries = formats.streams(subscribe=first, startingOffsets="earliest", failOnDataLoss=fail).start().process()
    queries.stop()
    queries.start(subscribe=f"{first},{second}")
    if fail == "true":
        assert queries.same_error() == "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"
    else:
        assert queries.process().same_numbers() == [*range(5), *range(14, 20)]


@pytest.mark.long
@pytest.mark.parametrize("fail", ["true", "false"])
def test_partitions_that_the_query_selects_no_more(formats: Formats, fail: str) -> None:
    first, second = formats.topic("kept", range(5)), formats.topic("left", range(10, 15))
    both = f"{first},{second}"
    queries = formats.streams(subscribe=both, startingOffsets="earliest", failOnDataLoss=fail).start().process()
    queries.stop()
    formats.send(first, range(5, 8))
    queries.start(subscribe=first)
    if fail == "true":
        assert queries.same_error() == "KAFKA_DATA_LOSS.PARTITIONS_DELETED"
    else:
        assert queries.process().same_numbers() == [*range(8), *range(10, 15)]


@suite("stress test for failOnDataLoss=false")
@pytest.mark.long
def test_topics_come_go_and_come_back(kafka: EmbeddedKafka, formats: Formats) -> None:
    names = [formats.topic("comes", (), ()) for _ in range(3)]
    prefix = names[0].rpartition("-")[0]
    queries = formats.streams(
        subscribePattern=f"^{prefix}-.*", startingOffsets="earliest", failOnDataLoss="false", fetchOffset_numRetries=20
    ).start()
    for turn in range(3):
        for number, name in enumerate(names):
            formats.send(name, range(100 * turn + 10 * number, 100 * turn + 10 * number + 5), turn % 2)
        queries.process()
        gone = names[turn]
        kafka.delete_topic(gone)
        create_again(kafka, gone, 2)
    formats.send(names[0], [999])
    queries.process()
    assert all(query.isActive for query in queries.running.values())
    assert all(any(row[3] == "999" for batch in rows for row in batch) for rows in queries.rows.values())
