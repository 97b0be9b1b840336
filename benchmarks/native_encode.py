"""Speed of the native encoder, from Arrow rows to record batches, on one core, without Kafka or Spark.

`python -m benchmarks.native_encode [--megabytes 200] [--rounds 5]` prints the machine and, for each record size and
codec, the median records/s and MB/s (of values), and the slowest and fastest round. The values compress about 3:1.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import kafkagroup_native
import pyarrow as pa

from benchmarks.native_decode import machine, timed

ROWS = 10_000
PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table: the size and codec of the values, and whether records have keys."""

    value_bytes: int
    codec: str
    keyed: bool = False


def arrays(load: Load, seed: int = 7) -> tuple[pa.Array, pa.Array | None]:
    """Return values that consist of words and, if the load is keyed, keys of 8 bytes."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(3, 9)).hex()[:-3].encode() for _ in range(200)]
    values = []
    for _ in range(ROWS):
        value = b" ".join(rng.choices(words, k=load.value_bytes // 6 + 1))[: load.value_bytes]
        values.append(value.ljust(load.value_bytes, b"."))
    keys = [rng.randbytes(8) for _ in range(ROWS)] if load.keyed else None
    return pa.array(values, pa.binary()), None if keys is None else pa.array(keys, pa.binary())


def encode(load: Load, values: pa.Array, keys: pa.Array | None, repeats: int) -> int:
    """Encode the rows `repeats` times, including their import and the copy of the batches out of the encoder."""
    encoder = kafkagroup_native.BatchEncoder(compression=load.codec)
    encoder.identify(1, 0)
    rows = 0
    for _ in range(repeats):
        columns = {"value": values} if keys is None else {"value": values, "key": keys}
        encoder.append(0, PARTITIONS, pa.record_batch(columns), 1_700_000_000_000)
        rows += sum(count for _, _, count, _ in encoder.take(all=False))
    return rows + sum(count for _, _, count, _ in encoder.take(all=True))


def loads() -> Iterator[Load]:
    for size in (10, 100, 1000):
        for codec in ("none", "lz4", "zstd", "snappy", "gzip"):
            yield Load(size, codec)
        yield Load(size, "none", keyed=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the values per row, in MB")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    print(f"{'value':>8} {'codec':>7} {'key':>5} {'M records/s':>12} {'spread':>14} {'MB/s':>7}")
    for load in loads():
        values, keys = arrays(load)
        repeats = max(1, arguments.megabytes * 1_000_000 // (ROWS * load.value_bytes))
        if encode(load, values, keys, 1) != ROWS:
            raise SystemExit(f"{load}: not every record was encoded")
        seconds = [
            timed(lambda load=load, values=values, keys=keys, repeats=repeats: encode(load, values, keys, repeats))  # type: ignore[misc]
            for _ in range(arguments.rounds)
        ]
        count = ROWS * repeats
        rates = sorted(count / second / 1e6 for second in seconds)
        median = count / statistics.median(seconds)
        print(
            f"{load.value_bytes:>6} B {load.codec:>7} {'8 B' if load.keyed else '':>5} {median / 1e6:>12.2f} "
            f"{rates[0]:>6.1f}-{rates[-1]:<7.1f} {median * load.value_bytes / 1e6:>7.0f}"
        )


if __name__ == "__main__":
    main()
