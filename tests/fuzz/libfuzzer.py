"""Builds and runs fuzz targets of libFuzzer: those of `native/fuzz`, and Python parsers under atheris."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
KERNEL = ("record_set", "codec", "encoder")

# What cargo-fuzz passes to the compiler, without the address sanitizer, whose option is unstable. The pass and its
# options are LLVM's, so a stable toolchain has them too.
_COVERAGE = (
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
)

# By the clock on the wall, for an input that never ends. The targets judge the CPU time of those that end: on a busy
# machine a process may wait for longer than any input takes.
_LONGEST_INPUT_SECONDS = 30


@dataclass(frozen=True)
class Outcome:
    """What a run has done.

    Attributes:
        inputs: The number of inputs.
        peak_mib: The largest resident memory of the process, with libFuzzer's own, in MiB.
    """

    inputs: int
    peak_mib: int


@cache
def kernel_targets() -> Path:
    """Build the targets of `native/fuzz`; return the folder with the programs."""
    about = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = about.partition("host: ")[2].split()[0]
    # With a target named, the flags are not those of build scripts, which cannot be linked with them.
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", host]
    flags = {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(_COVERAGE)}
    folder = ROOT / "native" / "fuzz"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **flags}, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
    return target / host / "release"


def run_kernel(target: str, folder: Path, *, inputs: int, seconds: int) -> Outcome:
    """Run a target of `native/fuzz`."""
    return _run([str(kernel_targets() / target), str(folder), str(CORPUS / target)], inputs, seconds)


def run_parser(parser: str, folder: Path, *, inputs: int, seconds: int) -> Outcome:
    """Run a parser of `tests.fuzz.parsers`."""
    command = [sys.executable, "-m", "tests.fuzz.guided", parser, str(CORPUS / parser), str(folder)]
    return _run(command, inputs, seconds)


def _run(command: Sequence[str], inputs: int, seconds: int) -> Outcome:
    options = [
        f"-runs={inputs}",
        f"-max_total_time={seconds}",
        f"-timeout={_LONGEST_INPUT_SECONDS}",
        "-max_len=4096",
        "-print_final_stats=1",
        # Not in the folder: a run that has failed leaves its input there.
        f"-artifact_prefix={Path(tempfile.gettempdir())}/kafkagroup-fuzz-",
    ]
    done = subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=seconds + 300,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]

    def stat(name: str) -> int:
        found = re.search(rf"stat::{name}: +(\d+)", said)
        assert found is not None, said[-2000:]
        return int(found[1])

    return Outcome(stat("number_of_executed_units"), stat("peak_rss_mb"))
