"""The interface of the fetch engines: what a task asks for, and what an engine gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.stream_offset import Range
from kafka_source.quota.task_pacer import Pacer
from kafka_source.schema import Column

PACED_BATCH_SECONDS = 0.5
"""Under a quota rows are given on so often, so that Spark is not left with all of them when the last fetch has come."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What a task is to read, and in what form.

    Attributes:
        ranges: One for each partition at most.
        columns: In the order of the rows.
        batch_rows: Rows of a record batch, at most.
        batch_bytes: Bytes of keys and values of a record batch, about.
        timeout_ms: How long to wait for records that should be there.
        read_committed: Leave out records of aborted transactions.
        fail_on_data_loss: Whether records that are gone are an error or a warning.
        cluster: The id of the cluster that the offsets are of; None: not known.
        topics: The ids of the topics that the offsets are of, as far as they are known.
        pacer: Holds fetches back where there is a quota, and counts what brokers throttle.
        label: The `group.id` of consumers that are in no group (librdkafka).
        max_unpacked_bytes: The most that a compressed batch of a topic may unpack to (native).
    """

    ranges: tuple[Range, ...]
    columns: tuple[Column, ...]
    batch_rows: int
    batch_bytes: int
    timeout_ms: int
    read_committed: bool
    fail_on_data_loss: bool
    cluster: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    pacer: Pacer = field(default_factory=Pacer)
    label: str = "spark-kafka-source"
    max_unpacked_bytes: int = 256 * 1024 * 1024


class FetchEngine(Protocol):
    """Fetches ranges from the brokers; one object may read many requests, one at a time."""

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """The records of all ranges, each once, every range to its end, in offset order within a partition.

        Raises:
            DataLossError: Records of a range are gone and `fail_on_data_loss` is set.
            CorruptRecordsError: Bytes cannot be read.
            UnreadableRecordError: A record does not fit the columns or bounds that are asked for.
            InvalidConfigurationError: Another cluster answers.
            KafkaGroupError: The brokers refuse, or do not answer in time.
        """
        ...


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the schema asked for, whose columns may be NOT NULL.

    Raises:
        InvalidConfigurationError: A column that is asked for as NOT NULL has nulls.
    """
    if batch.schema.equals(schema):
        return batch
    for column, wanted in zip(batch.columns, schema, strict=True):
        if column.null_count and not wanted.nullable:
            raise InvalidConfigurationError(
                f"the schema asks for {wanted.name} as NOT NULL, but a record that was read has none; "
                f"leave out NOT NULL for {wanted.name}"
            )
    return batch.cast(schema)
