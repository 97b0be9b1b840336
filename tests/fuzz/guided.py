"""Coverage-guided fuzzing of one of `tests.fuzz.parsers`, by atheris (libFuzzer for Python).

    python -m tests.fuzz.guided PARSER CORPUS FOLDER -max_total_time=60

New inputs go to FOLDER; those of CORPUS are only read. The other arguments are libFuzzer's. The process ends with an
error, and libFuzzer leaves the input in a file, if the parser breaks a promise: see `tests.fuzz.parsers`.
"""

import pkgutil
import resource
import sys
import time
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import atheris

import assignors
from kafka_source.fetch import protocol
from kafka_source.group.classic import leader
from kafka_source.kafka_client import framing, metadata
from kafka_source.kafka_client.messages import cluster, codec, group, login, quota, transaction
from kafka_source.produce import protocol as produce_protocol
from kafka_source.sink.two_phase import ledger
from tests.fuzz.parsers import PARSERS

LONGEST_SECONDS = 1.0
# For inputs of a few kB. A length that is believed before it is checked exceeds it.
MAX_BYTES = 128 << 20

# Whole packages take minutes to instrument.
MESSAGES = (cluster, codec, group, login, quota, transaction)
PARTS = (*MESSAGES, protocol, leader, framing, metadata, produce_protocol, ledger)


def main(name: str, corpus: str, folder: str, *arguments: str) -> None:
    parser = PARSERS[name]
    strategies = (import_module(f"assignors.{one.name}") for one in pkgutil.iter_modules(assignors.__path__))
    for module in (*PARTS, *strategies):
        instrument(module)
    for number, seed in enumerate(parser.seeds):
        (Path(folder) / f"seed-{number}").write_bytes(seed)

    def run(data: bytes) -> None:
        began = time.process_time()
        parser(data)
        seconds = time.process_time() - began
        assert seconds < LONGEST_SECONDS, f"{seconds:.1f} s for {len(data)} bytes"

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, resource.RLIM_INFINITY))
    atheris.Setup([sys.argv[0], folder, corpus, "-rss_limit_mb=0", *arguments], run)
    atheris.Fuzz()


def instrument(module: ModuleType) -> None:
    """Instrument the functions and methods of a module."""
    scopes: list[ModuleType | type] = [module]
    for scope in scopes:
        for one in vars(scope).values():
            if isinstance(one, type) and one.__module__ == module.__name__ and one not in scopes:
                scopes.append(one)
            function = getattr(one, "__func__", getattr(one, "fget", one))
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                atheris.instrument_func(function)


if __name__ == "__main__":
    main(*sys.argv[1:])
