"""The command line of a benchmark, and the machine and versions of its figures."""

import argparse
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("pyspark", "pyarrow", "confluent-kafka", "kafka-python", "kafkagroup", "kafkagroup-native")


def parser_of(text: str | None, *, rounds: int | None = None, saves: bool = False) -> argparse.ArgumentParser:
    """Return a parser with a benchmark's docstring, and with `--rounds` and `--save` if the benchmark has them."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    if saves:
        parser.add_argument("--save", type=Path, help="a file for the figures")
    return parser


def begin(parser: argparse.ArgumentParser, *heads: str) -> argparse.Namespace:
    """Return the arguments, with a description of the machine in `machine`, and print this description."""
    given = parser.parse_args()
    given.machine = describe_machine()
    print(given.machine, *heads, sep="\n", flush=True)
    return given


def describe_machine() -> str:
    """Return the number of cores, processor, load and versions, in two lines."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = models[0] if models else cpu
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return (
        f"{len(os.sched_getaffinity(0))} cores of {cpu}, Linux {platform.release()}, load before {load}\n"
        f"Python {platform.python_version()}, {versions}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
