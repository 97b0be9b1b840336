"""A program of `tests.apps` as a process: its output by lines, its end by its own process id."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.hosts import Place
from testbed.processes import kill, session_of

ROOT = Path(__file__).parents[2]


class App:
    """A running program; its children are in a session of their own, so that `kill` takes them all.

    Args:
        command: The program.
        log: For its standard error.
        environment: Variables besides those of this process.
        folder: Its working directory.
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None, folder: Path = ROOT
    ) -> None:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._log = log.open("ab")
        self.log = log
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            env=variables,
            start_new_session=True,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.seen: list[str] = []
        self._pumping = threading.Thread(target=self._pump, daemon=True)
        self._pumping.start()

    def _pump(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, text: str, seconds: float = 90) -> str:
        """The next line that has `text` in it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                tail = self.log.read_text(errors="replace")[-3000:]
                raise AssertionError(f"no line with {text!r} within {seconds} s; saw {self.seen[-20:]}\n{tail}")
            self.seen.append(line)
            if text in line:
                return line

    def lines(self) -> list[str]:
        """All lines so far."""
        while True:
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                return self.seen
            if line is not None:
                self.seen.append(line)

    def stop(self, seconds: float = 60) -> None:
        """Close the program's input and wait for its end."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the program did not stop within {seconds} s; saw {self.seen[-20:]}") from None
        self._close()

    def suspend(self) -> None:
        """SIGSTOP for the program and all its children, as if its machine were unplugged."""
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT for all of them."""
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def family(self) -> list[int]:
        """The process ids of the program and of all its children."""
        return session_of(self.process.pid)

    def kill(self) -> None:
        """SIGKILL for the program and all its children."""
        kill(self.family())
        self.process.wait(30)
        self._close()

    def _close(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        # It ends, and closes the output, when the last process that could write has ended.
        self._pumping.join(10)
        self._log.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


HERE = Place(ROOT)


def spark_app(
    program: str,
    folder: Path,
    master: str,
    *options: Mapping[str, object],
    name: str = "app",
    conf: Mapping[str, object] | None = None,
    place: Place = HERE,
    environment: Mapping[str, str] | None = None,
) -> App:
    """Start a Spark application of `tests.apps` with its files in `folder`.

    Args:
        program: The module's name.
        folder: For the checkpoint, the output, and the log.
        master: Spark's master.
        options: Of the source, and of the sink if it has one.
        name: The log's name.
        conf: Spark's configuration; the programs set a few properties themselves.
        place: Where the driver runs.
        environment: Variables, besides those of this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    defaults = folder / f"{name}-conf"
    defaults.mkdir(exist_ok=True)
    (defaults / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in (conf or {}).items()))
    settings = [json.dumps({key: str(value) for key, value in some.items()}) for some in options]
    command = [sys.executable, "-m", f"tests.apps.{program}", str(folder), master, *settings]
    variables = {"SPARK_CONF_DIR": str(defaults), "DRIVER_HOST": place.address, **(environment or {})}
    return App(place.command(command), folder / f"{name}.log", environment=variables, folder=place.folder)


def streaming_app(
    folder: Path,
    options: Mapping[str, object],
    *,
    master: str = "local[2]",
    name: str = "app",
    environment: Mapping[str, str] | None = None,
) -> App:
    """`tests.apps.streaming_app` with its files in `folder`."""
    return spark_app("streaming_app", folder, master, options, name=name, environment=environment)


def halting(folder: Path, failpoint: str, passes: int) -> dict[str, str]:
    """The variables with which an application halts after so many passes of a failpoint; `folder/halted` says so."""
    passed = folder / "passed"
    passed.mkdir()
    paths = f"{ROOT / 'tests' / 'apps' / 'halting'}{os.pathsep}{ROOT}"
    return {"PYTHONPATH": paths, "HALT_AT": failpoint, "HALT_AFTER": str(passes), "HALT_FOLDER": str(passed)}


def paced_app(folder: Path, warm_up: str, options: Mapping[str, object], *, master: str) -> App:
    """`tests.apps.paced_app` with its files in `folder`."""
    settings = json.dumps({key: str(value) for key, value in options.items()})
    command = [sys.executable, "-m", "tests.apps.paced_app", str(folder), master, warm_up, settings]
    return App(command, folder / "app.log")


def copying_app(
    folder: Path, source: Mapping[str, object], sink: Mapping[str, object], *, master: str = "local[2]"
) -> App:
    """`tests.apps.copying_app` with its files in `folder`."""
    return spark_app("copying_app", folder, master, source, sink)


def java_consumer(
    folder: Path,
    servers: str,
    group: str,
    topic: str,
    *,
    strategy: str = "range",
    instance: str | None = None,
    commit_ms: int = 0,
) -> App:
    """`GroupConsumer.java`: a consumer of the Java client in a group; with `consumer` the brokers assign (KIP-848)."""
    strategies = ",".join(_JAVA_STRATEGIES[name] for name in strategy.split(","))
    arguments = [servers, group, topic, strategies, *([instance] if instance else [])]
    name = f"java-{instance or 'consumer'}"
    return java_app("GroupConsumer", folder, *arguments, name=name, environment={"COMMIT_MS": str(commit_ms)})


def librdkafka_consumer(
    folder: Path, servers: str, group: str, topic: str, protocol: str, *, name: str, commit_ms: int = 0
) -> App:
    """`librdkafka_app`: a consumer of librdkafka in a group; with the protocol `consumer` the brokers assign."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.apps.librdkafka_app", servers, group, topic, protocol]
    return App(command, folder / f"{name}.log", environment={"COMMIT_MS": str(commit_ms)})


def verifiable(tool: str, log: Path, servers: str, topic: str, *arguments: object) -> App:
    """Kafka's own `VerifiableConsumer` or `VerifiableProducer`: says what it does as JSON, and ends at SIGTERM."""
    from kafkagroup.embedded import java_command

    said = ["--bootstrap-server", servers, "--topic", topic, *map(str, arguments)]
    return App(java_command(f"org.apache.kafka.tools.{tool}", *said), log)


def java_app(
    program: str, folder: Path, *arguments: str, name: str | None = None, environment: Mapping[str, str] | None = None
) -> App:
    """One of the Java programs in `tests.apps`, with its log in `folder`."""
    from kafkagroup.embedded import java_command

    command = java_command(str(Path(__file__).parent / f"{program}.java"), *arguments)
    return App(command, folder / f"{name or program}.log", environment=environment)


_JAVA_STRATEGIES = {
    "consumer": "consumer",
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
