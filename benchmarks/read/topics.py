"""The topics that the benchmarks read: four partitions each, with values from a fixed seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from confluent_kafka import Producer

from kafka_source.embedded import EmbeddedKafka

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Load:
    """The contents of a topic: values of one size, no keys, in batches of at most 16 KiB (Java's default)."""

    value_bytes: int
    records: int
    codec: str = "none"

    @property
    def topic(self) -> str:
        return f"values-{self.value_bytes}-{self.codec}"

    def smaller(self, by: int) -> Load:
        return Load(self.value_bytes, max(PARTITIONS, self.records // by), self.codec)


def fill(kafka: EmbeddedKafka, load: Load) -> None:
    """Create the topic and write its values, which compress to about a third."""
    kafka.create_topic(load.topic, PARTITIONS, config={"retention.ms": -1, "max.message.bytes": 2_000_000})
    rng = random.Random(load.topic)
    words = [rng.randbytes(rng.randrange(2, 6)).hex().encode() for _ in range(2000)]
    values = [
        b" ".join(rng.choices(words, k=load.value_bytes // 5 + 1))[: load.value_bytes].ljust(load.value_bytes, b".")
        for _ in range(max(10, min(20_000, 20_000_000 // load.value_bytes)))
    ]
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
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
