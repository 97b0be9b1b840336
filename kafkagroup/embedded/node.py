"""Start, signal and stop a broker's process through its supervisor; format its storage; run ZooKeeper for old brokers.

A node's storage needs `meta.properties` (the ids of the cluster and the node) and `bootstrap.checkpoint` (the cluster's
feature levels). `bootstrap.checkpoint` is the same for all nodes of all clusters, so one run of StorageTool suffices.
"""

import base64
import contextlib
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, cast

from kafkagroup.embedded.java import BrokerError
from kafkagroup.embedded.server_config import LOOPBACK
from kafkagroup.embedded.tools import QUICK_START, jvm_command, run_java

_SUPERVISOR = Path(__file__).with_name("supervisor.py")

#: Kafka logs this line when the broker is registered, has caught up with the metadata, and accepts clients. The second
#: alternative is the line of a broker with ZooKeeper.
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

    Only `has_started` depends on Kafka.
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
        """Start the process and return immediately. `has_started` returns whether the broker has started."""
        if self.running:
            raise BrokerError(f"Node {self.id} is already running.")
        # Close the pipes of a previous process that ended by itself.
        self._wait(0)
        self._log_start = self.files.log.stat().st_size if self.files.log.exists() else 0
        supervisor = subprocess.Popen(
            [sys.executable, "-I", str(_SUPERVISOR), str(self.files.log), self._remove, *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        line = cast(IO[bytes], supervisor.stdout).readline()
        self._supervisor = supervisor
        self._pid = int(line) if line.strip() else None

    @property
    def running(self) -> bool:
        """Return whether the process exists, even if the node is paused."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def pid(self) -> int | None:
        """Return the JVM's process id; None if the JVM does not run. To send signals, use the methods of this class."""
        return self._pid if self.running else None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the process, 128 + n for signal n; None if the process runs or was never started."""
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
        # After the errors that caused a failure, the broker logs hundreds of lines about its shutdown.
        errors = [line for line in log[:-lines] if re.search(r"\b(ERROR|FATAL)\b|^Caused by|Exception: ", line)]
        return "\n".join([*errors[:10], *(["..."] if errors else []), *log[-lines:]])

    def pause(self) -> None:
        """Send SIGSTOP and wait until the node has stopped. The node's connections stay open."""
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
        """Send SIGTERM and then SIGCONT, so that a paused node stops too, and return immediately.

        If the node does not run, nothing is sent.
        """
        if self.running:
            self._order(b"TC")

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the end of the process; return whether the process has ended."""
        if self._supervisor is None:
            return True
        try:
            self._wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _order(self, orders: bytes) -> None:
        if not self.running or self._supervisor is None:
            raise BrokerError(f"Node {self.id} is not running.")
        # The process may have ended since the check.
        with contextlib.suppress(BrokenPipeError):
            cast(IO[bytes], self._supervisor.stdin).write(orders)
            cast(IO[bytes], self._supervisor.stdin).flush()
            cast(IO[bytes], self._supervisor.stdout).read(len(orders))

    def _wait(self, timeout: float) -> None:
        if self._supervisor is None:
            return
        self._supervisor.wait(timeout)
        with contextlib.suppress(BrokenPipeError):
            cast(IO[bytes], self._supervisor.stdin).close()
        cast(IO[bytes], self._supervisor.stdout).close()


def wait_until_started(nodes: Sequence[Node], deadline: float) -> None:
    """Wait until every node has started.

    Args:
        nodes: Nodes on which `spawn` was called.
        deadline: The latest time to which to wait, on the clock of `time.monotonic`.

    Raises:
        BrokerError: A node stopped, or the deadline has passed; the error has the end of the node's log.
    """
    waiting = list(nodes)
    while waiting:
        for node in waiting:
            if not node.running:
                raise BrokerError(
                    f"Node {node.id} stopped while it started (exit code {node.exit_code}). "
                    f"The end of the node's log:\n{node.log_tail()}"
                )
        waiting = [node for node in waiting if not node.has_started()]
        if waiting and time.monotonic() > deadline:
            node = waiting[0]
            raise BrokerError(
                f"Node {node.id} did not start in time; raise start_timeout on a slow machine. "
                f"The end of the node's log:\n{node.log_tail()}"
            )
        time.sleep(0.05 if waiting else 0)


def new_uuid() -> str:
    """Return a random id in Kafka's format: 22 characters of URL-safe base64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def is_formatted(log_dir: Path) -> bool:
    """Return whether the folder is formatted, so that a node can start on it."""
    return (log_dir / "meta.properties").is_file()


def cluster_id_of(log_dir: Path) -> str:
    """Return the id of the cluster that a formatted folder belongs to.

    Raises:
        ValueError: The folder's `meta.properties` has no cluster id.
    """
    for line in (log_dir / "meta.properties").read_text().splitlines():
        if line.startswith("cluster.id="):
            return line.partition("=")[2]
    raise ValueError(
        f"{log_dir / 'meta.properties'} has no cluster.id; delete the folder, and the next start formats it"
    )


def format_storage(node_id: int, folder: Path, cluster_id: str, formatted: Mapping[Path, bytes]) -> None:
    """Format the folder of a node.

    Args:
        node_id: The node's id.
        folder: The node's folder for data.
        cluster_id: The id of the cluster, as returned by `new_uuid`.
        formatted: The files that StorageTool writes, as returned by `formatted_files`.
    """
    for path, content in formatted.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_uuid()}\n"
    )


