"""confluent-kafka: `Consumer.consume`, and a DataFrame of each call's messages."""

from __future__ import annotations

import polars as pl
from confluent_kafka import Consumer

from benchmarks.arrow.frames import MESSAGES_PER_CALL, done, frame
from benchmarks.clients.job import Job, begin


def main(job: Job) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.new_group(),
            "auto.offset.reset": "earliest",
            # By default a partition is not fetched for one second after its queue was full.
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([job.topic], on_assign=lambda *_: begin())
    frames: list[pl.DataFrame] = []
    records = 0
    while records < job.records:
        messages = consumer.consume(MESSAGES_PER_CALL, timeout=1.0)
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
        frames.append(
            frame(
                {
                    "key": [message.key() for message in messages],
                    "value": [message.value() for message in messages],
                    "partition": [message.partition() for message in messages],
                    "offset": [message.offset() for message in messages],
                    "timestamp": [message.timestamp()[1] for message in messages],
                }
            )
        )
        records += len(messages)
    done(pl.concat(frames))
    consumer.close()


if __name__ == "__main__":
    main(Job.of_arguments())
