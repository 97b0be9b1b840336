"""Two Spark applications and a Java consumer join, leave, crash and restart in a random order for ten minutes.

KAFKAGROUP_RESTLESS_SECONDS and KAFKAGROUP_RESTLESS_SEED set how long, and which order; the seed is printed.
"""

from __future__ import annotations

import os
import random
import time
from functools import partial

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from tests.support.restless import Flow, Java, account, committed_positions, say_to, spark_queries
from tests.support.waiting import wait_until

PARTITIONS = 6
SECONDS = int(os.environ.get("KAFKAGROUP_RESTLESS_SECONDS", "600"))
SEED = int(os.environ.get("KAFKAGROUP_RESTLESS_SEED", str(random.randrange(1_000_000))))
PAUSE = (5.0, 20.0)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
def test_no_record_is_lost_and_every_one_that_is_read_twice_is_explained(kafka, topic, tmp_path, capsys):
    name = topic("restless", partitions=PARTITIONS)
    group, servers = f"{name}-group", kafka.bootstrap_servers
    groups = Groups(Settings({"bootstrap.servers": servers}))
    readers = [
        *spark_queries(servers, name, group, tmp_path),
        Java("java", tmp_path / "java", servers, group, name),
    ]
    committed = partial(committed_positions, groups, group)
    began, rng, flow = time.monotonic(), random.Random(SEED), Flow(servers, name)
    say = partial(say_to, capsys, began)
    say(f"seed {SEED}")
    try:
        while time.monotonic() - began < SECONDS:
            for reader in readers:
                reader.check()
            reader = rng.choice(readers)
            if reader.app is None:
                say(f"{reader.name} starts")
                reader.start()
            elif rng.random() < 0.5:
                say(f"{reader.name} crashes")
                reader.crash(committed)
            else:
                # A clean leave is one with nothing under way: Spark is stopped in the middle of a batch otherwise.
                with flow.still() as count:
                    wait_until(
                        partial(lambda c: sum(committed().values()) == c, count), "all to be read and committed", 180
                    )
                    say(f"{reader.name} leaves")
                    reader.leave(committed)
            time.sleep(rng.uniform(*PAUSE))
        for reader in readers:
            if reader.app is None:
                reader.start()
        flow.close()
        say("all records are written")
        wait_until(lambda: sum(committed().values()) == flow.count, "all records to be read and committed", 300)
        for reader in readers:
            reader.leave(committed)
    finally:
        flow.close()
        for reader in readers:
            if reader.app is not None:
                reader.app.kill()

    tps = tuple(TopicPartition(name, p) for p in range(PARTITIONS))
    there = {(row.partition, offset) for row in groups.lag(group, tps) for offset in range(row.end or 0)}
    assert len(there) == flow.count
    found = account(readers, there)
    say(
        f"{flow.count} records, kills { ({reader.name: reader.kills for reader in readers}) }, "
        f"{len(found.repeated)} records read more than once, by cause {dict(found.by_cause)}"
    )
    assert found.missing == set()
    assert found.invented == set()
    assert found.unexplained == {}
    assert all(cause.startswith("kill ") for cause in found.by_cause)
