"""Tasks that commit (`commit=task`) commit nothing for a topic that was created again since their plan."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kafka_source.errors import DataLossError
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from tests.support.records import create_again, produce


@pytest.mark.parametrize("fails", [True, False])
def test_the_next_batch_reads_the_new_topic_from_its_first_record(kafka, topic, groups, group, fails):
    name = topic("again", partitions=1)
    produce(kafka.bootstrap_servers, name, 10)
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
