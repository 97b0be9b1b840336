"""A consumer of librdkafka in a group: says what it is assigned, reads and commits, and leaves when its input closes.

    python -m tests.apps.librdkafka_app SERVERS GROUP TOPIC PROTOCOL

It says the same lines as `GroupConsumer.java`, and commits in the interval of the environment variable COMMIT_MS. With
the protocol `consumer` the brokers assign (KIP-848).
"""

import os
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# What the brokers refuse a commit with while they move partitions; the records are read again.
_MOVED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
)


_MAX_AT_ONCE = 100


def main(servers: str, group: str, topic: str, protocol: str) -> None:
    classic = {"partition.assignment.strategy": "range", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Stored where a record is said, so that a commit never covers one that was not.
            "enable.auto.offset.store": False,
            **(classic if protocol == "classic" else {}),
        }
    )
    closing = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closing.set()), daemon=True).start()
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("assigned", partitions),
        on_revoke=revoke,
        on_lost=lambda _, partitions: say("lost", partitions),
    )
    read, commit_at = 0, time.monotonic()
    interval = int(os.environ.get("COMMIT_MS", "0")) / 1000
    while not closing.is_set():
        due = time.monotonic() >= commit_at
        message = consumer.poll(0.0 if read and due else 0.1)
        if message is not None and message.error() is None:
            print(f"record {message.partition()} {message.offset()} {(message.value() or b'').decode()}", flush=True)
            consumer.store_offsets(message)
            read += 1
        if read and due and (message is None or read >= _MAX_AT_ONCE):
            commit(consumer)
            read, commit_at = 0, time.monotonic() + interval
    commit(consumer)
    consumer.close()
    print("left", flush=True)


def commit(consumer: Consumer) -> None:
    """Commit all that was said, and say so; a refused commit is left to the next one, or to the next owner."""
    try:
        errors = [one.error for one in consumer.commit(asynchronous=False) or () if one.error is not None]
    except KafkaException as error:
        errors = [error.args[0]]
    codes = {error.code() for error in errors} - {KafkaError._NO_OFFSET}
    if codes - {*_MOVED}:
        raise SystemExit(f"the commit failed: {errors}")
    if codes:
        print("refused", *codes, flush=True)
    elif not errors:
        print("committed", flush=True)


def revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    commit(consumer)
    say("revoked", partitions)


def say(what: str, partitions: list[TopicPartition]) -> None:
    if partitions:
        print(what, ",".join(sorted(f"{one.topic}-{one.partition}" for one in partitions)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
