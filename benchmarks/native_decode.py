"""Speed of the native decoder, from record sets to Arrow batches, on one core, without Kafka or Spark.

`python -m benchmarks.native_decode [--megabytes 200] [--rounds 5]` prints the machine and, for each record size, codec
and set of columns, the median records/s and MB/s (of decompressed records), and the slowest and fastest round. The last
column is the scan of the batch headers, by which a task knows its next fetch offset before it decodes.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kafkagroup_native
import pyarrow as pa
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RESPONSE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table: the size and codec of the records, and the columns that are decoded."""

    record_bytes: int
    codec: str
    columns: tuple[str, ...]
    batch_bytes: int = 16 << 10


def pack(codec: str, data: bytes) -> bytes:
    """Compress a batch's records with pyarrow's codecs, so that the benchmark needs no other library."""
    if codec == "none":
        return data
    if codec == "snappy":
        return bytes(pa.compress(data, codec="snappy", asbytes=True))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def record_batch(load: Load, rng: random.Random, words: list[bytes]) -> tuple[bytearray, bytes, int]:
    """Return a batch's header, its compressed records and their number."""
    count = max(1, load.batch_bytes // (load.record_bytes + 10))
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for i in range(count):
        value = b" ".join(rng.choices(words, k=load.record_bytes // 6 + 1))[: load.record_bytes]
        builder.append(i, 1_700_000_000_000 + i, None, value.ljust(load.record_bytes, b"."), [])
    plain = bytes(builder.build())
    header, records = bytearray(plain[:61]), pack(load.codec, plain[61:])
    header[8:12] = (49 + len(records)).to_bytes(4, "big")
    header[22] = CODECS[load.codec]
    header[17:21] = calc_crc32c(bytes(header[21:]) + records).to_bytes(4, "big")
    return header, records, count


def record_sets(load: Load, total_bytes: int, seed: int = 7) -> tuple[list[bytearray], int]:
    """Return fetch responses with whole batches, whose values compress about 3:1, and the number of records."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(3, 9)).hex()[:-3].encode() for _ in range(200)]
    variants = [record_batch(load, rng, words) for _ in range(max(1, min(32, (4 << 20) // load.batch_bytes)))]
    responses, count, unpacked = [bytearray()], 0, 0
    while unpacked < total_bytes:
        header, records, rows = variants[rng.randrange(len(variants))]
        header[:8] = count.to_bytes(8, "big")
        if len(responses[-1]) + len(header) + len(records) > RESPONSE_BYTES:
            responses.append(bytearray())
        responses[-1] += header + records
        count += rows
        unpacked += rows * (load.record_bytes + 10)
    return responses, count


def decode(load: Load, parts: list[bytearray]) -> int:
    """Decode all responses into Arrow batches and drop those; return the number of rows."""
    rows = 0
    builder = kafkagroup_native.BatchBuilder(load.columns, batch_rows=100_000)
    for part in parts:
        records = kafkagroup_native.RecordSet(part, "benchmark-topic", 0)
        while builder.append(records):
            rows += pa.record_batch(builder.take()).num_rows
    return rows + int(pa.record_batch(builder.take()).num_rows)


def scan(parts: list[bytearray]) -> int:
    """Read the batch headers of all responses, as a task does before it decodes them; return the number of batches."""
    return sum(kafkagroup_native.scan(part, 0).batches for part in parts)


def timed(work: Callable[[], int]) -> float:
    """Return the CPU seconds of `work`, which depend less on other processes' load than elapsed time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def machine() -> str:
    """Return the processor, the operating system and the versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = f"{len(names)} x {names[0]}" if names else platform.processor()
    return (
        f"{processor}, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"pyarrow {pa.__version__}, kafkagroup_native {kafkagroup_native.__version__}"
    )


def loads() -> Iterator[Load]:
    for size in (10, 100, 1000):
        yield Load(size, "none", ALL_COLUMNS)
        yield Load(size, "none", ("value",))
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            yield Load(size, codec, ALL_COLUMNS)
    yield Load(100, "none", ALL_COLUMNS, 1 << 20)
    yield Load(100_000, "none", ALL_COLUMNS, 1 << 20)
    # One and ten records in a batch, as of producers that do not linger.
    yield Load(100, "none", ALL_COLUMNS, 110)
    yield Load(100, "none", ALL_COLUMNS, 1100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the decompressed records per row, in MB")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    print(
        f"{'record':>8} {'batch':>8} {'codec':>7} {'columns':>8} {'M records/s':>12} {'spread':>12} {'MB/s':>7} "
        f"{'scan, ns/batch':>15}"
    )
    for load in loads():
        parts, count = record_sets(load, arguments.megabytes * 1_000_000)
        if decode(load, parts) != count:
            raise SystemExit(f"{load}: not every record was decoded")
        seconds = [timed(lambda load=load, parts=parts: decode(load, parts)) for _ in range(arguments.rounds)]  # type: ignore[misc]
        median, rates = statistics.median(seconds), sorted(count / s / 1e6 for s in seconds)
        batches = scan(parts)
        scanning = min(timed(lambda parts=parts: scan(parts)) for _ in range(arguments.rounds))  # type: ignore[misc]
        columns = "all" if load.columns == ALL_COLUMNS else ",".join(load.columns)
        size = f"{load.batch_bytes >> 10} KiB" if load.batch_bytes >= 4096 else f"{load.batch_bytes} B"
        print(
            f"{load.record_bytes:>6} B {size:>8} {load.codec:>7} {columns:>8} "
            f"{count / median / 1e6:>12.2f} {rates[0]:>5.1f}-{rates[-1]:<6.1f} "
            f"{count * (load.record_bytes + 10) / median / 1e6:>7.0f} {scanning / batches * 1e9:>15.1f}"
        )


if __name__ == "__main__":
    main()
