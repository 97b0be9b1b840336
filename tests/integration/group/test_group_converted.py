"""Groups that a consumer of the new protocol (KIP-848) has converted: a classic query ends there, after its commit."""

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafkagroup.admin import Groups
from kafkagroup.doctor import examine
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.memberships import everything
from tests.support.records import running, stream, to_files, written
from tests.support.waiting import wait_until

PARTITIONS = 4
REMEDY = (
    r"members of the consumer protocol.*such as .*kafka\.group\.protocol=consumer.*group\.protocol=classic.*of its own"
)

StartConsumer = Callable[[str], ConfluentConsumer]


@pytest.fixture
def consumer(kafka, group, opened) -> StartConsumer:
    """Starts consumers of the new protocol in the group."""

    def start(topic: str) -> ConfluentConsumer:
        one = ConfluentConsumer(kafka.bootstrap_servers, group, topic, "consumer")
        opened.callback(one.close)
        return one

    return start


def test_a_query_leaves_when_its_group_is_converted_and_has_committed_before(members, topic, consumer):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2)
    joined = membership.join(30)
    other = consumer(orders)
    wait_until(membership.rebalance_needed, "the conversion")
    membership.commit({s.credentials.slot: dict.fromkeys(s.partitions, 7) for s in joined.slots})
    with pytest.raises(InvalidConfigurationError, match=REMEDY):
        membership.rejoin(60)
    wait_until(lambda: sorted(other.assigned) == list(range(PARTITIONS)), "all partitions for the consumer")
    committed = membership.committed_entries(everything(orders, PARTITIONS))
    assert [entry.offset for entry in committed.values()] == [7] * PARTITIONS


def test_a_batch_and_a_stream_end_at_their_start_in_such_a_group(kafka, members, topic, group, consumer):
    orders = topic("orders", partitions=PARTITIONS)
    other = consumer(orders)
    wait_until(lambda: bool(other.assigned), "partitions for the consumer")
    with pytest.raises(InvalidConfigurationError, match=REMEDY):
        members.make(orders, slots=2).join(60)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": orders, "kafka.group.id": group}
    with pytest.raises(InvalidConfigurationError, match=REMEDY):
        BatchReader(given, source_schema(headers=False)).partitions()
    wait_until(lambda: sorted(other.assigned) == list(range(PARTITIONS)), "all partitions for the consumer")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    findings = {finding.name: finding for finding in examine(servers, group=group)}
    assert "kafka.group.protocol=consumer" in findings[f"group {group}"].advice
    assert f"group {group}" not in {one.name for one in examine({**servers, "group.protocol": "consumer"}, group=group)}


def test_a_stream_ends_and_what_it_has_written_is_committed(spark, kafka, topic, group, consumer, tmp_path):
    orders = topic("orders", partitions=PARTITIONS, records=40)
    frame = stream(spark, kafka, orders, kafka_group_id=group, group_members=2, startingOffsets="earliest")
    with running(to_files(frame, tmp_path).start()) as query:
        wait_until(lambda: len(written(tmp_path / "out")) == 40, "the stream to read")
        other = consumer(orders)
        with pytest.raises(StreamingQueryException, match="members of the consumer protocol"):
            query.awaitTermination(180)
    wait_until(lambda: sorted(other.assigned) == list(range(PARTITIONS)), "all partitions for the consumer")
    assert sum(Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).committed(group).values()) == 40
