"""The message that a task of the sink sends to the driver when it is done."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from kafka_source.sink.two_phase.driver_epoch import DriverEpoch
from kafka_source.sink.two_phase.prepare import Prepared
from kafka_source.source_sink_handoff import BatchOfRun


@dataclass(frozen=True, slots=True)
class CommitMessage(WriterCommitMessage):
    """A task's result: all of its records are acknowledged.

    Attributes:
        records: The number of records.
        batch: The batch that the task belongs to; exactly-once sink only.
        epoch: The driver's epoch in which the task ran; exactly-once sink only. The commit runs in another process than
            the begin, and gets the epoch from here.
        prepared: The task's open transaction; exactly-once sink only.
    """

    records: int
    batch: BatchOfRun | None = None
    epoch: DriverEpoch | None = None
    prepared: Prepared | None = None
