"""The topics that the benchmarks read: four partitions each, with values from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafkagroup.embedded import EmbeddedKafka

PARTITIONS = 4
# Each producer waits most of the time until the coordinator has written markers.
_PRODUCERS = 8
# The place of the codec in the header of a record batch.
_CODEC_AT, _CODEC_MASK, _CODECS = 22, 7, ("none", "gzip", "snappy", "lz4", "zstd")


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
    """Create the topic, unless it exists, and write its values, which compress to about a third."""
    if load.topic in kafka.admin().list_topics(timeout=30).topics:
        return
    config: dict[str, object] = {"retention.ms": -1, "max.message.bytes": 2_000_000}
    # These listeners need no security settings, and no proxy delays them.
    servers, values = kafka.internal_bootstrap_servers, _values(load)
    if load.batch_records is None:
        kafka.create_topic(load.topic, PARTITIONS, config=config)
        # A hundred records in a row go to one partition, so that batches become full at any speed of this loop.
        written = (
            {"value": values[number % len(values)], "partition": number // 100 % PARTITIONS}
            for number in range(load.records)
        )
        full = {"compression.type": load.codec, "batch.size": 16_384, "message.max.bytes": 2_000_000}
        produce(servers, load.topic, written, {**full, "linger.ms": 20})
        return
    # A batch that would not become smaller stays uncompressed with librdkafka, but not with Java's producer or brokers.
    config["compression.type"] = load.codec.replace("none", "uncompressed")
    kafka.create_topic(load.topic, PARTITIONS, config=config)
    in_each, rest = divmod(load.records, PARTITIONS * load.batch_records)
    if rest:
        raise ValueError(f"{load} has not the same number of full batches in each partition")
    if load.aborted:
        _write_transactions(servers, load, values, in_each)
        return
    batches = (
        {"value": values[number % len(values)], "partition": number // load.batch_records % PARTITIONS}
        for number in range(load.records)
    )
    if load.headers:
        batches = ({**one, "headers": _headers(number, load.headers)} for number, one in enumerate(batches))
    produce(servers, load.topic, batches, _batches_of(load.batch_records))
    _check(kafka.data_folder(), load, in_each)


def produce(servers: str, topic: str, records: Iterable[dict[str, Any]], config: Mapping[str, Any] = {}) -> None:
    """Write records, which are arguments of confluent-kafka's `Producer.produce`, and wait for their delivery."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000, **config})
    for number, record in enumerate(records):
        while True:
            try:
                producer.produce(topic, **record)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError(f"{topic} could not be written")


def _values(load: Load) -> list[bytes]:
    rng = random.Random(load.topic)
    words = [rng.randbytes(rng.randrange(2, 6)).hex().encode() for _ in range(2000)]
    return [
        b" ".join(rng.choices(words, k=load.value_bytes // 5 + 1))[: load.value_bytes].ljust(load.value_bytes, b".")
        for _ in range(max(10, min(20_000, 20_000_000 // load.value_bytes)))
    ]


def _headers(record: int, count: int) -> list[tuple[str, bytes]]:
    """Return headers like those of tracing: a short name, and a value of 16 bytes."""
    return [(f"header-{number}", b"%016d" % (record * count + number)) for number in range(count)]


def _batches_of(records: int) -> dict[str, Any]:
    """Return settings by which librdkafka sends no batch before the batch has this number of records."""
    return {"batch.num.messages": records, "linger.ms": 10_000}


def _write_transactions(servers: str, load: Load, values: Sequence[bytes], count: int) -> None:
    """Write transactions with one record batch for each partition; abort every second transaction."""

    size = load.batch_records or 1

    def write(first: int) -> None:
        config = {"bootstrap.servers": servers, "transactional.id": f"{load.topic}-{first}"}
        producer = Producer({**config, **_batches_of(size)})
        producer.init_transactions(60)
        for number in range(first, count, _PRODUCERS):
            producer.begin_transaction()
            begin = number * size % (len(values) - size)
            for partition in range(PARTITIONS):
                for value in values[begin : begin + size]:
                    producer.produce(load.topic, value, partition=partition)
            # An abort would drop unsent records.
            producer.flush(60)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)

    with ThreadPoolExecutor(_PRODUCERS) as threads:
        list(threads.map(write, range(_PRODUCERS)))


def _check(data_folder: Path, load: Load, in_each: int) -> None:
    """Read the headers of the first partition's record batches in the broker's folder.

    Raises:
        RuntimeError: The number of batches, their numbers of records, or the codec of the first batch is wrong.
    """
    import kafkagroup_native

    segments = sorted((data_folder / f"{load.topic}-0").glob("*.log"))
    data = b"".join(segment.read_bytes() for segment in segments)
    seen = kafkagroup_native.scan(data, 0)
    found = (seen.batches, seen.offsets, data[_CODEC_AT] & _CODEC_MASK)
    wanted = (in_each, in_each * (load.batch_records or 0), _CODECS.index(load.codec))
    if found != wanted:
        raise RuntimeError(f"{load.topic}-0 has (batches, records, codec) {found} and not {wanted}")
