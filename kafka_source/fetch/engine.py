"""A task's request to its engine (`FetchRequest`): ranges, columns, sizes of batches, time-outs, patience."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.record_columns import Column
from kafka_source.model.stream_offset import Range
from kafka_source.options import ReadOptions
from kafka_source.quota.task_pacer import Pacer

PACED_BATCH_SECONDS = 0.5
"""With a quota, the maximum time between record batches.

A throttled task fills a batch slowly, so without this limit most rows would reach Spark only after the last fetch.
"""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """The ranges that a task reads, and the form of its rows.

    Attributes:
        ranges: The ranges to read, at most one for each partition.
        columns: The columns of the rows, in this order.
        batch_rows: The maximum number of rows in a record batch.
        batch_bytes: The approximate maximum size of the keys and values in a record batch.
        timeout_ms: The longest wait for planned records (`kafkaConsumer.pollTimeoutMs`).
        read_committed: Whether to leave out records of aborted transactions.
        fail_on_data_loss: Whether planned records that no longer exist are an error; if false, log a warning.
        cluster: The id of the cluster in which the offsets are valid; None: unknown.
        topics: The known topic ids for which the offsets are valid.
        pacer: Delays fetches by the query's quota, and counts the brokers' throttling.
        label: The `group.id` in the configuration of librdkafka's consumers, which are in no group.
        loss_patience_ms: The time after which missing planned records count as lost (`data.loss.patience.ms`).
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
    loss_patience_ms: int = 30_000

    @classmethod
    def of(
        cls,
        options: ReadOptions,
        ranges: tuple[Range, ...],
        columns: tuple[Column, ...],
        *,
        cluster: str | None,
        topics: Mapping[str, str],
        pacer: Pacer | None = None,
    ) -> "FetchRequest":
        """Return the request for a query with these options; the other arguments are attributes of the request."""
        return cls(
            ranges,
            columns,
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            timeout_ms=options.kafka_consumer_poll_timeout_ms,
            read_committed=options.read_committed,
            fail_on_data_loss=options.fail_on_data_loss,
            cluster=cluster,
            topics=topics,
            pacer=pacer or Pacer(),
            label=options.group_id_prefix,
            loss_patience_ms=options.data_loss_patience_ms,
        )

    @property
    def loss_patience(self) -> float:
        """The seconds for which planned records may be missing, at most `kafkaConsumer.pollTimeoutMs`."""
        return min(self.loss_patience_ms, self.timeout_ms) / 1000


class FetchEngine(Protocol):
    """An engine that fetches ranges from the brokers. One engine serves many requests, one after another."""

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """Yield every record of all ranges once, in offset order within a partition.

        Raises:
            DataLossError: Planned records no longer exist and `fail_on_data_loss` is set.
            CorruptRecordsError: A record batch is damaged.
            UnreadableRecordError: A record does not fit the requested columns, or exceeds `max_unpacked_bytes`.
            InvalidConfigurationError: A different cluster answers, or a NOT NULL column has nulls.
            KafkaGroupError: The brokers refuse, or do not answer in time.
        """
        ...


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the requested schema, whose columns may be NOT NULL.

    Raises:
        InvalidConfigurationError: A NOT NULL column has nulls.
    """
    if batch.schema.equals(schema):
        return batch
    for column, wanted in zip(batch.columns, schema, strict=True):
        if column.null_count and not wanted.nullable:
            raise InvalidConfigurationError(
                f"The schema declares {wanted.name} NOT NULL, but a record has no {wanted.name}. Remove NOT NULL from "
                f"{wanted.name}."
            )
    return batch.cast(schema)
