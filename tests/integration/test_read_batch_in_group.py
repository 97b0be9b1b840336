"""A batch as members of a group: it starts at the committed offsets, and looking at it consumes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from kafka_source.admin import Groups
from kafka_source.client_config import Settings
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from tests.support import numbers, produce, reader


@pytest.fixture
def groups(kafka):
    return Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))


@pytest.fixture
def orders(kafka, topic):
    name = topic("orders", partitions=3)
    produce(kafka.bootstrap_servers, name, 300)
    return name


def test_looking_twice_shows_the_same_and_commits_nothing(spark, kafka, orders, groups):
    frame = reader(spark, kafka, orders, kafka_group_id=f"{orders}-look").load()
    assert len(frame.take(2)) == 2
    assert frame.count() == 300
    assert numbers(frame) == list(range(300))
    assert groups.committed(f"{orders}-look") == {}


def test_each_read_goes_on_where_the_last_one_committed(spark, kafka, orders, groups):
    group = f"{orders}-nightly"

    def read():
        return numbers(reader(spark, kafka, orders, kafka_group_id=group, commit="task").load())

    assert read() == list(range(300))
    assert read() == []
    produce(kafka.bootstrap_servers, orders, 30, first=300)
    assert read() == list(range(300, 330))
    assert sum(groups.committed(group).values()) == 330
    assert groups.describe(group).members == ()


def test_a_committed_offset_behind_the_end_of_the_log_is_a_loss_of_data(spark, kafka, orders):
    group = f"{orders}-behind"
    behind = ConsumerGroupTopicPartitions(group, [TopicPartition(orders, 0, 1000)])
    admin = kafka.admin()
    admin.alter_consumer_group_offsets([behind])[group].result(30)
    with pytest.raises(Exception, match=f"{orders}-0 cannot be read from offset 1000: it has only"):
        reader(spark, kafka, orders, kafka_group_id=group).load().count()
    frame = reader(spark, kafka, orders, kafka_group_id=group, failOnDataLoss="false").load()
    assert frame.where("partition = 0").count() == 0
    assert frame.where("partition > 0").count() > 0


def test_a_committed_read_is_not_read_twice(spark, kafka, orders):
    frame = reader(spark, kafka, orders, kafka_group_id=f"{orders}-once", commit="task").load()
    assert frame.count() == 300
    with pytest.raises(Exception, match="no longer a member of generation"):
        frame.count()


def test_plain_commits_serve_where_transactions_are_not_allowed(spark, kafka, orders, groups):
    options = {"kafka_group_id": f"{orders}-plain", "commit": "task", "commit_transactional": "false"}
    assert reader(spark, kafka, orders, **options).load().count() == 300
    assert sum(groups.committed(f"{orders}-plain").values()) == 300


def test_a_pattern_and_more_slots_than_partitions(spark, kafka, orders):
    options = {"subscribePattern": f"{orders}|nowhere.*", "kafka_group_id": f"{orders}-pattern", "group_members": 5}
    assert numbers(reader(spark, kafka, "", **options).load()) == list(range(300))


def test_the_group_can_be_left_a_label(spark, kafka, orders, groups):
    options = {"kafka_group_id": f"{orders}-label", "group_membership": "false"}
    assert reader(spark, kafka, orders, **options).load().count() == 300
    assert groups.describe(f"{orders}-label").members == ()


def test_scans_of_one_dataframe_may_be_planned_at_the_same_time(kafka, orders):
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": orders,
        "kafka.group.id": f"{orders}-scans",
    }
    readers = [BatchReader(given, source_schema(headers=False)) for _ in range(4)]

    def planned(reader):
        return sorted(r for task in reader.partitions() for r in task.ranges)

    with ThreadPoolExecutor(len(readers)) as pool:
        ranges = list(pool.map(planned, readers))
    assert sum(r.size for r in ranges[0]) == 300
    assert all(found == ranges[0] for found in ranges)


def test_a_dataframe_can_be_joined_with_itself(spark, kafka, orders):
    for number in range(3):
        frame = reader(spark, kafka, orders, kafka_group_id=f"{orders}-self-{number}").load()
        values = frame.selectExpr("CAST(value AS STRING) AS number")
        assert values.alias("left").join(values.alias("right"), "number").count() == 300
