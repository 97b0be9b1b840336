"""A process that reads a partition as Spark's Python worker does."""

import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier

from testbed.processes import resident

READY_SECONDS = 300.0
"""Time in which all workers must have loaded their modules."""


@dataclass(frozen=True, slots=True)
class Order:
    """The read of a worker: a partition of a topic from its start to `count` records, with an engine."""

    servers: str
    topic: str
    partition: int
    count: int
    engine: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker's resident size before the read, and its peak, in bytes."""

    idle: int
    peak: int


def run(order: Order, ready: Barrier, answer: Connection) -> None:
    """Load a worker's modules, wait for the other workers, read, and send the sizes."""
    import pyarrow as pa
    from pyspark.sql.worker import plan_data_source_read  # noqa: F401 - Spark's worker loads it too

    from kafka_source.fetch.engine import FetchRequest
    from kafka_source.fetch.select import engine_for
    from kafka_source.model.arrow_schema import arrow_schema
    from kafka_source.model.stream_offset import Range
    from kafka_source.options import Where, read_options
    from kafka_source.schema import columns_of, source_schema

    options = read_options({"kafka.bootstrap.servers": order.servers, "subscribe": order.topic}, Where.BATCH)
    columns = columns_of(source_schema(headers=False))
    reader = engine_for(order.engine, options.settings)
    request = FetchRequest(
        (Range(order.topic, order.partition, 0, order.count),),
        columns,
        options.batch_rows,
        options.batch_bytes,
        60_000,
        read_committed=False,
        fail_on_data_loss=True,
    )
    idle = resident("VmRSS")
    ready.wait(timeout=READY_SECONDS)
    rows = 0
    with Path(os.devnull).open("wb") as sink, pa.ipc.new_stream(sink, arrow_schema(columns)) as stream:
        for batch in reader.read(request):
            rows += batch.num_rows
            stream.write_batch(batch)
    assert rows == order.count
    answer.send(Seen(idle, resident("VmHWM")))
