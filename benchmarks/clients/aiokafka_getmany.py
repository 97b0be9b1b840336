"""aiokafka: `AIOKafkaConsumer.getmany`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener  # type: ignore[import-not-found]

from benchmarks.clients.job import Job, begin, end

MESSAGES_PER_CALL = 10_000


class Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        pass

    async def on_partitions_assigned(self, assigned):
        if assigned:
            begin()


async def subscribed(job: Job) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.servers, group_id=job.new_group(), auto_offset_reset="earliest"
    )  # fmt: skip
    consumer.subscribe([job.topic], listener=Listener())
    await consumer.start()
    return consumer


async def calls(consumer: AIOKafkaConsumer, job: Job) -> AsyncIterator[list[Any]]:
    """Yield the messages of each partition that a call has returned."""
    records = 0
    while records < job.records:
        for messages in (await consumer.getmany(timeout_ms=1000, max_records=MESSAGES_PER_CALL)).values():
            records += len(messages)
            yield messages


async def main(job: Job) -> None:
    consumer = await subscribed(job)
    records = size = 0
    async for messages in calls(consumer, job):
        records += len(messages)
        size += sum(len(message.value) for message in messages)
    end(records, size)
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(Job.of_arguments()))
