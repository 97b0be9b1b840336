"""The doctor's checks on Spark's executors: different packages than in the driver, unreachable brokers."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_source.client_config import Settings
from kafka_source.kafka_client import Broker
from kafkagroup.doctor.brokers import broker_findings
from kafkagroup.doctor.probe import Probe, probe
from kafkagroup.doctor.versions import Finding, Installed, installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "executors"
_TASKS = 8


@dataclass(frozen=True, slots=True)
class SeenThere:
    """The packages on a task's machine, and a probe of each broker from this machine, in the order of the brokers."""

    host: str
    installed: Installed
    probes: tuple[Probe, ...]


def executor_findings(
    spark: SparkSession,
    driver: Installed,
    settings: Settings | None,
    brokers: Sequence[Broker],
    *,
    cluster_id: str | None,
    seconds: float,
    now: float,
) -> list[Finding]:
    """Run a small Spark job, and return the findings of its tasks, once for each machine.

    Args:
        spark: The session, classic or Connect.
        driver: The packages of the driver's Python.
        settings: The Kafka client settings; None: do not connect to brokers.
        brokers: The advertised brokers.
        cluster_id: The cluster's id, according to the driver.
        seconds: The time limit of each step.
        now: The time in seconds since 1970.
    """
    asked = [] if settings is None else brokers
    try:
        seen = _run(spark, _check_on_executor(settings, asked, seconds))
    except Exception as problem:
        # Spark's error contains the traceback of the worker. Its type depends on Spark's version.
        return [_failure(problem)]
    found: list[Finding] = []
    by_host = {each.host: each for each in seen}
    for host in sorted(by_host):
        there = by_host[host]
        found.append(packages_finding(driver, there))
        for broker, each in zip(asked, there.probes, strict=True):
            name = f"executor {host}: broker {broker.node_id} at {broker.endpoint}"
            found += broker_findings(each, name, now=now, node=broker.node_id, cluster_id=cluster_id)
    return found


def packages_finding(driver: Installed, there: SeenThere) -> Finding:
    """Return whether an executor has the driver's packages, which the exchange of pickled data requires."""
    name, has = f"executor {there.host}: packages", there.installed
    advice = "Give the driver and the executors the same Python environment, see docs/recipes.md."
    for what, ours, theirs in (
        ("Python", _minor(driver.python), _minor(has.python)),
        ("kafkagroup", driver.kafkagroup, has.kafkagroup),
    ):
        if ours != theirs:
            return Finding(name, "fail", f"{what} is {theirs} in the executor and {ours} in the driver.", advice)
    if has.native_problem:
        return Finding(name, "fail", f"The native engine cannot serve in the executor: {has.native_problem}.", advice)
    if has.native != driver.native:
        there_, here = has.native or "not installed", driver.native or "not installed"
        return Finding(name, "warn", f"kafkagroup-native is {there_} in the executor and {here} in the driver.", advice)
    engine = "the native engine" if has.native is not None else "librdkafka"
    return Finding(name, "ok", f"Python {has.python}, kafkagroup {has.kafkagroup}; {engine} serves, as in the driver.")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _check_on_executor(settings: Settings | None, brokers: Iterable[Broker], seconds: float) -> Callable[[int], bytes]:
    endpoints = [broker.endpoint for broker in brokers]

    def work(_: int) -> bytes:
        probes = () if settings is None else tuple(probe(each, settings, seconds) for each in endpoints)
        return pickle.dumps(SeenThere(socket.gethostname(), installed(), probes))

    return work


def _run(spark: SparkSession, work: Callable[[int], bytes]) -> list[SeenThere]:
    from pyspark.sql.functions import udf
    from pyspark.sql.types import BinaryType

    # Spark Connect has neither RDDs nor a SparkContext. Arrow would need pandas in the driver.
    seen = udf(work, BinaryType(), useArrow=False)
    frame = spark.range(0, _TASKS, 1, _TASKS).select(seen("id"))
    # Safe to unpickle: like all results of Python tasks, these bytes come from this job over Spark's connection.
    return [pickle.loads(bytes(row[0])) for row in frame.collect()]


def _failure(problem: Exception) -> Finding:
    # The last line of the worker's traceback, without Java's frames.
    lines = [line.strip() for line in str(problem).splitlines() if "Error: " in line]
    happened = lines[-1] if lines else f"{type(problem).__name__}: {next(iter(str(problem).splitlines()), '')}"
    if "No module named" in happened:
        advice = "Install kafkagroup for the Python of the executors, see docs/recipes.md."
    else:
        advice = "Check that the session can run any Python UDF."
    return Finding(_NAME, "fail", f"The Spark job of the check failed: {happened}", advice)
