"""A standalone cluster of three workers beside three brokers: queries go on, whatever part of Spark is killed.

All are marked `long`: a cluster is eight JVMs beside the brokers.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from testbed.hosts import Place, with_host_name
from testbed.spark_cluster import SparkCluster
from tests.apps.process import HERE, App, spark_app
from tests.support.records import CommittedReader, produce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PARTITIONS = 3
COUNT = 1_200
# One executor on each worker. A killed one is replaced at once, so a task may meet several that are just starting.
CONF = {"spark.executor.memory": "512m", "spark.task.maxFailures": "8"}
# A host name that has an address on every machine: Spark looks its own one up.
OTHER_NAME = "localhost"
_names = count(1)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@dataclass(frozen=True)
class Copy:
    """What is copied, and how.

    Attributes:
        kafka: The brokers.
        name: Part of the names of topics, group and transactional ids.
        exactly_once: Whether records may not be in the output twice.
    """

    kafka: EmbeddedKafka
    name: str
    exactly_once: bool

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    def source(self, **more: object) -> dict[str, object]:
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": f"{self.name}-in",
            "startingOffsets": "earliest",
            "kafka.group.id": self.group,
            "kafka.group.instance.id": f"{self.name}-app",
            **more,
        }

    def stream(self, **more: object) -> dict[str, object]:
        by_sink = {"commit": "sink"} if self.exactly_once else {}
        return self.source(**{"group.members": 2, "maxOffsetsPerTrigger": 150, **by_sink, **more})

    def sink(self, *, stream: bool = True) -> dict[str, object]:
        servers: dict[str, object] = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topic": f"{self.name}-out",
        }
        if not self.exactly_once:
            return servers
        commits = {"commit.group": self.group} if stream else {}
        return {**servers, "transactional": "true", "transactional.id.prefix": f"{self.name}-sink", **commits}

    def reader(self) -> CommittedReader:
        return CommittedReader(self.kafka.bootstrap_servers, f"{self.name}-out", PARTITIONS)

    def committed(self) -> int:
        groups = Groups(Settings({"bootstrap.servers": self.kafka.bootstrap_servers}))
        return sum(groups.committed(self.group).values())

    def check(self, output: CommittedReader, records: int = COUNT) -> None:
        """Wait until everything is in the output and committed; exactly once also means: not twice."""
        wait_until(
            lambda: len(set(output.values)) == records, f"{records} records, of which {len(output.values)} are there"
        )
        assert set(output.values) == {str(number).encode() for number in range(records)}
        wait_until(lambda: self.committed() == records, f"the commit of {records} records")
        if self.exactly_once:
            assert len(output.records) == records


def prepared(kafka: EmbeddedKafka, *, exactly_once: bool, records: int = COUNT) -> Copy:
    """Make the topics of a copy, with its input."""
    copy = Copy(kafka, f"standalone-{os.getpid()}-{next(_names)}", exactly_once)
    for topic in (f"{copy.name}-in", f"{copy.name}-out"):
        kafka.create_topic(topic, PARTITIONS, 3)
    produce(kafka.bootstrap_servers, f"{copy.name}-in", records)
    return copy


@pytest.fixture(params=[True, False], ids=["exactly once", "at least once"])
def copy(cluster: EmbeddedKafka, request: pytest.FixtureRequest) -> Copy:
    return prepared(cluster, exactly_once=request.param)


def progress(app: App, output: CommittedReader, more: int = 1) -> None:
    """Wait until the output has some records more than now."""
    before = len(output.records)
    wait_until(
        lambda: len(output.records) >= before + more or app.process.poll() is not None, "progress of the query", 120
    )
    assert app.process.poll() is None, app.log.read_text(errors="replace")[-3000:]


def run_stream(copy: Copy, folder: Path, workers: SparkCluster, **conf: object) -> App:
    return spark_app("copying_app", folder, workers.master, copy.stream(), copy.sink(), conf={**CONF, **conf})


def kill_executors(workers: SparkCluster, worker: int | None = None) -> None:
    """SIGKILL for the JVMs of executors. Their Python workers end by themselves."""
    for pid in workers.executors(worker):
        os.kill(pid, signal.SIGKILL)


def test_a_stream_goes_on_when_executors_python_workers_and_a_worker_are_killed(
    workers: SparkCluster, cluster: EmbeddedKafka, tmp_path: Path
) -> None:
    copy = prepared(cluster, exactly_once=True)
    with copy.reader() as output, run_stream(copy, tmp_path, workers) as app:
        progress(app, output)
        for pid in workers.python_workers():
            os.kill(pid, signal.SIGKILL)
        progress(app, output)
        kill_executors(workers, 0)
        progress(app, output)
        workers.kill_worker(1)
        progress(app, output)
        workers.start_worker(1)
        copy.check(output)
        app.stop()
        output.check_order()


@dataclass(frozen=True)
class Batch:
    """A batch that runs, with the files by which its tasks are held and seen."""

    app: App
    folder: Path

    def tasks(self) -> dict[str, int]:
        """The process ids of tasks behind the shuffle, by partition, attempt and id."""
        found = {path.name: path.read_text() for path in (self.folder / "tasks").glob("*")}
        return {name: int(pid) for name, pid in found.items() if pid}

    def go(self) -> None:
        """Let the tasks go on that wait."""
        (self.folder / "go").touch()


def run_batch(copy: Copy, folder: Path, workers: SparkCluster, hold: str, **conf: object) -> Batch:
    (folder / "hold").write_text(hold)
    (folder / "tasks").mkdir()
    source, sink = copy.source(), copy.sink(stream=False)
    return Batch(spark_app("batch_app", folder, workers.master, source, sink, conf={**CONF, **conf}), folder)


def finish(batch: Batch, copy: Copy, output: CommittedReader) -> None:
    batch.app.wait_for(f"count {COUNT}", 180)
    copy.check(output)
    batch.app.wait_for("stopped")


def test_a_batch_goes_on_when_its_executors_are_killed(workers: SparkCluster, copy: Copy, tmp_path: Path) -> None:
    batch = run_batch(copy, tmp_path, workers, hold="*-0-*")
    with copy.reader() as output, batch.app:
        wait_until(lambda: len(batch.tasks()) == 3, "tasks on all executors")
        assert output.records == []
        # The shuffle files of the executor are gone too, so Spark runs the stage that reads again.
        kill_executors(workers, 0)
        wait_until(lambda: len(batch.tasks()) > 3, "a task after the loss")
        batch.go()
        finish(batch, copy, output)


def test_a_batch_whose_shuffle_files_are_lost_reads_again(workers: SparkCluster, copy: Copy, tmp_path: Path) -> None:
    batch = run_batch(copy, tmp_path, workers, hold="*")
    with copy.reader() as output, batch.app:
        wait_until(lambda: len(batch.tasks()) == 3, "tasks on all executors")
        lost = workers.shuffle_files()
        assert lost
        for path in lost:
            path.unlink()
        batch.go()
        assert batch.app.wait_for("stage attempts", 180) != "stage attempts 0"
        finish(batch, copy, output)


def test_a_batch_with_a_task_that_runs_twice_by_speculation(workers: SparkCluster, copy: Copy, tmp_path: Path) -> None:
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
    }
    # Never let go: the other attempt has to finish the task.
    batch = run_batch(copy, tmp_path, workers, hold="0-0-*", **speculation)
    with copy.reader() as output, batch.app:
        wait_until(lambda: any(name.startswith("0-1-") for name in batch.tasks()), "a speculative attempt")
        # At least once: Spark may run any other task twice too, and both attempts write.
        finish(batch, copy, output)


def test_a_stream_with_speculation(workers: SparkCluster, copy: Copy, tmp_path: Path) -> None:
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "10ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "10ms",
        # Small micro-batches are read in one task, and Spark compares no task with itself.
        "spark.speculation.task.duration.threshold": "1s",
    }
    with copy.reader() as output, run_stream(copy, tmp_path, workers, **speculation) as app:
        for _ in range(3):
            progress(app, output)
            # An executor that stands still for a moment is what speculation is for.
            for pid in workers.python_workers(0):
                os.kill(pid, signal.SIGSTOP)
            progress(app, output)
            for pid in workers.python_workers(0):
                os.kill(pid, signal.SIGCONT)
        copy.check(output)
        app.stop()


def test_a_stream_with_dynamic_allocation(workers: SparkCluster, copy: Copy, tmp_path: Path) -> None:
    allocation = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    }
    with copy.reader() as output, run_stream(copy, tmp_path, workers, **allocation) as app:
        copy.check(output)
        wait_until(lambda: not workers.executors(), "the end of idle executors", 60)
        produce(copy.kafka.bootstrap_servers, f"{copy.name}-in", COUNT, first=COUNT)
        copy.check(output, 2 * COUNT)
        app.stop()


def test_two_queries_of_one_driver(workers: SparkCluster, cluster: EmbeddedKafka, tmp_path: Path) -> None:
    once, least = (prepared(cluster, exactly_once=exactly) for exactly in (True, False))
    options = [once.stream(), once.sink(), least.stream(), least.sink()]
    with (
        once.reader() as first,
        least.reader() as second,
        spark_app("copying_app", tmp_path, workers.master, *options, conf=CONF) as app,
    ):
        progress(app, first)
        progress(app, second)
        kill_executors(workers)
        progress(app, first)
        app.kill()
        with spark_app("copying_app", tmp_path, workers.master, *options, conf=CONF, name="again") as again:
            once.check(first)
            least.check(second)
            again.stop()


def another_host_works() -> bool:
    """Whether a process may have a host name of its own here."""
    if shutil.which("unshare") is None:
        return False
    command = with_host_name(HERE, OTHER_NAME).command(["true"])
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


def test_a_driver_that_is_restarted_elsewhere(workers: SparkCluster, copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Place(tmp_path / "elsewhere", "127.0.0.2")
    if another_host_works():
        elsewhere = with_host_name(elsewhere, OTHER_NAME)
    with copy.reader() as output:
        with run_stream(copy, tmp_path, workers) as app:
            progress(app, output)
            app.kill()
        source, sink = copy.stream(), copy.sink()
        with spark_app(
            "copying_app", tmp_path, workers.master, source, sink, conf=CONF, name="elsewhere", place=elsewhere
        ) as app:
            copy.check(output)
            app.stop()
