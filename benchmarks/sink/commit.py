"""The driver's transactional commit of offsets, one commit for all partitions of a micro-batch."""

import time
from collections.abc import Callable
from statistics import median

from assignors import load
from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.model import GroupSettings, Topics
from kafka_source.transactions.offset_committer import TransactionalCommitter
from kafkagroup.embedded import EmbeddedKafka

PARTITIONS, TIMES, BETWEEN_SECONDS = 8, 60, 0.2
# The JVM of a new broker has not compiled this path, so the first hundreds of commits take three times as long.
WARM_UP = 1_500
BAR_MS = 6


def measure(kafka: EmbeddedKafka) -> None:
    topic = kafka.create_topic("commits", PARTITIONS)
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    membership = ClassicMembership(settings, GroupSettings("bench-commits"), Topics((topic,)), [load("range")])
    credentials = membership.join(60).slots[0].credentials
    committer = TransactionalCommitter(settings, "bench-commits")

    def commit(number: int) -> None:
        committer.commit_as([(credentials, {TopicPartition(topic, p): number for p in range(PARTITIONS)})])

    first = _times(commit, TIMES, BETWEEN_SECONDS)
    _times(commit, WARM_UP, 0)
    warm = _times(commit, TIMES, BETWEEN_SECONDS)
    hurried = _times(commit, TIMES * 5, 0)
    membership.close()
    print(f"transactional commit of {PARTITIONS} partitions by the driver, milliseconds:")
    print(f"  broker just started, every {BETWEEN_SECONDS} s: {_figures(first)}")
    print(f"  after {WARM_UP} commits, every {BETWEEN_SECONDS} s: {_figures(warm)}; bar {BAR_MS} ms, {_met(warm)}")
    print(f"  after {WARM_UP} commits, without a pause: {_figures(hurried)}", flush=True)


def _times(commit: Callable[[int], None], count: int, pause: float) -> list[float]:
    """Return the milliseconds that each commit took, sorted."""
    took = []
    for number in range(count):
        time.sleep(pause)
        started = time.perf_counter()
        commit(number)
        took.append(1000 * (time.perf_counter() - started))
    return sorted(took)


def _figures(took: list[float]) -> str:
    return f"median {median(took):.1f}, 90th percentile {took[int(0.9 * len(took))]:.1f}, maximum {took[-1]:.1f}"


def _met(took: list[float]) -> str:
    return "met" if median(took) <= BAR_MS else "MISSED"
