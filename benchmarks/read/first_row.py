"""Time from the start of a Python process to the first row of a small topic, and its steps.

`measure` runs this module as a program, once per contestant and round. A line has the delay of kafkagroup's row in each
step: the session, `load()` (Spark looks up the format and its schema), and the query (plan and task).
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.read.figures import Figures, in_turns

ROOT = Path(__file__).parents[2]
ALLOWED_SECONDS = 0.3
STEPS = ("session", "load", "query")


def measure(servers: str, topic: str, rounds: int) -> Figures:
    steps: dict[str, list[Sequence[float]]] = {"jvm": [], "native": []}

    def run(source: str) -> float:
        started = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.read.first_row", source, servers, topic]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=True)
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["rows"] == 1
        steps[source].append([after - before for before, after in pairwise([started, *said["at"]])])
        return float(said["at"][-1]) - started

    contestants = {name: (lambda name=name: run(name)) for name in ("jvm", "native")}
    figures = in_turns(Figures("process start to first row"), contestants, rounds)
    medians = {name: sorted(times)[len(times) // 2] for name, times in figures.seconds.items()}
    late = medians["native"] - medians["jvm"]
    verdict = "met" if late <= ALLOWED_SECONDS else "MISSED"
    print(f"first row {late:+.2f} s compared with the JVM connector: {verdict}", flush=True)
    for number, step in enumerate(STEPS):
        ours, theirs = (median(one[number] for one in steps[name]) for name in ("native", "jvm"))
        print(f"  {step}: {ours:.2f} s, the JVM connector {theirs:.2f} s", flush=True)
    return figures


def main(source: str, servers: str, topic: str) -> None:
    from benchmarks.read import sources

    # On Linux all processes share the clock of perf_counter, so the parent can subtract its own start time.
    spark = sources.session()
    at = [time.perf_counter()]
    frame = sources.frame(spark, source, servers, topic)
    at.append(time.perf_counter())
    rows = frame.limit(1).collect()
    at.append(time.perf_counter())
    print(json.dumps({"rows": len(rows), "at": at}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
