"""confluent-kafka: `Consumer.consume`, and a DataFrame of each call's messages."""

import polars as pl

from benchmarks.arrow.frames import done, frame
from benchmarks.clients.confluent_kafka_consume import calls, subscribed
from benchmarks.clients.job import Job


def main(job: Job) -> None:
    consumer = subscribed(job)
    frames = [
        frame(
            {
                "key": [message.key() for message in messages],
                "value": [message.value() for message in messages],
                "partition": [message.partition() for message in messages],
                "offset": [message.offset() for message in messages],
                "timestamp": [message.timestamp()[1] for message in messages],
            }
        )
        for messages in calls(consumer, job)
    ]
    done(pl.concat(frames))
    consumer.close()


if __name__ == "__main__":
    main(Job.of_arguments())
