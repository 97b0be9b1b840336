"""aiokafka: `AIOKafkaConsumer.getmany`, and a DataFrame of each call's messages."""

import asyncio

import polars as pl

from benchmarks.arrow.frames import COLUMNS, done, frame
from benchmarks.clients.aiokafka_getmany import calls, subscribed
from benchmarks.clients.job import Job


async def main(job: Job) -> None:
    consumer = await subscribed(job)
    frames = [
        frame({name: [getattr(message, name) for message in messages] for name in COLUMNS})
        async for messages in calls(consumer, job)
    ]
    done(pl.concat(frames))
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(Job.of_arguments()))
