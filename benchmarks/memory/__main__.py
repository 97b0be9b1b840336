"""Memory of a Python worker while it reads one large partition.

`python -m benchmarks.memory [--gigabytes 5] [--value-bytes 1000] [--codec none] [--engine native]` fills a topic of an
embedded Kafka, reads it in a process that writes the batches to an Arrow stream, as Spark's worker does, and prints the
process's peak resident size, and how much that is above its size before the read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

from confluent_kafka import Producer

from benchmarks._machine import describe_machine
from kafka_source.embedded import EmbeddedKafka

TOPIC = "large"


def fill(servers: str, total_bytes: int, value_bytes: int, codec: str) -> int:
    """Write values that compress to about half their size; return their number."""
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
    count = total_bytes // value_bytes
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, pieces[number % len(pieces)])
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    return count


def resident(field: str) -> int:
    """Return a field of /proc/self/status in bytes: VmRSS, the current size, or VmHWM, the peak."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def read(servers: str, count: int, engine: str, answer: Connection) -> None:
    import pyarrow as pa
    from pyspark.sql.worker import plan_data_source_read  # noqa: F401 - Spark's worker loads it too

    from kafka_source.fetch.engine import FetchRequest
    from kafka_source.fetch.select import engine_for
    from kafka_source.model.stream_offset import Range
    from kafka_source.options import Where, read_options
    from kafka_source.schema import arrow_schema, columns_of, source_schema

    options = read_options({"kafka.bootstrap.servers": servers, "subscribe": TOPIC}, Where.BATCH)
    columns = columns_of(source_schema(headers=False))
    reader = engine_for(engine, options.settings)

    def run(end: int) -> int:
        request = FetchRequest(
            (Range(TOPIC, 0, 0, end),),
            columns,
            options.batch_rows,
            options.batch_bytes,
            60_000,
            read_committed=False,
            fail_on_data_loss=True,
        )
        rows = 0
        with Path(os.devnull).open("wb") as sink, pa.ipc.new_stream(sink, arrow_schema(columns)) as stream:
            for batch in reader.read(request):
                rows += batch.num_rows
                stream.write_batch(batch)
        return rows

    idle = resident("VmRSS")
    started = time.perf_counter()
    rows = run(count)
    seconds = time.perf_counter() - started
    assert rows == count
    answer.send({"idle": idle, "peak": resident("VmHWM"), "after": resident("VmRSS"), "seconds": seconds})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gigabytes", type=float, default=5.0)
    arguments.add_argument("--value-bytes", type=int, default=1000)
    arguments.add_argument("--codec", default="none")
    arguments.add_argument("--engine", default="native")
    given = arguments.parse_args()
    print(describe_machine())
    with EmbeddedKafka(config={"log.retention.ms": -1}, jvm_options=()) as kafka:
        kafka.create_topic(TOPIC)
        count = fill(kafka.bootstrap_servers, int(given.gigabytes * 1e9), given.value_bytes, given.codec)
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        worker = multiprocessing.get_context("spawn").Process(
            target=read, args=(kafka.bootstrap_servers, count, given.engine, theirs)
        )
        worker.start()
        theirs.close()
        seen = ours.recv()
        worker.join()
    megabytes = {name: round(size / 1e6) for name, size in seen.items() if name != "seconds"}
    print(f"{count:,} records, {given.gigabytes:g} GB, codec {given.codec}, engine {given.engine}")
    print(json.dumps({**megabytes, "over idle": megabytes["peak"] - megabytes["idle"]}), "MB")
    print(f"read in {seen['seconds']:.1f} s")


if __name__ == "__main__":
    main()
