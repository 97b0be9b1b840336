"""The topics that the benchmarks read: four partitions each, with values from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from confluent_kafka import Producer

from kafkagroup.embedded import EmbeddedKafka

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Load:
    """The contents of a topic: values of one size, without keys.

    Attributes:
        value_bytes: The size of each value.
        records: The number of records.
        codec: The compression.
        batch_records: The number of records of each record batch; None: as many as fit in 16 KiB (Java's default).
        headers: The number of headers of each record.
        aborted: Whether each record batch is in a transaction, and every second transaction is aborted.
    """

    value_bytes: int
    records: int
    codec: str = "none"
    batch_records: int | None = None
    headers: int = 0
    aborted: bool = False

    @property
    def topic(self) -> str:
        parts = [f"values-{self.value_bytes}-{self.codec}"]
        parts += [f"batches-of-{self.batch_records}"] if self.batch_records else []
        parts += [f"headers-{self.headers}"] if self.headers else []
        return "-".join(parts + ["aborted"] * self.aborted)

    def smaller(self, by: int) -> Load:
        return replace(self, records=max(PARTITIONS, self.records // by))


def fill(kafka: EmbeddedKafka, load: Load) -> None:
    """Create the topic and write its values, which compress to about a third."""
    kafka.create_topic(load.topic, PARTITIONS, config={"retention.ms": -1, "max.message.bytes": 2_000_000})
    # These listeners need no security settings, and no proxy delays them.
    servers = kafka.internal_bootstrap_servers
    values = _values(load)
    if load.batch_records is None:
        _produce(servers, load, values)
        return
    # They encode with the native engine.
    from benchmarks.read import exact_batches, short_transactions

    in_each = load.records // PARTITIONS // load.batch_records
    if in_each * PARTITIONS * load.batch_records != load.records:
        raise ValueError(f"{load} has not the same number of full batches in each partition")
    if load.aborted:
        short_transactions.write(servers, load.topic, values, load.batch_records, in_each)
    else:
        batches = exact_batches.encode(values, load.batch_records, load.codec, load.headers)
        exact_batches.write(servers, load.topic, batches, in_each)
        exact_batches.check(kafka.data_folder(), load.topic, load.batch_records, in_each, load.codec)


def _values(load: Load) -> list[bytes]:
    rng = random.Random(load.topic)
    words = [rng.randbytes(rng.randrange(2, 6)).hex().encode() for _ in range(2000)]
    return [
        b" ".join(rng.choices(words, k=load.value_bytes // 5 + 1))[: load.value_bytes].ljust(load.value_bytes, b".")
        for _ in range(max(10, min(20_000, 20_000_000 // load.value_bytes)))
    ]


def _produce(servers: str, load: Load, values: Sequence[bytes]) -> None:
    """Write with librdkafka, whose batches become full."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": load.codec,
            "batch.size": 16_384,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": 2_000_000,
        }
    )
    for number in range(load.records):
        value = values[number % len(values)]
        while True:
            try:
                # A hundred records in a row go to one partition, so that batches become full however fast this loop is.
                producer.produce(load.topic, value, partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError(f"{load.topic} could not be written")
