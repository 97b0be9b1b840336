"""A topic is created again: tasks of before commit nothing for it, and no offset of before is taken for its own."""

from contextlib import closing, nullcontext

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import DataLossError
from kafka_source.group.requests import commit_offsets, fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from tests.support.records import create_again, produce


@pytest.mark.parametrize("fails", [True, False])
def test_the_next_batch_reads_the_new_topic_from_its_first_record(kafka, topic, groups, group, fails):
    name = topic("again", partitions=1, records=10)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": group,
        "commit": "task",
        "failOnDataLoss": str(fails).lower(),
        # No leader of this broker is away for seconds.
        "data.loss.patience.ms": "1000",
    }

    def read(reader: BatchReader, tasks: list) -> list[int]:
        batches = [batch for task in tasks for batch in reader.read(task)]
        return [int(value.as_py()) for batch in batches for value in batch["value"]]

    first = BatchReader(options, source_schema(headers=False))
    planned = first.partitions()
    kafka.delete_topic(name)
    create_again(kafka, name, 1)
    produce(kafka.bootstrap_servers, name, 20, first=100)
    with pytest.raises(DataLossError, match="created again") if fails else nullcontext():
        assert read(first, planned) == []
    assert groups.committed(group) == {}
    # Other members: those of the job that failed stay for their session.
    second = BatchReader(
        {**options, "kafka.group.id": f"{group}-2"} if fails else options, source_schema(headers=False)
    )
    assert read(second, second.partitions()) == list(range(100, 120))


def test_an_offset_of_before_is_not_fetched_for_the_new_topic(kafka, topic, groups, group):
    """The client knows the old topic until the coordinator refuses its id."""
    name = topic("offset", partitions=1)
    partition, nobody = TopicPartition(name, 0), SlotCredentials.without_membership(group)
    with closing(KafkaClient(Settings({"bootstrap.servers": kafka.bootstrap_servers}))) as client:

        def topic_id() -> str | None:
            return client.known.topics[name].id_text

        def fetched() -> int | None:
            return client.run(fetch_committed(client, group, [partition], Deadline(30)))[partition]

        client.run(client.metadata([name]))
        old = topic_id()
        client.run(commit_offsets(client, nobody, {partition: CommitOffset(7, topic_id=old)}, Deadline(30)))
        assert fetched() == 7
        kafka.delete_topic(name)
        create_again(kafka, name, 1)
        assert topic_id() == old
        assert fetched() is None
        assert topic_id() != old
        client.run(commit_offsets(client, nobody, {partition: CommitOffset(3, topic_id=topic_id())}, Deadline(30)))
        assert fetched() == groups.committed(group)[partition] == 3
