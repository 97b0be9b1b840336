"""A worker pool: a group assigns jobs to its members, and assigns them again if a member joins or leaves.

    python -m examples.worker_pool broker:9092

Start the program several times, and stop some of the processes.
"""

import json
import os
import sys
import time
from collections.abc import Mapping

from kafkagroup import GenericMember, MemberSettings, Settings

JOBS = [f"job-{number}" for number in range(10)]


def share(protocol: str, workers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Assign the jobs in proportion to the workers' capacities. The group's leader calls this function."""
    capacity = {worker: json.loads(said)["capacity"] for worker, said in workers.items()}
    jobs: dict[str, list[str]] = {worker: [] for worker in workers}
    for job in JOBS:
        worker = min(jobs, key=lambda w: (len(jobs[w]) / capacity[w], w))
        jobs[worker].append(job)
    return {worker: json.dumps(given).encode() for worker, given in jobs.items()}


def main(servers: str, seconds: float) -> None:
    about_me = json.dumps({"host": os.uname().nodename, "capacity": os.cpu_count() or 1}).encode()
    group = MemberSettings("pool", protocol_type="worker-pool", session_timeout_ms=10_000)
    with GenericMember(Settings({"bootstrap.servers": servers}), group, {"by-capacity": about_me}, share) as member:
        until, generation = time.monotonic() + seconds, -1
        while time.monotonic() < until:
            state = member.wait(1.0, after=generation)
            if state is not None:
                generation = state.generation
                jobs = ", ".join(json.loads(state.state or b"[]")) or "nothing"
                print(f"{os.getpid()} works on {jobs} (generation {generation})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092", float(sys.argv[2]) if len(sys.argv) > 2 else 1e9)
