"""Time of a topic as a polars DataFrame, with `arrow.read`, confluent-kafka, kafkarrow and aiokafka.

    ./run bench arrow [--quick] [--rounds 3] [--environments FOLDER]

As in `./run bench clients`, an embedded broker with one node has four partitions, each client has a process of its own,
and the result is records per second of a core. The CPU time of the process counts from its first fetch to the DataFrame
(key, value, partition, offset, timestamp). New processes measure the seconds from `from kafkagroup import arrow` to the
first record batch, and the memory of a read and of an export of ten times `max_bytes`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks._command import parser_of
from benchmarks.clients.__main__ import QUICK, begin_with_loads, installed, measure
from benchmarks.clients.environments import ROOT, Client
from benchmarks.read.topics import Load
from kafkagroup.arrow.reading import DEFAULT_MAX_BYTES

CLIENTS = (
    Client("kafkagroup, arrow.read", "arrow.kafkagroup_read", "kafkagroup"),
    Client("confluent-kafka", "arrow.confluent_kafka_frame", "confluent-kafka"),
    Client("kafkarrow", "arrow.kafkarrow_frame", "kafkarrow", ("kafkarrow==0.1.1", "polars")),
    Client("aiokafka", "arrow.aiokafka_frame", "aiokafka", ("aiokafka==0.14.0", "polars")),
)
PROCESSES = 5
TIMES_MAX_BYTES = 10
FORMS = ("parquet", "arrow", "csv", "jsonl")
# Ten times `DEFAULT_MAX_BYTES`, the `max_bytes` of an export.
EXPORTED = Load(2000, TIMES_MAX_BYTES * DEFAULT_MAX_BYTES // 2000)


def main() -> None:
    given = begin_with_loads(parser_of(__doc__, rounds=0))
    exported = EXPORTED.smaller(QUICK) if given.quick else EXPORTED
    with installed(CLIENTS, given, exported) as (folder, kafka, clients):
        for load in given.loads:
            measure(kafka.bootstrap_servers, load, clients, given)
        _first_batch(kafka.bootstrap_servers, given.loads[0])
        _memory(kafka.bootstrap_servers, given.loads[-1])
        _memory_of_export(kafka.bootstrap_servers, exported, folder)


def _first_batch(servers: str, load: Load) -> None:
    seen = [_one_read("first_batch", servers, load.topic) for _ in range(PROCESSES)]
    for what in seen[0]:
        seconds = [one[what] for one in seen]
        print(f"{what}: {median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f}, {PROCESSES} processes)")


def _memory(servers: str, load: Load) -> None:
    max_bytes = load.records * load.value_bytes // TIMES_MAX_BYTES
    seen = _one_read("memory", servers, load.topic, str(max_bytes))
    print(
        f"memory: at most {seen['more'] / 1e6:.0f} MB more than before, with max_bytes {max_bytes / 1e6:.0f} MB, of "
        f"{seen['read'] / 1e6:.0f} MB"
    )


def _memory_of_export(servers: str, load: Load, folder: Path) -> None:
    for form in FORMS:
        for to in (folder / f"exported.{form}", folder / form):
            seen = _one_read("export", servers, load.topic, form, str(to))
            print(
                f"memory: export to {to.name}: at most {seen['more'] / 1e6:.0f} MB more than before, of "
                f"{seen['read'] / 1e6:.0f} MB"
            )
            shutil.rmtree(to) if to.is_dir() else to.unlink()


def _one_read(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.arrow.one_read", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return found


if __name__ == "__main__":
    main()
