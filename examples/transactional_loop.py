"""KIP-1050's example loop: consume, transform, produce, send offsets; with one injected error of each category.

    ./run python -m examples.transactional_loop

Each transaction contains the word counts of one line and the group's offset after the line. `run_transaction` handles
the errors that can be retried or aborted. The `except` clauses of the loop handle the other errors.
"""

from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, Message, Producer, TopicPartition

import assignors
from kafkagroup import (
    ApplicationRecoverableError,
    InvalidConfigurationError,
    Transaction,
    TransactionalProducers,
    error_for_code,
    run_transaction,
)
from kafkagroup.embedded import EmbeddedKafka

LINES = ["to be or not to be", "that is the question", "to die to sleep", "no more", "to sleep perchance to dream"]

# One error code of each category, by the offset of a line. The first attempt to count this line fails with the code.
# An error of the fifth category, invalid configuration, comes from the broker: see `with_too_long_a_timeout`.
INJECTED = {0: 7, 1: 6, 2: 120, 3: 90}


class Application:
    """A consumer and a transactional producer, which are replaced after an application-recoverable error."""

    def __init__(self, servers: str) -> None:
        config = {"bootstrap.servers": servers, "group.id": "words", "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**config, "enable.auto.commit": False, "isolation.level": "read_committed"})
        self.consumer.subscribe(["lines"])
        self.producers = TransactionalProducers({"bootstrap.servers": servers}, "words-app")

    def next_line(self) -> Message | None:
        """Return the next record, or None if no record arrives within 10 s."""
        message = self.consumer.poll(10)
        return message if message is not None and message.error() is None else None

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


def count_words(application: Application, line: Message, faults: Iterator[int]) -> None:
    """Write the counts of a line, and commit the offset after the line, in one transaction."""

    def work(transaction: Transaction) -> None:
        for word, count in Counter((line.value() or b"").decode().split()).items():
            transaction.produce("counts", str(count), word)
        metadata = application.consumer.consumer_group_metadata()
        place = assignors.TopicPartition(line.topic() or "", line.partition() or 0)
        transaction.send_offsets({place: (line.offset() or 0) + 1}, metadata)
        code = next(faults, None)
        if code is not None:
            raise error_for_code(code, "Injected by the example")

    run_transaction(application.producers, work, timeout=60)


def main() -> Counter[str]:
    """Run the loop until all lines are counted; return the counts that a `read_committed` reader sees."""
    with EmbeddedKafka() as kafka:
        kafka.create_topic("lines")
        kafka.create_topic("counts")
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for text in LINES:
            producer.produce("lines", text)
        producer.flush()

        faults = {offset: iter([code]) for offset, code in INJECTED.items()}
        application = Application(kafka.bootstrap_servers)
        done = 0
        while done < len(LINES):
            line = application.next_line()
            if line is None:
                continue
            try:
                count_words(application, line, faults.get(line.offset() or 0, iter(())))
                done += 1
                print(f"counted: {(line.value() or b'').decode()}")
            except ApplicationRecoverableError as error:
                # The last durable position is the group's committed offset, at which a new consumer starts.
                print(f"resuming from the committed offset: {error}")
                application.close()
                application = Application(kafka.bootstrap_servers)
        application.close()
        try:
            with_too_long_a_timeout(kafka.bootstrap_servers)
        except InvalidConfigurationError as error:
            print(f"a setting must be changed: {error}")
        return committed_counts(kafka.bootstrap_servers)


def with_too_long_a_timeout(servers: str) -> None:
    """Cause an invalid-configuration error: a transaction timeout above the broker's limit."""
    producers = TransactionalProducers({"bootstrap.servers": servers, "transaction.timeout.ms": 3_600_000}, "too-long")
    run_transaction(producers, lambda transaction: None, timeout=30)


def committed_counts(servers: str) -> Counter[str]:
    """Return the counts that a `read_committed` reader sees."""
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    reader.assign([TopicPartition("counts", 0, 0)])
    counts: Counter[str] = Counter()
    while True:
        message = reader.poll(10)
        if message is None or message.error() is not None:
            reader.close()
            return counts
        counts[(message.key() or b"").decode()] += int(message.value() or 0)


if __name__ == "__main__":
    print(main())
