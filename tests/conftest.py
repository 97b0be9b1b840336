"""Fixtures for all tests: a real Kafka, and a real Spark."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from testbed.quick_spark import checkpoint_files, jvm_options
from tests.support.native import skip_without_native

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkagroup.embedded import EmbeddedKafka
    from tests.support.registry_server import RegistryServer

pytest_plugins = ["kafkagroup.embedded.pytest_plugin"]

# Folders whose tests draw what they do at random.
_RANDOM = {"differential", "fuzz", "pairs", "simulation"}

# What of each broker's log is shown when a test fails: troubles, elections, and what became of groups and transactions.
_LOG_LINES = 40
_TELLING = re.compile(
    r"^\S+ (WARN|ERROR|FATAL) (?!\S*(NetworkClient|ReplicaFetcherThread))"
    r"|Coordinator id=(?!.*(Ignored unloading|Scheduling))|leaders\.$|Completed transition|Fencing|Unfenced|ISR updated"
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection: each worker collects all tests, and half of that time was the collector's."""
    gc.disable()
    try:
        return (yield)
    finally:
        # What is collected stays until the end.
        gc.freeze()
        gc.enable()


# Last: Hypothesis marks its tests in this hook.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is about the native engine where it cannot be used; choose the tests whose lines are counted."""
    skip_without_native(items)
    # One process runs a file. The simulator's takes minutes: at the end the other processes would wait for it.
    items.sort(key=lambda item: "simulation" not in item.path.parts)
    if config.pluginmanager.hasplugin("_cov"):
        for item in items:
            if _is_not_counted(item):
                item.add_marker(pytest.mark.no_cover)


def _is_not_counted(item: pytest.Item) -> bool:
    """Return whether the coverage leaves a test out: to count its lines would double its processor time.

    Random examples run the same lines again and again. With Spark the connector runs in Spark's workers.
    """
    with_spark = "spark" in getattr(item, "fixturenames", ())
    return with_spark or item.get_closest_marker("hypothesis") is not None or not _RANDOM.isdisjoint(item.path.parts)


# A busy machine is no failure. Examples took a tenth of CI's processor time: `--hypothesis-profile thorough` has more.
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
hypothesis.settings.register_profile("kafkagroup", deadline=None, max_examples=50)
hypothesis.settings.load_profile("kafkagroup")

# Without it Spark's workers may be another Python than the one that runs the tests.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
# pytest-xdist gives it to its workers: tables would take it for the width of a terminal.
os.environ.pop("COLUMNS", None)
# Where it is set, each of Spark's Python workers would compile this project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())
# numpy, which pyarrow imports, starts a thread for each core otherwise: more than half of its import's processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A shell that runs the tests in the background has SIGINT ignored, here and in each process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> EmbeddedKafka:
    """One node, shared by all tests: do not kill it. `tests.support.other_brokers` has the tests use others."""
    from tests.support.other_brokers import other_brokers

    return other_brokers() or request.getfixturevalue("kafkagroup_broker")


@pytest.fixture(scope="module")
def cluster(kafkagroup_cluster: EmbeddedKafka) -> EmbeddedKafka:
    """Three nodes, for one module."""
    return kafkagroup_cluster


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> Callable[..., str]:
    """`topic(prefix, partitions=4, records=9)` makes a fresh topic on `kafka` with so many numbers; its name."""
    # pytest rewrites the plugin's assertions when it loads it, which is after this file.
    from kafkagroup.embedded.pytest_plugin import new_topic

    def make(prefix: str = "topic", *, records: int = 0, **settings: object) -> str:
        name = new_topic(kafka, prefix, **settings)
        if records:
            from tests.support.records import produce

            produce(kafka.bootstrap_servers, name, records)
        return name

    return make


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    """What a test has opened; it is closed at the end."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """A schema registry that answers as the test says."""
    from tests.support.registry_server import RegistryServer

    with RegistryServer() as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the brokers' logs to the report of a test that failed: they are gone when the run has ended."""
    from kafkagroup.embedded import BrokerError, EmbeddedKafka

    report = yield
    fixtures: dict[str, object] = getattr(item, "funcargs", {}) if report.failed else {}
    for name, value in fixtures.items():
        if isinstance(value, EmbeddedKafka):
            # After the last test the cluster has stopped.
            with contextlib.suppress(BrokerError):
                for node in value.node_ids:
                    told = [line for line in value.log(node).splitlines() if _TELLING.search(line)]
                    report.sections.append((f"The log of node {node} of {name}", "\n".join(told[-_LOG_LINES:])))
            # The logs are long: whoever sees only the end of this report needs the error there.
            report.sections.append(("The error", str(getattr(report.longrepr, "reprcrash", report.longrepr))))
    return report


@pytest.fixture
def users_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the process of the user's program, which has Spark's context: its writers reach no broker."""
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", object())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A local Spark with two cores; if tests of `tests/parity` are collected, it has the JVM's Kafka connector.

    With the variable SPARK_REMOTE it is a session of that server.
    """
    from pyspark.sql import SparkSession

    if remote := os.environ.get("SPARK_REMOTE"):
        connected = SparkSession.builder.remote(remote).getOrCreate()
        yield connected
        connected.stop()
        return
    jars: list[Path] = []
    if any("parity" in item.path.parts for item in request.session.items):
        import pyspark

        from benchmarks.read.sources import PEER
        from benchmarks.values import PEERS_JARS, PEERS_SPARK
        from kafkagroup.embedded import resolve

        # A process has one session, so the connector cannot be added for these tests alone. With Spark 4.1.1 it has
        # spark-avro, too.
        jars = resolve(PEERS_JARS if pyspark.__version__ == PEERS_SPARK else PEER)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars)))
        .appName("kafkagroup-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # A query without new records asks its source a hundred times a second by default.
        .config("spark.sql.streaming.pollingDelay", "100ms")
        .config("spark.sql.streaming.checkpointFileManagerClass", checkpoint_files())
        # Known since Spark 4.1; older ones ignore it.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
