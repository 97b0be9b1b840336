"""KIP-1050's demo loop: consume, transform, produce, send offsets; with an error of every category on its way.

    ./run python -m examples.transactional_loop

Words come in, counts go out, and the group's offsets move with them, in one transaction each time. The loop below is
all that an application writes: what to do after which error is `run_transaction`'s business; the `except` clauses say
what is left to the application.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, Message, Producer, TopicPartition

import assignors
from kafka_source.embedded import EmbeddedKafka
from kafka_source.errors import ApplicationRecoverableError, InvalidConfigurationError, error_for_code
from kafka_source.transactions import Transaction, TransactionalProducers, run_transaction

LINES = ["to be or not to be", "that is the question", "to die to sleep", "no more", "to sleep perchance to dream"]

# One for each category, met by the first try of a batch; the fifth, invalid configuration, comes from the broker.
INJECTED = {0: 7, 1: 6, 2: 120, 3: 90}


class Application:
    """A consumer and a transactional producer; both are made anew after an application-recoverable error."""

    def __init__(self, servers: str) -> None:
        config = {"bootstrap.servers": servers, "group.id": "words", "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**config, "enable.auto.commit": False, "isolation.level": "read_committed"})
        self.consumer.subscribe(["lines"])
        self.producers = TransactionalProducers({"bootstrap.servers": servers}, "words-app")

    def next_line(self) -> Message | None:
        """The next record, None when there is none for a while."""
        message = self.consumer.poll(10)
        return message if message is not None and message.error() is None else None

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
        self.producers.close()


def count_words(application: Application, line: Message, faults: Iterator[int]) -> None:
    """One transaction: the counts of a line, and the offset after it."""

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
    """Run the loop until all lines are counted; returns what a `read_committed` reader sees."""
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
                # The group's committed offset is the last durable position: begin again from there.
                print(f"starting again: {error}")
                application.close()
                application = Application(kafka.bootstrap_servers)
        application.close()
        try:
            with_too_long_a_timeout(kafka.bootstrap_servers)
        except InvalidConfigurationError as error:
            print(f"a setting must change: {error}")
        return committed_counts(kafka.bootstrap_servers)


def with_too_long_a_timeout(servers: str) -> None:
    """Invalid configuration, from the broker itself: a transaction timeout above what it allows."""
    producers = TransactionalProducers({"bootstrap.servers": servers, "transaction.timeout.ms": 3_600_000}, "too-long")
    run_transaction(producers, lambda transaction: None, timeout=30)


def committed_counts(servers: str) -> Counter[str]:
    """What a `read_committed` reader sees."""
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
