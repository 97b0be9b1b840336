"""Writes record batches with an exact number of records, as producers with `linger.ms=0` make small ones.

Each batch is encoded once and sent many times: the broker changes only its first offset. A request carries one batch
for each partition, as Kafka demands, so 300,000 batches of four partitions are 75,000 requests.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import kafkagroup_native
import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.produce.accumulator import RecordBatch
from kafka_source.produce.native_producer import NativeProducer
from kafka_source.produce.protocol import ProduceConnection
from kafka_source.produce.records import HEADERS

# While a broker answers one connection, the next request is made for another.
_CONNECTIONS = 4
_METADATA_SECONDS = 30.0
_ATTRIBUTES, _ATTRIBUTES_AT, _CODEC_MASK = struct.Struct(">h"), 21, 7
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def encode(values: Sequence[bytes], batch_records: int, codec: str, headers: int) -> list[bytes]:
    """Return record batches of `batch_records` values each; a rest of the values is left out."""
    encoder = kafkagroup_native.BatchEncoder(compression=codec, batch_bytes=1 << 24, record_bytes=1 << 24)
    now_ms = int(time.time() * 1000)
    batches = []
    for begin in range(0, len(values) - batch_records + 1, batch_records):
        rows = {"value": pa.array(values[begin : begin + batch_records], pa.binary())}
        if headers:
            rows["headers"] = pa.array([_headers(begin + row, headers) for row in range(batch_records)], HEADERS)
        encoder.append(0, 1, pa.record_batch(rows), now_ms)
        ((_, _, _, batch),) = encoder.take(all=True)
        batches.append(batch)
    return batches


def _headers(record: int, count: int) -> list[tuple[str, bytes]]:
    """Return headers like those of tracing: a short name, and a value of 16 bytes."""
    return [(f"header-{number}", b"%016d" % (record * count + number)) for number in range(count)]


def write(servers: str, topic: str, batches: Sequence[bytes], in_each: int) -> None:
    """Send `in_each` record batches to each partition of a topic; if there are fewer, they are sent again.

    Raises:
        RuntimeError: A broker refused a batch.
        ConnectionLost: A connection has ended.
    """
    producer = NativeProducer(Settings({"bootstrap.servers": servers}))
    for node, partitions in leaders(producer, topic).items():
        connections = [producer.connection(node) for _ in range(_CONNECTIONS)]
        supply = itertools.cycle(batches)
        for _, connection in zip(range(in_each), itertools.cycle(connections), strict=False):
            acknowledged(connection)
            connection.send([RecordBatch(tp, next(supply)) for tp in partitions], None, {})
        for connection in connections:
            acknowledged(connection)
            connection.close()


def leaders(producer: NativeProducer, topic: str) -> dict[int, list[TopicPartition]]:
    """Return the partitions of a topic by the node that leads them."""
    producer.refresh([topic], _METADATA_SECONDS)
    found: dict[int, list[TopicPartition]] = {}
    for number, partition in sorted(producer.cluster.topics[topic].partitions.items()):
        found.setdefault(partition.leader, []).append(TopicPartition(topic, number))
    return found


def acknowledged(connection: ProduceConnection) -> None:
    """Wait for the response to the last request, if there is one.

    Raises:
        RuntimeError: The broker refused a batch.
    """
    if connection.waiting:
        refused = [each for each in connection.receive().partitions if each.error]
        if refused:
            raise RuntimeError(f"The broker refused record batches: {refused}")


def check(data_folder: Path, topic: str, batch_records: int, in_each: int, codec: str) -> None:
    """Read the headers of the first partition's record batches in the broker's folder.

    Raises:
        RuntimeError: Their number, their numbers of records or the codec of the first one is another.
    """
    segments = sorted((data_folder / f"{topic}-0").glob("*.log"))
    data = b"".join(segment.read_bytes() for segment in segments)
    seen = kafkagroup_native.scan(data, 0)
    used = _ATTRIBUTES.unpack_from(data, _ATTRIBUTES_AT)[0] & _CODEC_MASK
    found, wanted = (seen.batches, seen.offsets, used), (in_each, in_each * batch_records, _CODECS[codec])
    if found != wanted:
        raise RuntimeError(f"{topic}-0 has (batches, records, codec) {found} and not {wanted}")
