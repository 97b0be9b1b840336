"""The driver's transactional commit of offsets: one commit for all partitions of a micro-batch."""

from __future__ import annotations

import time
from statistics import median

from assignors import load
from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.embedded import EmbeddedKafka
from kafka_source.group.membership import GroupMembership
from kafka_source.group.model import GroupSettings, Topics
from kafka_source.transactions.offset_committer import TransactionalCommitter

PARTITIONS, TIMES, BETWEEN_SECONDS = 8, 60, 0.2
BAR_MS = 6


def measure(kafka: EmbeddedKafka) -> None:
    topic = kafka.create_topic("commits", PARTITIONS)
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    membership = GroupMembership(settings, GroupSettings("bench-commits"), Topics((topic,)), [load("range")])
    credentials = membership.join(60).slots[0].credentials
    committer = TransactionalCommitter(settings, "bench-commits")
    took = []
    for number in range(TIMES + 1):
        time.sleep(BETWEEN_SECONDS)
        started = time.perf_counter()
        committer.commit(credentials, {TopicPartition(topic, p): number for p in range(PARTITIONS)})
        took.append(1000 * (time.perf_counter() - started))
    membership.close()
    took = sorted(took[1:])
    print(
        f"transactional commit of {PARTITIONS} partitions by the driver, {TIMES} times, every {BETWEEN_SECONDS} s: "
        f"median {median(took):.1f} ms, 90th percentile {took[int(0.9 * TIMES)]:.1f} ms, maximum {took[-1]:.1f} ms; "
        f"bar {BAR_MS} ms, {'met' if median(took) <= BAR_MS else 'MISSED'}",
        flush=True,
    )
