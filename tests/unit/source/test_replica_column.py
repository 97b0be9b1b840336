import json

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.schema import Column
from kafka_source.source.plan import plan
from kafka_source.source.read_task import by_replica
from kafka_source.source.row_columns import columns_to_fetch, rows_of

COPIED = StreamOffset(
    {
        TopicPartition("t", 0): Span(0, 10, 1, ((1, 0), (0, 1))),
        TopicPartition("t", 1): Span(3, 8, 0, ((0, 1),)),
        TopicPartition("t", 2): Span(5, 6, 0, ((0, 0),)),
    },
    generation=4,
    slots=2,
)


def test_all_copies_are_in_the_plan_each_for_its_slot_and_with_its_number():
    assert plan(StreamOffset.from_json(json.loads(json.dumps(COPIED.to_json())))) == [
        (0, (Range("t", 0, 0, 10, 1), Range("t", 1, 3, 8, 1), Range("t", 2, 5, 6, 0))),
        (1, (Range("t", 0, 0, 10, 0),)),
    ]


def test_an_offset_without_copies_looks_as_it_always_did():
    assert StreamOffset({TopicPartition("t", 0): Span(1, 2, 0)}).to_json()["partitions"] == {"t": {"0": [1, 2, 0]}}


def test_a_request_has_a_partition_once():
    ranges = (Range("t", 0, 0, 9, 0), Range("t", 0, 0, 9, 1), Range("t", 1, 0, 9, 0))
    assert by_replica(ranges) == [(0, (ranges[0], ranges[2])), (1, (ranges[1],))]
    assert by_replica(()) == []


def test_the_column_comes_where_it_was_asked_for():
    columns = (Column("replica", nullable=False), Column("value", text=True))
    batch = pa.record_batch({"value": ["a", "b"]})
    assert columns_to_fetch(columns) == columns[1:]
    assert next(rows_of(batch, columns, replica=2)).to_pydict() == {"replica": [2, 2], "value": ["a", "b"]}
    assert next(rows_of(batch, columns[1:], replica=2)) is batch


def test_the_number_alone_is_fetched_with_a_column_that_counts_rows():
    columns = (Column("replica"),)
    assert columns_to_fetch(columns) == (Column("partition"),)
    assert next(rows_of(pa.record_batch({"partition": [5, 5, 5]}), columns)).to_pydict() == {"replica": [0, 0, 0]}
