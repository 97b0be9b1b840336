"""Counting the records of a topic with kafkagroup and other clients for Python, in records per second of a core.

    ./run bench clients [--quick] [--rounds 3] [--only NAME,NAME] [--environments FOLDER] [--save FILE]

The job counts the records of a topic with four partitions on an embedded broker, and the bytes of their values. Clients
that the project does not depend on are installed into their own environments, which FOLDER keeps for the next run. A
client's CPU time is that of its process and all processes that it has started, from its first fetch to its result,
without start, imports and installation. Spark and Flink run the job over a small topic first. "Of a core" means that
records are divided by this CPU time, on however many cores the client was busy.
"""

import json
import subprocess
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks._command import begin, parser_of
from benchmarks.clients.environments import CLIENTS, ROOT, Client, Installed, NotInstallableError, install
from benchmarks.clients.job import TAG, Job
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.topics import Load, fill
from kafkagroup.embedded import EmbeddedKafka
from testbed.processes import cpu_seconds_of_tree

LOADS = (Load(100, 4_000_000), Load(1000, 500_000))
SMALL = Load(100, 50_000, "lz4")
QUICK = 20
BASE = "confluent-kafka"


def main() -> None:
    parser = parser_of(__doc__, rounds=0, saves=True)
    parser.add_argument("--only", help="names of programs in benchmarks/clients, separated by commas")
    given = begin_with_loads(parser)
    only = given.only.split(",") if given.only else ()
    clients = [one for one in CLIENTS if not only or one.module.removeprefix("clients.") in only]
    with installed(clients, given) as (_, kafka, ready):
        save(given, [measure(kafka.bootstrap_servers, load, ready, given) for load in given.loads])


def begin_with_loads(parser: ArgumentParser) -> Namespace:
    """Return the arguments with `rounds` and `loads`, which `--quick` makes small."""
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--environments", type=Path, help="a folder that keeps the environments for the next run")
    given = begin(parser)
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.loads = [load.smaller(QUICK) if given.quick else load for load in LOADS]
    return given


@contextmanager
def installed(
    clients: Sequence[Client], given: Namespace, *more: Load
) -> Iterator[tuple[Path, EmbeddedKafka, list[Installed]]]:
    """Yield a folder, a broker that has the loads, and the clients that can be installed."""
    with tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder:
        ready = []
        for client in clients:
            try:
                ready.append(install(client, given.environments or Path(folder, "environments")))
            except NotInstallableError as error:
                print(f"without {client.name}: {error}", flush=True)
        config = {"log.retention.ms": -1, "log.segment.bytes": 1 << 30}
        with EmbeddedKafka(config=config, heap="1g", jvm_options=(), data_dir=Path(folder, "data")) as kafka:
            for load in (SMALL, *given.loads, *more):
                fill(kafka, load)
            print(HEAD.replace("seconds", "CPU seconds").replace("JVM", BASE), flush=True)
            yield Path(folder), kafka, ready


def measure(servers: str, load: Load, clients: Sequence[Installed], given: Namespace) -> Figures:
    walls: dict[str, list[float]] = {}

    def cpu(name: str, client: Installed) -> float:
        wall, seconds = run(client, Job(servers, load.topic, load.records, SMALL.topic), load)
        walls.setdefault(name, []).append(wall)
        return seconds

    # All other clients are compared with the first client.
    ordered = sorted(clients, key=lambda one: one.client.name != BASE)
    named = {f"{one.client.name} {one.version}": one for one in ordered}
    contestants = {name: partial(cpu, name, client) for name, client in named.items()}
    figures = Figures(f"{load.records:,} × {load.value_bytes} B")
    in_turns(figures, contestants, given.rounds, warm_up=0)
    for name, seconds in figures.seconds.items():
        a_core = load.records / median(seconds)
        print(f"  {name}: {median(walls[name]):.2f} s of time, {a_core:,.0f} records/s a core", flush=True)
    return figures


def run(client: Installed, job: Job, load: Load) -> tuple[float, float]:
    """Let a client do the job; return its seconds, and the CPU seconds of its processes.

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


if __name__ == "__main__":
    main()
