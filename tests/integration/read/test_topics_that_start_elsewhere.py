"""`startingOffsets` with a word for a topic: in batches, in new queries, for a topic that a query takes up later."""

import json
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest
from pyspark.sql import SparkSession

from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source.micro_batches import MicroBatches
from kafkagroup.embedded import EmbeddedKafka
from tests.support.queries import query_of
from tests.support.records import Topic, delete_before, numbers, produce, reader

Start = Callable[..., MicroBatches]


@pytest.fixture
def old(topic: Topic) -> str:
    """A topic of one partition with the numbers 0 to 9."""
    return topic("old", partitions=1, records=10)


@pytest.fixture
def new(kafka: EmbeddedKafka, topic: Topic) -> str:
    """A topic of one partition with the numbers 100 to 104."""
    name = topic("new", partitions=1)
    produce(kafka.bootstrap_servers, name, 5, first=100)
    return name


@pytest.fixture
def start(kafka: EmbeddedKafka, opened: ExitStack) -> Start:
    """Starts a stream of topics with `startingOffsets`."""

    def make(topics: str, starting: object = None, *, by: str = "subscribe", **options: str) -> MicroBatches:
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, by: topics, **options}
        if starting is not None:
            given["startingOffsets"] = starting if isinstance(starting, str) else json.dumps(starting)
        return opened.enter_context(closing(MicroBatches(query_of(given))))

    return make


def spans(end: StreamOffset) -> dict[str, tuple[int, int]]:
    """What a micro-batch reads of the first partition of each topic."""
    return {tp.topic: (span.start, span.end) for tp, span in end.partitions.items() if tp.partition == 0}


def test_a_batch_reads_one_topic_from_an_offset_and_the_other_whole(
    spark: SparkSession, kafka: EmbeddedKafka, old: str, new: str
) -> None:
    both = f"{old},{new}"
    for starting in ({new: "earliest", old: {"0": 7}}, {new: " Earliest", old: {"0": 7}}):
        frame = reader(spark, kafka, both, startingOffsets=json.dumps(starting)).load()
        assert numbers(frame) == [7, 8, 9, *range(100, 105)]
    # A topic that is not named starts at the default. It is bound late, as that is.
    frame = reader(spark, kafka, both, startingOffsets=json.dumps({new: "earliest"})).load()
    assert numbers(frame) == [*range(10), *range(100, 105)]
    produce(kafka.bootstrap_servers, old, 1, first=10)
    assert numbers(frame) == [*range(11), *range(100, 105)]


def test_a_new_stream_starts_each_topic_where_it_is_told(start: Start, old: str, new: str) -> None:
    end = start(f"{old},{new}", {old: "earliest"}).next(StreamOffset(), limited=True)
    assert spans(end) == {old: (0, 10), new: (5, 5)}
    end = start(f"{old},{new}", {old: "latest", new: {"0": 2}}).next(StreamOffset(), limited=True)
    assert spans(end) == {old: (10, 10), new: (2, 5)}


def test_a_topic_that_a_query_takes_up_later_starts_at_its_word(
    start: Start, kafka: EmbeddedKafka, old: str, new: str
) -> None:
    first = start(old, "earliest").next(StreamOffset(), limited=True)
    both = f"{old},{new}"
    assert spans(start(both, "latest").next(first, limited=True)) == {old: (10, 10), new: (0, 5)}
    taken_up = start(both, {new: "latest"}).next(first, limited=True)
    # Nothing is to be read, but only this offset can keep the place in the new topic.
    assert spans(taken_up) == {old: (10, 10), new: (5, 5)}
    again = start(both, {new: "latest"})
    produce(kafka.bootstrap_servers, new, 2, first=105)
    produce(kafka.bootstrap_servers, old, 1, first=10)
    assert spans(again.next(taken_up, limited=True)) == {old: (10, 11), new: (5, 7)}


def test_a_place_that_the_checkpoint_has_is_not_planned_again_and_again(start: Start, old: str, new: str) -> None:
    first = start(old, "earliest").next(StreamOffset(), limited=True)
    batches = start(f"{old},{new}", {new: "latest"})
    taken_up = batches.next(first, limited=True)
    assert batches.next(taken_up, limited=True) is taken_up


def test_a_topic_at_earliest_by_word_may_have_lost_records_before(
    start: Start, kafka: EmbeddedKafka, old: str, new: str
) -> None:
    first = start(old, "earliest").next(StreamOffset(), limited=True)
    delete_before(kafka, new, {0: 3})
    end = start(f"{old},{new}", {new: "earliest"}).next(first, limited=True)
    assert spans(end) == {old: (10, 10), new: (3, 5)}
