"""Memory of Python workers, one or many at the same time, while each reads a large partition.

    ./run bench memory [--gigabytes 5] [--value-bytes 1000] [--codec none] [--engine native] [--workers 1]

A topic of an embedded Kafka has a partition for each worker; all partitions together have the gigabytes. The workers
are forked from a process with the modules of Spark's daemon, and write the batches to an Arrow stream, as Spark's
workers do. The output has each worker's resident size before the read and at its peak, and proportional sizes.

One worker takes about one minute; `--workers 16` with 5 GB takes two minutes.
"""

import multiprocessing
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import median

from benchmarks._command import begin, parser_of
from benchmarks.memory.worker import READY_SECONDS, Order, Seen, run
from benchmarks.read.topics import produce
from kafkagroup.embedded import EmbeddedKafka

TOPIC = "large"
SAMPLE_SECONDS = 0.1
MEGABYTE = 1_000_000


@dataclass
class Peaks:
    """The largest sizes in the samples so far, in bytes.

    Attributes:
        all_pss: The proportional size of all processes, in which each page counts once if no other process has it.
        pss: Each process's proportional size, by process id.
    """

    all_pss: int = 0
    pss: dict[int, int] = field(default_factory=dict)

    def sample(self, pids: Sequence[int]) -> None:
        """Sample all processes that still run."""
        pss = 0
        for pid in pids:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            own = _field(text, "Pss")
            pss += own
            self.pss[pid] = max(own, self.pss.get(pid, 0))
        self.all_pss = max(self.all_pss, pss)


def _field(text: str, name: str) -> int:
    line = next((line for line in text.splitlines() if line.startswith(name + ":")), None)
    # A process that has ended has no sizes, even before its parent has waited for its end.
    return 0 if line is None else int(line.split()[1]) * 1024


def fill(servers: str, total_bytes: int, value_bytes: int, codec: str, partitions: int) -> int:
    """Write values that compress to about half their size; return their number in each partition."""
    rng = random.Random(1)
    pieces = [rng.randbytes(value_bytes // 2) + bytes(value_bytes - value_bytes // 2) for _ in range(1000)]
    in_each = total_bytes // value_bytes // partitions
    records = (
        {"value": pieces[number % len(pieces)], "partition": number % partitions}
        for number in range(in_each * partitions)
    )
    config = {"compression.type": codec, "batch.size": 1_000_000, "linger.ms": 50}
    produce(servers, TOPIC, records, {**config, "queue.buffering.max.kbytes": 256 * 1024})
    return in_each


def measure(orders: Sequence[Order]) -> tuple[list[Seen], Peaks, float]:
    """Run a worker for each order at the same time; return the workers' own sizes, the peaks, and the seconds."""
    context = multiprocessing.get_context("forkserver")
    # Like Spark's workers, these workers must share the pages of the process from which they are forked.
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
    parser = parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of values in all partitions")
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--engine", default="native")
    parser.add_argument("--workers", type=int, default=1)
    given = begin(parser)
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
    print(f"| RSS, idle | {_spread([each.idle for each in seen])} | |")
    print(f"| RSS, peak | {_spread([each.peak for each in seen])} | |")
    print(f"| RSS, peak over idle | {_spread([each.peak - each.idle for each in seen])} | |")
    print(f"| PSS, peak | {_spread(list(peaks.pss.values()))} | {peaks.all_pss / MEGABYTE:.0f} |")


def _spread(sizes: Sequence[int]) -> str:
    megabytes = [size / MEGABYTE for size in sizes]
    return f"{median(megabytes):.0f} ({min(megabytes):.0f} to {max(megabytes):.0f})"


if __name__ == "__main__":
    main()