@cache
def formatted_files(version: str, config: str) -> Mapping[Path, bytes]:
    """Return the files of StorageTool that are the same on every node of every cluster: all files without ids.

    The only such file is `bootstrap.checkpoint` or, from Kafka 4.4 on, a snapshot of the metadata log. The tool runs
    once for each version and settings, because a run takes a third of the time of a broker's start.

    Args:
        version: The version of Kafka whose tool formats the folder.
        config: The text of a server.properties; its `log.dirs` are replaced.

    Raises:
        BrokerError: The tool failed, for example because of a wrong setting; the error has the tool's output.
    """
    with tempfile.TemporaryDirectory(prefix="kafkagroup-format-") as scratch:
        folder, properties = Path(scratch, "data"), Path(scratch, "server.properties")
        properties.touch(mode=0o600)
        properties.write_text(f"{config}\nlog.dirs={folder}\n", encoding="ascii")
        arguments = ("format", "--cluster-id", new_uuid(), "--config", str(properties))
        result = run_java("kafka.tools.StorageTool", *arguments, version=version)
        if result.returncode != 0:
            raise BrokerError(f"StorageTool format failed:\n{(result.stdout + result.stderr).strip()}")
        files = [file for file in folder.rglob("*") if file.is_file() and file.name != "meta.properties"]
        return {file.relative_to(folder): file.read_bytes() for file in files}


#: KRaft mode is ready for production since this version (KIP-833).
_KRAFT = (3, 3)


def needs_zookeeper(version: str) -> bool:
    """Return whether brokers of this version run with ZooKeeper here.

    Raises:
        ValueError: The text is not a version of Kafka such as `3.9.1`.
    """
    match = re.match(r"(\d+)\.(\d+)\.", version)
    if match is None:
        raise ValueError(f"Expected a version of Kafka such as 3.9.1, got {version!r}")
    return (int(match[1]), int(match[2])) < _KRAFT


def zookeeper_node(version: str, folder: Path, port: int) -> Node:
    """Return a ZooKeeper process that is not started. ZooKeeper will listen on the loopback address only.

    Args:
        version: The version of Kafka whose jars contain ZooKeeper.
        folder: The cluster's folder, in which ZooKeeper has a folder.
        port: The port for the brokers.
    """
    files = NodeFiles(folder / "zookeeper")
    files.folder.mkdir(mode=0o700, exist_ok=True)
    files.config.write_text(
        f"dataDir={files.data}\nclientPort={port}\nclientPortAddress={LOOPBACK}\nadmin.enableServer=false\n"
    )
    command = jvm_command(
        "-Xmx256m",
        *QUICK_START,
        main_class="org.apache.zookeeper.server.ZooKeeperServerMain",
        args=[str(files.config)],
        version=version,
    )
    return Node(0, files, command, None)
