"""kafkarrow: the record batches of `ConsumerManager.poll` as a DataFrame."""

import polars as pl
import pyarrow as pa
from kafkarrow import ConsumerManager, SourceTopic  # type: ignore[import-not-found]

from benchmarks.arrow.frames import COLUMNS, MESSAGES_PER_CALL, done
from benchmarks.clients.job import Job, begin


def main(job: Job) -> None:
    begin()
    consumer = ConsumerManager(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.new_group(),
            # The same setting as for confluent-kafka, because both clients use librdkafka.
            "fetch.queue.backoff.ms": "10",
        },
        [SourceTopic.from_earliest(job.topic)],
        batch_size=MESSAGES_PER_CALL,
    )
    batches: list[pa.RecordBatch] = []
    records = 0
    while records < job.records:
        batch = consumer.poll(1000)
        if batch is not None and batch.num_rows:
            batches.append(batch.select(COLUMNS))
            records += batch.num_rows
    done(pl.DataFrame(pa.Table.from_batches(batches)))


if __name__ == "__main__":
    main(Job.of_arguments())
