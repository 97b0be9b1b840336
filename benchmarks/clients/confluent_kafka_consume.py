"""confluent-kafka: `Consumer.consume`, thousands of messages a call."""

from __future__ import annotations

from confluent_kafka import Consumer

from benchmarks.clients.job import Job, begin, end

MESSAGES_PER_CALL = 10_000


def main(job: Job) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.new_group(),
            "auto.offset.reset": "earliest",
            # By default a partition is not fetched for one second after its queue was full: 20 s of waiting here.
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([job.topic], on_assign=lambda *_: begin())
    records = size = 0
    while records < job.records:
        for message in consumer.consume(MESSAGES_PER_CALL, timeout=1.0):
            if message.error():
                raise RuntimeError(message.error())
            records += 1
            size += len(message.value() or b"")
    end(records, size)
    consumer.close()


if __name__ == "__main__":
    main(Job.of_arguments())
