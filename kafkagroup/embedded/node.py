"""One broker process, controlled through its supervisor."""

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

from kafkagroup.embedded.errors import BrokerError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")

#: Kafka logs this line when the broker is registered, has caught up with the metadata, and accepts clients; the second
#: one is that of a broker with ZooKeeper.
_STARTED = re.compile(r"Kafka Server started|\[KafkaServer id=\d+\] started")


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The folder of a node, with its settings, its text log and its data."""

    folder: Path

    @property
    def config(self) -> Path:
        """Return the path of server.properties."""
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        """Return the path of the text log, which contains the output of all starts."""
        return self.folder / "server.log"

    @property
    def data(self) -> Path:
        """Return the path of the broker's `log.dirs`."""
        return self.folder / "data"


class Node:
    """Starts, signals and stops the JVM of one node.

    Independent of Kafka, except for the log line that tells that the broker has started.
    """

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
        """Start the process and return at once; `has_started` returns True when the broker is up."""
        if self.running:
            raise BrokerError(f"Node {self.id} is already running.")
        # One that ended by itself has left its pipe open.
        self._wait(0)
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
        """Return whether the process exists; that of a paused node does."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def pid(self) -> int | None:
        """Return the JVM's process id, None if it does not run. Send signals with the methods of this class."""
        return self._pid if self.running else None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the process, 128 + n for signal n; None if it runs or was never started."""
        return None if self._supervisor is None else self._supervisor.poll()

    def has_started(self) -> bool:
        """Return whether the broker has started since the last `spawn`."""
        return _STARTED.search(self.log_of_this_start()) is not None

    def log_of_this_start(self) -> str:
        """Return the broker's log since the last `spawn`."""
        if not self.files.log.exists():
            return ""
        with self.files.log.open("rb") as handle:
            handle.seek(self._log_start)
            return handle.read().decode(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of this start's log, preceded by its first ten error lines."""
        log = self.log_of_this_start().splitlines()
        # A broker that fails logs hundreds of lines about its shutdown after the errors that caused it.
        errors = [line for line in log[:-lines] if re.search(r"\b(ERROR|FATAL)\b|^Caused by|Exception: ", line)]
        return "\n".join([*errors[:10], *(["..."] if errors else []), *log[-lines:]])

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, but the node does not answer."""
        self._order(b"S")

    def resume(self) -> None:
        """Send SIGCONT, which ends a pause."""
        self._order(b"C")

    def kill(self, timeout: float = 30.0) -> None:
        """Send SIGKILL and wait until the process has ended. Does nothing if the node does not run."""
        if self.running:
            self._order(b"K")
        self._wait(timeout)

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once; SIGCONT follows, so that a paused node stops too.

        Does nothing if the node does not run.
        """
        if self.running:
            self._order(b"TC")

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the process has ended; return whether it has."""
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
        # The process may end between the check and the write; then there is nothing to signal.
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
    """Wait until every node has started.

    Args:
        nodes: Nodes on which `spawn` was called.
        deadline: The time to give up, on the clock of `time.monotonic`.

    Raises:
        BrokerError: A node stopped, or the deadline has passed; with the end of the node's log.
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
            raise BrokerError(
                f"Node {node.id} did not start in time; raise start_timeout on a slow machine. "
                f"The end of its log:\n{node.log_tail()}"
            )
        time.sleep(0.05 if waiting else 0)
