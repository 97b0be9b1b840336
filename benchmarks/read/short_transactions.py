"""Writes short transactions, every second of which is aborted, by several producers at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import kafkagroup_native
import pyarrow as pa

from benchmarks.read.exact_batches import acknowledged, leaders
from kafka_source.client_config import Settings
from kafka_source.kafka_client import Deadline
from kafka_source.produce.accumulator import RecordBatch
from kafka_source.produce.native_producer import NativeProducer
from kafka_source.produce.sender import TaskTransaction
from kafka_source.transactions.open_transaction import end, initialise

# A producer waits for the coordinator, which writes markers, for most of its time.
_PRODUCERS = 8
_SECONDS = 60.0
_TIMEOUT_MS = 60_000


def write(servers: str, topic: str, values: Sequence[bytes], batch_records: int, transactions: int) -> None:
    """Write transactions with one record batch for each partition; those with odd numbers are aborted.

    Raises:
        KafkaGroupError: The coordinator refuses a transaction.
        RuntimeError: The broker refused a batch.
    """

    def produce(first: int) -> None:
        producer = NativeProducer(Settings({"bootstrap.servers": servers}))
        client, transactional_id = producer.client, f"{topic}-{first}"
        partitions_of = leaders(producer, topic)
        connections = {node: producer.connection(node) for node in partitions_of}
        every = {tp for partitions in partitions_of.values() for tp in partitions}
        for number in range(first, transactions, _PRODUCERS):
            transaction = client.run(initialise(client, transactional_id, _TIMEOUT_MS, Deadline(_SECONDS)))
            TaskTransaction(client, transaction, _TIMEOUT_MS).add(every, _SECONDS)
            begin = number * batch_records % (len(values) - batch_records)
            rows = pa.record_batch({"value": pa.array(values[begin : begin + batch_records], pa.binary())})
            for node, partitions in partitions_of.items():
                batch = _batch(rows, transaction.producer_id, transaction.epoch)
                connections[node].send([RecordBatch(tp, batch) for tp in partitions], transaction, {})
                acknowledged(connections[node])
            client.run(end(client, transaction, commit=number % 2 == 0, deadline=Deadline(_SECONDS)))
        for connection in connections.values():
            connection.close()

    with ThreadPoolExecutor(_PRODUCERS) as threads:
        list(threads.map(produce, range(_PRODUCERS)))


def _batch(rows: pa.RecordBatch, producer_id: int, epoch: int) -> bytes:
    """Return the record batch of a transaction, which is the first one of its epoch in each partition."""
    encoder = kafkagroup_native.BatchEncoder()
    encoder.identify(producer_id, epoch, transactional=True)
    encoder.append(0, 1, rows, int(time.time() * 1000))
    ((_, _, _, batch),) = encoder.take(all=True)
    return bytes(batch)
