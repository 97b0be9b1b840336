"""A topic read as a batch, without a group: as the built-in source reads it."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_source.errors import DataLossError
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafka_source.source.read_task import ReadTask
from tests.support.records import create_again, produce, reader
from tests.support.waiting import wait_until


@pytest.fixture
def orders(topic):
    return topic("orders", partitions=3, records=300)


def test_a_smaller_schema_reads_only_what_it_asks_for(spark, kafka, orders):
    frame = reader(spark, kafka, orders).schema("offset bigint, value string").load()
    assert frame.columns == ["offset", "value"]
    assert sorted(int(row.value) for row in frame.collect()) == list(range(300))


@pytest.mark.parametrize(("start", "end"), [(10_000, 10_001), (5, 10_000)], ids=["both", "end"])
def test_offsets_that_the_log_does_not_have_are_one_error_of_the_plan(kafka, orders, start, end):
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": orders,
        "startingOffsets": json.dumps({orders: {"0": start, "1": 0, "2": 0}}),
        "endingOffsets": json.dumps({orders: {"0": end, "1": 1, "2": 1}}),
    }
    begun = time.monotonic()
    with pytest.raises(
        DataLossError, match=rf"{orders}-0 cannot be read from offset {start} to offset {end}, .* offsets \[0, \d+\)"
    ):
        BatchReader(given, source_schema(headers=False)).partitions()
    assert time.monotonic() < begun + 15


def test_a_log_that_is_behind_for_a_moment_is_read_to_its_ending_offset(kafka, topic, caplog):
    name = topic("behind", partitions=1, records=5)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "endingOffsets": json.dumps({name: {"0": 7}}),
    }
    with ThreadPoolExecutor(1) as pool:
        planned = pool.submit(BatchReader(given, source_schema(headers=False)).partitions)
        wait_until(lambda: f"{name}-0 cannot be read from offset 0 to offset 7" in caplog.text, "the first look")
        produce(kafka.bootstrap_servers, name, 2, first=5)
        (task,) = planned.result(30)
    assert isinstance(task, ReadTask)
    assert [(one.start, one.end) for one in task.ranges] == [(0, 7)]


def test_offsets_that_the_log_does_not_have_are_left_out_when_loss_is_allowed(spark, kafka, orders):
    beyond = json.dumps({orders: {"0": 10_000, "1": 0, "2": 0}})
    until = json.dumps({orders: {"0": 10_001, "1": 1, "2": 1}})
    options = {"startingOffsets": beyond, "endingOffsets": until, "data_loss_patience_ms": 500}
    assert reader(spark, kafka, orders, failOnDataLoss="false", **options).load().count() == 2


@pytest.mark.parametrize("engine", ["auto", "librdkafka"])
def test_an_offset_of_the_options_is_no_offset_of_a_topic_that_is_created_again_between_two_actions(
    spark, kafka, topic, engine
):
    name = topic("anew", partitions=1, records=20)
    whole = reader(spark, kafka, name, engine=engine).load()
    start = json.dumps({name: {"0": 5}})
    rest = reader(spark, kafka, name, startingOffsets=start, engine=engine, data_loss_patience_ms=500).load()
    for _ in range(3):
        assert (whole.count(), rest.count()) == (20, 15)
    kafka.delete_topic(name)
    create_again(kafka, name, 1)
    produce(kafka.bootstrap_servers, name, 50)
    assert whole.count() == 50
    with pytest.raises(Exception, match=f"{name}-0 .*created again"):
        rest.count()
