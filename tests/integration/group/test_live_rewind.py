"""Two Spark applications with eight slots are rewound while records are written: what comes again, and how soon."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin import Groups, rewind_running_group
from tests.apps.process import App, streaming_app
from tests.support.memberships import everything
from tests.support.mixed_group import Trickle
from tests.support.records import written_records
from tests.support.waiting import wait_until

PARTITIONS = 8
SLOTS = 4


def read(folders: list[Path]) -> Counter[tuple[int, int]]:
    """How often each record was written, by partition and offset."""
    places: Counter[tuple[int, int]] = Counter()
    for folder in folders:
        places.update((partition, offset) for partition, offset, _ in written_records(folder / "out"))
    return places


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_record_after_the_new_position_is_read_once_more(kafka, topic, tmp_path, capsys):
    name = topic("live", partitions=PARTITIONS)
    group, servers = f"{name}-group", kafka.bootstrap_servers
    settings = Settings({"bootstrap.servers": servers})
    groups = Groups(settings)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": name,
        "kafka.group.id": group,
        "group.members": SLOTS,
        "kafka.heartbeat.interval.ms": 300,
        "startingOffsets": "earliest",
    }
    folders = [tmp_path / app for app in "ab"]
    trickle = Trickle(servers, name)
    with contextlib.ExitStack() as stack:
        stack.callback(trickle.close)
        apps: list[App] = [stack.enter_context(streaming_app(folder, options)) for folder in folders]
        for app in apps:
            app.wait_for("batch", 180)
        wait_until(lambda: len(groups.describe(group).members) == 2 * SLOTS, "both applications in the group")
        wait_until(lambda: all(written_records(folder / "out") for folder in folders), "both applications to read")
        wait_until(lambda: len(groups.committed(group)) == PARTITIONS, "an offset in each partition")
        before = groups.committed(group)
        target = {tp: offset // 2 for tp, offset in before.items()}
        started = time.monotonic()
        done = rewind_running_group(settings, group, target, timeout=120)
        set_after = time.monotonic() - started
        wait_until(lambda: max(read(folders).values()) > 1, "the first record that comes again")
        first_after = time.monotonic() - started
        trickle.close()
        last = {TopicPartition(row.topic, row.partition): row.end for row in groups.lag(group)}
        wait_until(lambda: groups.committed(group) == last, "everything to be read and committed")
        for app in apps:
            app.stop()
    with capsys.disabled():
        print(f"\nlive rewind slots={2 * SLOTS} set_s={set_after:.2f} first_record_again_s={first_after:.2f}")
    expected: Counter[tuple[int, int]] = Counter()
    for tp in everything(name, PARTITIONS):
        for offset in range(last[tp] or 0):
            again = target[tp] <= offset < done.before[tp]
            expected[tp.partition, offset] = 2 if again else 1
    assert read(folders) == expected
