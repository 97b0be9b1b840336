"""A leader election: one of the processes that run this program writes. If the writer ends, another process writes.

    python -m examples.single_writer broker:9092

Start the program several times. The generation of the group is a fencing token: send the token with each write, and let
the store refuse older tokens. A writer that was suspended or cut off then cannot overwrite the data of its successor.
"""

import os
import sys
import time
from collections.abc import Mapping

from kafkagroup import GenericMember, MemberSettings, Settings


def elect(protocol: str, candidates: Mapping[str, bytes]) -> dict[str, bytes]:
    """Choose the candidate that was started first as the writer. The group's leader calls this function."""
    writer = min(candidates, key=lambda member: (candidates[member], member))
    return {member: b"write" if member == writer else b"wait" for member in candidates}


def main(servers: str, seconds: float) -> None:
    started = f"{time.time_ns():020}".encode()
    group = MemberSettings("report-writer", protocol_type="single-writer", session_timeout_ms=10_000)
    with GenericMember(Settings({"bootstrap.servers": servers}), group, {"first-started": started}, elect) as member:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state = member.state
            if state is None:
                print(f"{os.getpid()} has no role yet: the group is rebalancing", flush=True)
            elif state.state == b"write":
                print(f"{os.getpid()} writes, with token {state.generation}", flush=True)
            else:
                print(f"{os.getpid()} waits", flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092", float(sys.argv[2]) if len(sys.argv) > 2 else 1e9)
