"""Three processes of `arrow.consume` share a group and are killed: none lost, and none twice by transactions.

KAFKAGROUP_SOAK_MINUTES=… chooses the duration, KAFKAGROUP_SEED=… who is killed, and when.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kafkagroup import arrow
from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until

MINUTES = float(os.environ.get("KAFKAGROUP_SOAK_MINUTES", "45"))
SEED = int(os.environ.get("KAFKAGROUP_SEED", "40"))
PARTITIONS = 6
RECORDS_PER_SECOND = 500

# What each writes is in `out`, by whoever has written it: transactions write with the key "t".
MEMBER = """
import sys
import pyarrow as pa
from kafkagroup import KafkaGroupError, arrow
servers, topic, out, transactional = sys.argv[1:]
settings = {"bootstrap.servers": servers, "group.id": topic, "heartbeat.interval.ms": 500, "session.timeout.ms": 6000,
    "transaction.timeout.ms": 10000}
def output(batch, key):
    return pa.record_batch({"key": [key] * batch.num_rows, "value": batch["value"]})
with arrow.consume(topic, settings, columns="value") as stream:
    while True:
        try:
            for batch in stream:
                if transactional == "yes":
                    with stream.transaction() as transaction:
                        transaction.write(out, output(batch, "t"))
                else:
                    arrow.write(out, output(batch, "p"), {"bootstrap.servers": servers})
                    stream.commit()
        except KafkaGroupError as error:
            print(error, file=sys.stderr, flush=True)
"""


class Member:
    """A process, which is killed and started again."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments, self._log = arguments, log
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen([sys.executable, "-c", MEMBER, *self._arguments], stderr=log)

    def check(self) -> None:
        assert self._process.poll() is None, self._log.read_text()[-4000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


@pytest.mark.requires_native
@pytest.mark.long
def test_members_that_are_killed_lose_nothing_and_transactions_write_nothing_twice(
    kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, out = topic("soak-members", partitions=PARTITIONS), topic("soak-members-out", partitions=1)
    chance, servers = random.Random(SEED), kafka.bootstrap_servers
    members = [
        Member([servers, name, out, "yes" if number == 0 else "no"], tmp_path / f"member-{number}.log")
        for number in range(3)
    ]
    written, kills, end = 0, 0, time.monotonic() + MINUTES * 60
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    try:
        next_kill = time.monotonic() + 10
        while time.monotonic() < end:
            for _ in range(RECORDS_PER_SECOND // 5):
                producer.produce(name, str(written).encode(), partition=written % PARTITIONS)
                written += 1
            producer.poll(0.2)
            for member in members:
                member.check()
            if time.monotonic() > next_kill:
                victim = chance.choice(members)
                victim.kill()
                time.sleep(chance.uniform(0, 8))
                victim.start()
                kills, next_kill = kills + 1, time.monotonic() + chance.uniform(2, 20)
        assert producer.flush(60) == 0
        seen = wait_until(lambda: _complete(out, servers, written), "all records in the output", 180)
    finally:
        for member in members:
            member.kill()
    by_transaction = [value for key, value in seen if key == b"t"]
    assert len(by_transaction) == len(set(by_transaction)), "a record is twice in the output of transactions"
    assert by_transaction, "the member with transactions has read something"
    print(f"{written} records, {kills} kills, {len(by_transaction)} in transactions, {len(seen)} in all")


def _complete(out: str, servers: str, written: int) -> list[tuple[bytes, int]] | None:
    settings = {"bootstrap.servers": servers, "isolation.level": "read_committed"}
    with arrow.read(out, settings, columns="key,value") as stream:
        table = pa.table(stream)
    seen = list(zip(table["key"].to_pylist(), map(int, table["value"].to_pylist()), strict=True))
    return seen if len({value for _, value in seen}) == written else None
