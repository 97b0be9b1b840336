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

ROOT = Path(__file__).parents[2]


class App:
    """A running program; its children are in a process group of their own, so that `kill` takes them all."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._log = log.open("ab")
        self.log = log
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=environment,
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
        # Spark's Python daemons make process groups of their own, but stay in the session.
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[3]) == self.process.pid:
                    found.append(int(stat.parent.name))
        return found

    def kill(self) -> None:
        """SIGKILL for the program and all its children."""
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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


def streaming_app(folder: Path, options: Mapping[str, object], *, master: str = "local[2]", name: str = "app") -> App:
    """`tests.apps.streaming_app` with its files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.dumps({key: str(value) for key, value in options.items()})
    command = [sys.executable, "-m", "tests.apps.streaming_app", str(folder), master, settings]
    return App(command, folder / f"{name}.log")


def paced_app(folder: Path, warm_up: str, options: Mapping[str, object], *, master: str) -> App:
    """`tests.apps.paced_app` with its files in `folder`."""
    settings = json.dumps({key: str(value) for key, value in options.items()})
    command = [sys.executable, "-m", "tests.apps.paced_app", str(folder), master, warm_up, settings]
    return App(command, folder / "app.log")


def copying_app(
    folder: Path, source: Mapping[str, object], sink: Mapping[str, object], *, master: str = "local[2]"
) -> App:
    """`tests.apps.copying_app` with its files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = [json.dumps({key: str(value) for key, value in options.items()}) for options in (source, sink)]
    command = [sys.executable, "-m", "tests.apps.copying_app", str(folder), master, *settings]
    return App(command, folder / "app.log")


def java_consumer(
    folder: Path, servers: str, group: str, topic: str, *, strategy: str = "range", instance: str | None = None
) -> App:
    """`GroupConsumer.java`: a consumer of the Java client in a group."""
    from kafka_source.embedded import java_command

    strategies = ",".join(_JAVA_STRATEGIES[name] for name in strategy.split(","))
    arguments = [servers, group, topic, strategies, *([instance] if instance else [])]
    command = java_command(str(Path(__file__).parent / "GroupConsumer.java"), *arguments)
    return App(command, folder / f"java-{instance or 'consumer'}.log")


_JAVA_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
