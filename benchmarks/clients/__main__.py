"""Counting the records of a topic with kafkagroup and what Python users would take instead: records a second a core.

    ./run bench clients [--quick] [--rounds 3] [--only NAME,NAME] [--environments FOLDER] [--save FILE]

The job: the number of records of a topic and the bytes of their values, four partitions, an embedded broker with one
node. Clients that the project does not depend on are installed into environments of their own, in FOLDER if they shall
be kept for the next run. A client's CPU time is that of its process and all processes that it has started, from its
first fetch to its result; without its start, imports and installation. Spark and Flink have run the job over a small
topic before. A core: records divided by that CPU time, however many cores were busy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks._machine import describe_machine
from benchmarks.clients.environments import CLIENTS, ROOT, Installed, NotInstallableError, install
from benchmarks.clients.job import TAG, Job
from benchmarks.read.topics import Load, fill
from kafkagroup.embedded import EmbeddedKafka
from testbed.processes import cpu_seconds_of_tree

LOADS = (Load(100, 4_000_000), Load(1000, 500_000))
SMALL = Load(100, 50_000, "lz4")
QUICK = 20
HEAD = (
    "| records | client | wall s | CPU s | records/s a core | MB/s a core | of confluent-kafka's |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)
BASE = "confluent-kafka"


@dataclass
class Figures:
    """The figures of one client and load, with one entry per round."""

    load: Load
    client: Installed
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def records_a_core(self) -> float:
        return self.load.records / median(self.cpu)

    def line(self, base: float | None) -> str:
        name = f"{self.client.client.name} {self.client.version}"
        ratio = "" if base is None else f"{self.records_a_core / base:.2f}"
        return (
            f"| {self.load.records:,} × {self.load.value_bytes} B | {name} "
            f"| {_spread(self.wall)} | {_spread(self.cpu)} "
            f"| {self.records_a_core:,.0f} | {self.records_a_core * self.load.value_bytes / 1e6:,.1f} | {ratio} |"
        )


def _spread(times: Sequence[float]) -> str:
    return f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", help="names of programs in benchmarks/clients, separated by commas")
    parser.add_argument("--environments", type=Path, help="a folder that keeps the environments for the next run")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    rounds = given.rounds or (1 if given.quick else 3)
    loads = [load.smaller(QUICK) if given.quick else load for load in LOADS]
    machine = describe_machine()
    print(machine, flush=True)
    with tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder:
        clients = _install(given.only, given.environments or Path(folder, "environments"))
        config = {"log.retention.ms": -1, "log.segment.bytes": 1 << 30}
        with EmbeddedKafka(config=config, heap="1g", jvm_options=(), data_dir=Path(folder, "data")) as kafka:
            for load in (SMALL, *loads):
                fill(kafka, load)
            print(HEAD, flush=True)
            found = [one for load in loads for one in measure(kafka.bootstrap_servers, load, clients, rounds)]
    if given.save:
        _save(given.save, machine, found)


def _install(only: str | None, folder: Path) -> list[Installed]:
    clients = []
    for client in CLIENTS:
        if only is None or client.module.removeprefix("clients.") in only.split(","):
            try:
                clients.append(install(client, folder))
            except NotInstallableError as error:
                print(f"without {client.name}: {error}", flush=True)
    return clients


def measure(servers: str, load: Load, clients: Sequence[Installed], rounds: int) -> list[Figures]:
    figures = [Figures(load, client) for client in clients]
    for _ in range(rounds):
        for one in figures:
            wall, cpu = run(one.client, Job(servers, load.topic, load.records, SMALL.topic), load)
            one.wall.append(wall)
            one.cpu.append(cpu)
    base = next((one.records_a_core for one in figures if one.client.client.name == BASE), None)
    for one in figures:
        print(one.line(base), flush=True)
    return figures


def run(client: Installed, job: Job, load: Load) -> tuple[float, float]:
    """Let a client do the job; return its seconds, and those of CPU time of its processes.

    Raises:
        RuntimeError: The client's program has failed, or has counted wrongly.
    """
    command = [client.python, "-m", f"benchmarks.{client.client.module}"]
    command += [job.servers, job.topic, str(job.records), job.small_topic]
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
        command, cwd=ROOT, env=client.variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            _wait_for_line(process.stdout)
            before, started = cpu_seconds_of_tree(process.pid), time.perf_counter()
            _answer(process.stdin)
            counted = json.loads(_wait_for_line(process.stdout))
            wall, cpu = time.perf_counter() - started, cpu_seconds_of_tree(process.pid) - before
            _answer(process.stdin)
        except EOFError:
            process.wait()
            errors.seek(0)
            raise RuntimeError(f"{client.client.name} has failed: {errors.read()[-3000:]}") from None
        process.stdin.close()
        process.stdout.read()
    if counted != {"records": load.records, "bytes": load.records * load.value_bytes}:
        raise RuntimeError(f"{client.client.name} has counted {counted}")
    return wall, cpu


def _wait_for_line(lines: IO[str]) -> str:
    for line in lines:
        if line.startswith(TAG):
            return line.removeprefix(TAG)
    raise EOFError


def _answer(stream: IO[str]) -> None:
    stream.write("\n")
    stream.flush()


def _save(path: Path, machine: str, figures: Sequence[Figures]) -> None:
    """Write a file that `benchmarks.plot` draws: CPU time of each client, by case."""
    cases: dict[str, dict[str, dict[str, Sequence[float]]]] = {}
    for one in figures:
        case = cases.setdefault(f"{one.load.records:,} × {one.load.value_bytes} B", {"seconds": {}, "wall": {}})
        case["seconds"][one.client.client.name] = one.cpu
        case["wall"][one.client.client.name] = one.wall
    rows = [{"case": name, **case} for name, case in cases.items()]
    versions = {one.client.client.name: one.client.version for one in figures}
    saved = {"machine": machine, "measure": "CPU seconds", "versions": versions, "cases": rows}
    path.write_text(json.dumps(saved, indent=1))


if __name__ == "__main__":
    main()
