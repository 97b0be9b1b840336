"""One broker process, driven through its supervisor."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from kafka_source.embedded.errors import BrokerError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")

#: Kafka logs this when the broker is registered, caught up, and open to clients.
_STARTED = "Kafka Server started"


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Where a node keeps what it has: its settings, its log (text) and its data."""

    folder: Path

    @property
    def config(self) -> Path:
        """server.properties."""
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        """What the broker wrote to its output, over all of its starts."""
        return self.folder / "server.log"

    @property
    def data(self) -> Path:
        """The broker's `log.dirs`."""
        return self.folder / "data"


class Node:
    """Starts, signals and ends the JVM of one node. Knows nothing of Kafka but the line that says it is up."""

    def __init__(
        self, node_id: int, files: NodeFiles, command: Sequence[str], remove_if_abandoned: Path | None
    ) -> None:
        self.id = node_id
        self.files = files
        self._command = list(command)
        self._remove = "" if remove_if_abandoned is None else str(remove_if_abandoned)
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._pid: int | None = None

    def spawn(self) -> None:
        """Starts the process and returns at once; `has_started` tells when it is up."""
        if self.running:
            raise BrokerError(f"Node {self.id} is already running.")
        self._log_start = self.files.log.stat().st_size if self.files.log.exists() else 0
        supervisor = subprocess.Popen(
            [sys.executable, "-I", str(_SUPERVISOR), str(self.files.log), self._remove, *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with cast(IO[bytes], supervisor.stdout) as told:
            line = told.readline()
        self._supervisor = supervisor
        self._pid = int(line) if line.strip() else None

    @property
    def running(self) -> bool:
        """Whether the process lives (a paused one does)."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def pid(self) -> int | None:
        """The JVM's process id, to look at; signals go through the methods here."""
        return self._pid if self.running else None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, 128 + n for signal n; None while it runs or never ran."""
        return None if self._supervisor is None else self._supervisor.poll()

    def has_started(self) -> bool:
        """Whether this start has come to its end well."""
        return _STARTED in self.log_of_this_start()

    def log_of_this_start(self) -> str:
        """What the broker wrote since the last `spawn`."""
        if not self.files.log.exists():
            return ""
        with self.files.log.open("rb") as handle:
            handle.seek(self._log_start)
            return handle.read().decode(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of this start's log, after the first errors where those are further up."""
        log = self.log_of_this_start().splitlines()
        # A broker that fails goes on to say in hundreds of lines how it shuts down.
        errors = [line for line in log[:-lines] if re.search(r"\b(ERROR|FATAL)\b|^Caused by|Exception: ", line)]
        return "\n".join([*errors[:10], *(["..."] if errors else []), *log[-lines:]])

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self._order(b"S")

    def resume(self) -> None:
        """SIGCONT."""
        self._order(b"C")

    def kill(self, timeout: float = 30.0) -> None:
        """SIGKILL, and waits for the end. A node that does not run is left as it is."""
        if self.running:
            self._order(b"K")
            self._wait(timeout)

    def ask_to_stop(self) -> None:
        """SIGTERM (to a paused node also SIGCONT); returns at once. A node that does not run is left as it is."""
        if self.running:
            self._order(b"TC")

    def join(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the end; whether it came."""
        if self._supervisor is None:
            return True
        try:
            self._wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _order(self, orders: bytes) -> None:
        if not self.running or self._supervisor is None or self._supervisor.stdin is None:
            raise BrokerError(f"Node {self.id} is not running.")
        # It may end between the check and the write; then there is nothing left to signal.
        with contextlib.suppress(BrokenPipeError):
            self._supervisor.stdin.write(orders)
            self._supervisor.stdin.flush()

    def _wait(self, timeout: float) -> None:
        if self._supervisor is None:
            return
        self._supervisor.wait(timeout)
        if self._supervisor.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._supervisor.stdin.close()


def wait_until_started(nodes: Sequence[Node], deadline: float) -> None:
    """Waits until every node is up.

    Args:
        nodes: that were spawned.
        deadline: on the clock of `time.monotonic`.

    Raises:
        BrokerError: one ended, or the time is over; with the end of its log.
    """
    waiting = list(nodes)
    while waiting:
        for node in waiting:
            if not node.running:
                raise BrokerError(
                    f"Node {node.id} stopped while it started (exit code {node.exit_code}). "
                    f"The end of its log:\n{node.log_tail()}"
                )
        waiting = [node for node in waiting if not node.has_started()]
        if waiting and time.monotonic() > deadline:
            node = waiting[0]
            raise BrokerError(f"Node {node.id} did not come up in time. The end of its log:\n{node.log_tail()}")
        time.sleep(0.05 if waiting else 0)
