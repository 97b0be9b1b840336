"""confluent-kafka: `Consumer.consume`, thousands of messages a call."""

from collections.abc import Iterator

from confluent_kafka import Consumer, Message

from benchmarks.clients.job import Job, begin, end

MESSAGES_PER_CALL = 10_000


def subscribed(job: Job) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.new_group(),
            "auto.offset.reset": "earliest",
            # By default a partition is not fetched for a second after its queue was full, which adds up to 20 s here.
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([job.topic], on_assign=lambda *_: begin())
    return consumer


def calls(consumer: Consumer, job: Job) -> Iterator[list[Message]]:
    """Yield the messages of each call."""
    records = 0
    while records < job.records:
        messages = consumer.consume(MESSAGES_PER_CALL, timeout=1.0)
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
        records += len(messages)
        yield messages


def main(job: Job) -> None:
    consumer = subscribed(job)
    records = size = 0
    for messages in calls(consumer, job):
        records += len(messages)
        size += sum(len(message.value() or b"") for message in messages)
    end(records, size)
    consumer.close()


if __name__ == "__main__":
    main(Job.of_arguments())
