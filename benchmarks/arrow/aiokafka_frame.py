"""aiokafka: `AIOKafkaConsumer.getmany`, and a DataFrame of each call's messages."""

from __future__ import annotations

import asyncio

import polars as pl
from aiokafka import AIOKafkaConsumer  # type: ignore[import-not-found]

from benchmarks.arrow.frames import MESSAGES_PER_CALL, done, frame
from benchmarks.clients.aiokafka_getmany import Listener
from benchmarks.clients.job import Job


async def main(job: Job) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.servers, group_id=job.new_group(), auto_offset_reset="earliest"
    )  # fmt: skip
    consumer.subscribe([job.topic], listener=Listener())
    await consumer.start()
    frames: list[pl.DataFrame] = []
    records = 0
    while records < job.records:
        for messages in (await consumer.getmany(timeout_ms=1000, max_records=MESSAGES_PER_CALL)).values():
            frames.append(
                frame(
                    {
                        "key": [message.key for message in messages],
                        "value": [message.value for message in messages],
                        "partition": [message.partition for message in messages],
                        "offset": [message.offset for message in messages],
                        "timestamp": [message.timestamp for message in messages],
                    }
                )
            )
            records += len(messages)
    done(pl.concat(frames))
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(Job.of_arguments()))
