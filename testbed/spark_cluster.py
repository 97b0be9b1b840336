"""A Spark standalone cluster of real processes on this machine: a master, workers, and their executors."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pyspark

from testbed.hosts import Place
from testbed.processes import command_of, kill, session_of
from testbed.quick_spark import jvm_options

SPARK = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"

_DAEMONS = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
    # Tests kill more executors than an application may lose by default.
    "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
}


def free_port() -> int:
    """Return a port of this machine on which no process listens."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def without_our_paths() -> dict[str, str]:
    """Return an environment in which no Python finds this project."""
    taken = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    return {**taken, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": LOOPBACK}


@contextmanager
def server_process(
    command: Sequence[str], log: Path, environment: Mapping[str, str], ready: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends. The block begins when the log contains `ready`.

    At the end, no process of the server's session is left.
    """
    with log.open("ab") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=output, env={**environment}, cwd=log.parent, start_new_session=True
        )
        try:
            until_log(log, ready)
            yield server
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(20)
            kill(session_of(server.pid))


def until_log(log: Path, text: str, seconds: float = 90) -> None:
    """Wait until a log contains a text."""
    deadline = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"no {text!r} in:\n{log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.2)


@contextmanager
def connect_server(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run a Spark Connect server with a local master, and yield the server's address; `folder` gets its log."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]", *conf, *main]
    with server_process(command, folder / "server.log", environment, "Spark Connect server started at"):
        yield f"sc://{LOOPBACK}:{port}"


class SparkCluster:
    """A standalone cluster; use it in a with statement.

    Args:
        folder: The folder for logs, and for the executors' folders with their shuffle files.
        workers: The number of workers.
        cores: The number of cores of each worker.
        memory: Memory that each worker offers to executors, in Spark's notation.
        environment: The environment of master, workers and executors; None: that of this process.
        places: The places of the master and then of each worker; None: this machine, with own addresses if possible.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 3,
        *,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
        places: Sequence[Place] | None = None,
    ) -> None:
        self._folder = folder
        here = [Place(folder), *(Place(folder, _host_of(number)) for number in range(workers))]
        self._master, *self._places = here if places is None else places
        self._count, self._cores, self._memory = workers, cores, memory
        self._environment = {**(os.environ if environment is None else environment), **_DAEMONS}
        self._resources = ExitStack()
        self._workers: dict[int, tuple[subprocess.Popen[bytes], ExitStack]] = {}
        self._starts: Counter[int] = Counter()
        self.master = ""

    def __enter__(self) -> SparkCluster:
        port = free_port()
        try:
            log = self._folder / "master.log"
            self._resources.enter_context(self._run(self._master, "master.Master", log, {}, "--port", str(port)))
            until_log(log, "Starting Spark master at")
            self.master = f"spark://{self._master.address}:{port}"
            for number in range(self._count):
                self._spawn(number)
            for number in range(self._count):
                self._wait_registered(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all processes of the cluster."""
        for _, resources in self._workers.values():
            resources.close()
        self._workers.clear()
        self._resources.close()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the workers."""
        return list(range(self._count))

    def pids(self) -> list[int]:
        """Return the process ids of all workers, executors and Python workers."""
        return [pid for server, _ in self._workers.values() for pid in session_of(server.pid)]

    def executors(self, worker: int | None = None) -> list[int]:
        """Return the process ids of the executors' JVMs on all workers, or on one worker."""
        return self._pids(b"CoarseGrainedExecutorBackend", worker)

    def python_workers(self, worker: int | None = None) -> list[int]:
        """Return the process ids of the executors' Python daemons and workers, on all Spark workers or on one."""
        return self._pids(b"pyspark.daemon", worker)

    def shuffle_files(self) -> list[Path]:
        """Return the shuffle files of all executors."""
        return [path for path in self._folder.glob("local-*/**/shuffle_*") if path.is_file()]

    def kill_worker(self, number: int) -> None:
        """Kill a worker, its executors and their Python workers by SIGKILL, as if its machine were gone."""
        server, resources = self._workers[number]
        kill([server.pid, *session_of(server.pid)])
        server.wait(30)
        resources.close()

    def start_worker(self, number: int) -> None:
        """Start a worker that was killed."""
        self._spawn(number)
        self._wait_registered(number)

    def _spawn(self, number: int) -> None:
        self._starts[number] += 1
        local = self._folder / f"local-{number}"
        local.mkdir(exist_ok=True)
        resources = ExitStack()
        # Remove the files that a killed executor has left behind.
        resources.callback(shutil.rmtree, local, ignore_errors=True)
        arguments = ["--port", "0", "-c", str(self._cores), "-m", self._memory]
        arguments += ["-d", str(self._folder / f"work-{number}"), self.master]
        folders = {"SPARK_LOCAL_DIRS": str(local)}
        running = self._run(self._places[number], "worker.Worker", self._log(number), folders, *arguments)
        self._workers[number] = resources.enter_context(running), resources

    def _run(
        self, place: Place, server: str, log: Path, environment: Mapping[str, str], *arguments: str
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        spark_class = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{server}"]
        command = [*spark_class, "--host", place.address, "--webui-port", "0", *arguments]
        variables = {**self._environment, **environment, "SPARK_LOCAL_IP": place.address}
        return server_process(place.command(command), log, variables)

    def _wait_registered(self, number: int) -> None:
        until_log(self._log(number), "Successfully registered with master")

    def _log(self, number: int) -> Path:
        # A log for each start, so that "registered" in the log is from this start.
        return self._folder / f"worker-{number}-{self._starts[number]}.log"

    def _pids(self, name: bytes, worker: int | None) -> list[int]:
        servers = [server for number, (server, _) in self._workers.items() if worker in (None, number)]
        return [pid for server in servers for pid in session_of(server.pid) if name in command_of(pid)]


def _host_of(worker: int) -> str:
    """Return a worker's address: its own address if the system has several loopback addresses, like Linux.

    Spark runs a speculative attempt of a task only on another host.
    """
    own = f"127.0.0.{worker + 1}"
    try:
        socket.create_server((own, 0)).close()
    except OSError:
        return LOOPBACK
    return own
