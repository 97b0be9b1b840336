"""Memory of Python workers, one or many at the same time, while each reads a large partition.

    ./run bench memory [--gigabytes 5] [--value-bytes 1000] [--codec none] [--engine native] [--workers 1]

It fills a topic of an embedded Kafka with a partition for each worker; the gigabytes are those of all partitions. The
workers are forked from a process that has loaded what Spark's daemon loads, and write the batches to an Arrow stream,
as Spark's workers do. Printed are each worker's resident size before the read and its peak, and the proportional sizes
(PSS), in which workers divide the pages that they share.

One worker takes about one minute, `--workers 16` with 5 GB two.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from statistics import median

from confluent_kafka import Producer

from benchmarks._machine import describe_machine
from benchmarks.memory.sizes import MEGABYTE, Peaks
from benchmarks.memory.worker import READY_SECONDS, Order, Seen, run
from kafkagroup.embedded import EmbeddedKafka

TOPIC = "large"
SAMPLE_SECONDS = 0.1


def fill(servers: str, total_bytes: int, value_bytes: int, codec: str, partitions: int) -> int:
    """Write values that compress to about half their size; return their number in each partition."""
    rng = random.Random(1)
    pieces = [rng.randbytes(value_bytes // 2) + bytes(value_bytes - value_bytes // 2) for _ in range(1000)]
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "batch.size": 1_000_000,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    in_each = total_bytes // value_bytes // partitions
    for number in range(in_each * partitions):
        while True:
            try:
                producer.produce(TOPIC, pieces[number % len(pieces)], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    return in_each


def measure(orders: Sequence[Order]) -> tuple[list[Seen], Peaks, float]:
    """Run a worker for each order at the same time; return what they saw, their peaks, and the seconds."""
    context = multiprocessing.get_context("forkserver")
    # Workers must share the pages that Spark's workers share, those of the process that forks them.
    context.set_forkserver_preload(["pyspark.daemon", "pyspark.worker"])
    ready = context.Barrier(len(orders) + 1)
    workers: list[ForkServerProcess] = []
    answers: list[Connection] = []
    for order in orders:
        ours, theirs = context.Pipe(duplex=False)
        workers.append(context.Process(target=run, args=(order, ready, theirs)))
        workers[-1].start()
        theirs.close()
        answers.append(ours)
    ready.wait(timeout=READY_SECONDS)
    started = time.perf_counter()
    peaks = Peaks()
    pids = [worker.pid for worker in workers if worker.pid is not None]
    open_ones, seen = list(answers), dict[Connection, Seen]()
    while open_ones:
        peaks.sample(pids)
        for answer in wait(open_ones, SAMPLE_SECONDS):
            assert isinstance(answer, Connection)
            seen[answer] = answer.recv()
            open_ones.remove(answer)
    seconds = time.perf_counter() - started
    for worker in workers:
        worker.join()
    return [seen[answer] for answer in answers], peaks, seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gigabytes", type=float, default=5.0, help="of values in all partitions")
    arguments.add_argument("--value-bytes", type=int, default=1000)
    arguments.add_argument("--codec", default="none")
    arguments.add_argument("--engine", default="native")
    arguments.add_argument("--workers", type=int, default=1)
    given = arguments.parse_args()
    print(describe_machine())
    with EmbeddedKafka(config={"log.retention.ms": -1}, jvm_options=()) as kafka:
        kafka.create_topic(TOPIC, given.workers)
        total = int(given.gigabytes * 1e9)
        count = fill(kafka.bootstrap_servers, total, given.value_bytes, given.codec, given.workers)
        orders = [
            Order(kafka.bootstrap_servers, TOPIC, partition, count, given.engine) for partition in range(given.workers)
        ]
        seen, peaks, seconds = measure(orders)
    print(
        f"{given.workers} workers, {count:,} records each, {given.gigabytes:g} GB in all, codec {given.codec}, "
        f"engine {given.engine}, read in {seconds:.1f} s"
    )
    print("| MB | median (min to max) of a worker | all workers at one time |\n| --- | --- | --- |")
    print(f"| RSS, idle | {_spread([each.idle for each in seen])} | {sum(each.idle for each in seen) / MEGABYTE:.0f} |")
    print(f"| RSS, peak | {_spread([each.peak for each in seen])} | {peaks.all_rss / MEGABYTE:.0f} |")
    print(f"| RSS, peak over idle | {_spread([each.peak - each.idle for each in seen])} | |")
    print(f"| PSS, peak | {_spread(list(peaks.pss.values()))} | {peaks.all_pss / MEGABYTE:.0f} |")
    print(f"{peaks.samples} samples")


def _spread(sizes: Sequence[int]) -> str:
    megabytes = [size / MEGABYTE for size in sizes]
    return f"{median(megabytes):.0f} ({min(megabytes):.0f} to {max(megabytes):.0f})"


if __name__ == "__main__":
    main()
