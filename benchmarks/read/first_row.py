"""Time from the start of a Python process to the first row of a small topic.

`measure` runs this module as a program, once per contestant and round.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.read.figures import Figures, in_turns

ROOT = Path(__file__).parents[2]
ALLOWED_SECONDS = 2.0


def measure(servers: str, topic: str, rounds: int) -> Figures:
    def run(source: str) -> float:
        started = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.read.first_row", source, servers, topic]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=True)
        assert json.loads(done.stdout.splitlines()[-1])["rows"] == 1
        return json.loads(done.stdout.splitlines()[-1])["at"] - started

    contestants = {name: (lambda name=name: run(name)) for name in ("jvm", "native")}
    figures = in_turns(Figures("process start to first row"), contestants, rounds)
    medians = {name: sorted(times)[len(times) // 2] for name, times in figures.seconds.items()}
    late = medians["native"] - medians["jvm"]
    verdict = "met" if late <= ALLOWED_SECONDS else "MISSED"
    print(f"first row {late:+.2f} s compared with the JVM connector: {verdict}", flush=True)
    return figures


def main(source: str, servers: str, topic: str) -> None:
    from benchmarks.read import sources

    spark = sources.session()
    rows = sources.frame(spark, source, servers, topic).limit(1).collect()
    # On Linux, all processes share the clock of perf_counter, so the parent can subtract its own start time.
    print(json.dumps({"rows": len(rows), "at": time.perf_counter()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
