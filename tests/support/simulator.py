"""The simulator of tests/simulation, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_simulator(*arguments: object) -> str:
    """Return what `python -m tests.simulation` prints: it replaces the clock, and orders of sets must be the same."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4000:]
    return done.stdout
