"""Consumers of the classic and of the new protocol (KIP-848) beside our members: the group is converted back and forth.

KAFKAGROUP_PROTOCOLS_SECONDS and KAFKAGROUP_PROTOCOLS_SEED set how long the long test runs, and in which order members
come and go; the seed is printed.
"""

import os
import random
import time
from functools import partial

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from tests.support.mixed_group import Trickle
from tests.support.records import stream, to_files, written
from tests.support.restless import (
    Java,
    Librdkafka,
    Reader,
    Spark,
    Verifiable,
    VerifiableFlow,
    account,
    committed_positions,
    say_to,
    spark_queries,
)
from tests.support.waiting import wait_until

# More than members, so that each of them has one.
PARTITIONS = 12
SECONDS = int(os.environ.get("KAFKAGROUP_PROTOCOLS_SECONDS", "900"))
SEED = int(os.environ.get("KAFKAGROUP_PROTOCOLS_SEED", str(random.randrange(1_000_000))))
PAUSE = (3.0, 12.0)
PER_SECOND = 220
# Seconds; the session of a classic member of ours ends after 10.
FROZEN = (1.0, 20.0)
# The others commit so seldom that a kill leaves something to be read again; ours commit each micro-batch.
COMMIT_MS = 1000


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_java_application_is_rolled_to_the_new_protocol_and_back_beside_a_stream(spark, kafka, topic, tmp_path):
    name = topic("rolled", partitions=PARTITIONS)
    group, servers = f"{name}-group", kafka.bootstrap_servers
    options = {"kafka.group.protocol": "consumer", "group.members": 2, "startingOffsets": "earliest"}
    frame = stream(spark, kafka, name, kafka_group_id=group, **options)
    out = tmp_path / "out"
    query = to_files(frame, tmp_path).start()
    instances = [Java(f"java-{n}", tmp_path / f"java-{n}", servers, group, name) for n in range(2)]
    trickle = Trickle(servers, name)
    groups = Groups(Settings({"bootstrap.servers": servers}))
    committed = partial(committed_positions, groups, group)
    try:
        wait_until(lambda: bool(written(out)), "the stream to read")
        for strategy in ("range", "consumer", "range"):
            for instance in instances:
                if instance.app is not None:
                    instance.leave(committed)
                instance.strategy = strategy
                instance.start()
                assert instance.app is not None
                instance.app.wait_for(f"assigned {name}")
        for instance in instances:
            instance.leave(committed)
        trickle.close()
        wait_until(
            lambda: sum(groups.committed(group).values()) == trickle.count, "everything to be read and committed"
        )
    finally:
        trickle.close()
        query.stop()
        for instance in instances:
            if instance.app is not None:
                instance.app.kill()
    theirs = [place for instance in instances for place in instance.places()]
    assert theirs
    assert len(written(out)) + len(theirs) == trickle.count
    assert len({*theirs}) == len(theirs)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
def test_nothing_is_lost_and_only_what_was_not_committed_is_read_twice(kafka, topic, tmp_path, capsys):
    """Six applications come and go, three clients, both protocols; each is killed, frozen or leaves at any moment.

    Kafka's VerifiableProducer writes, and its VerifiableConsumer is one of the members of the consumer protocol. So are
    our queries; one has static members.

    How often a record may be read: once, and once more for each time that an application gave it up uncommitted. The
    next owner begins at the committed offset, so a reading that was committed is never followed by another one, with
    one exception: Spark finishes a micro-batch that was planned before the kill, even if others have read it meanwhile.
    Then the kill of the query explains the repetition as well. What an application gave up uncommitted is known
    exactly or from above (`tests.support.restless.Cut`):

    - Java's consumers and librdkafka's say each record that they read, and each commit that has succeeded. Since the
      last one of these, what they have said is uncommitted. If the program dies between a commit and its line, this is
      too much by one interval of commits.
    - A query of ours commits its micro-batch before it plans the next one, and writes the plan down before it reads. So
      it is what lies between the group's offset and the end of the last plan. For a kill the offset is looked up right
      after it, while the dead member's session keeps its partitions from the others; for a stop right before it.

    The group may remove the members of a query: on a busy machine heartbeats are late, and when the group becomes a
    classic one again, brokers refuse members that are an epoch behind. The query logs it, and every micro-batch since
    the last look counts as given up.

    The assertion holds for each record, which is stricter than one for the sums.
    """
    name = topic("protocols", partitions=PARTITIONS)
    group, servers = f"{name}-group", kafka.bootstrap_servers
    groups = Groups(Settings({"bootstrap.servers": servers}))
    readers: list[Reader] = [
        *spark_queries(servers, name, group, tmp_path, kafka_group_protocol="consumer", log_level="info"),
        Java("java-classic", tmp_path / "java-classic", servers, group, name, "range", COMMIT_MS),
        Verifiable("verifiable-consumer", tmp_path / "verifiable", servers, group, name),
        Librdkafka("librdkafka-classic", tmp_path / "rd-classic", servers, group, name, "classic", COMMIT_MS),
        Librdkafka("librdkafka-consumer", tmp_path / "rd-consumer", servers, group, name, "consumer", COMMIT_MS),
    ]
    committed = partial(committed_positions, groups, group)
    say = partial(say_to, capsys, time.monotonic())
    flow = VerifiableFlow(servers, name, tmp_path / "producer.log", PER_SECOND)
    began, rng = time.monotonic(), random.Random(SEED)
    say(f"seed {SEED}")
    try:
        readers[0].start()
        while time.monotonic() - began < SECONDS:
            for reader in readers:
                reader.check()
            reader = rng.choice(readers)
            if reader.app is None:
                say(f"{reader.name} starts")
                reader.start()
            elif isinstance(reader, Spark) and not reader.has_read():
                # On a busy machine Spark starts for minutes. It does not stop before, and gives its Python workers up
                # if it stands still.
                say(f"{reader.name} is let start")
            else:
                deed = rng.choice(["crashes", "crashes", "freezes", "leaves"])
                say(f"{reader.name} {deed}")
                if deed == "crashes":
                    reader.crash(committed)
                elif deed == "freezes":
                    reader.freeze(rng.uniform(*FROZEN))
                else:
                    reader.leave(committed)
            time.sleep(rng.uniform(*PAUSE))
        for reader in readers[:2]:
            if reader.app is None:
                reader.start()
        flow.close()
        say("all records are written")
        wait_until(lambda: sum(committed().values()) == flow.count, "all records to be read and committed", 300)
        for reader in readers:
            if reader.app is not None:
                reader.leave(committed)
    finally:
        flow.close()
        for reader in readers:
            if reader.app is not None:
                reader.app.kill()

    tps = tuple(TopicPartition(name, p) for p in range(PARTITIONS))
    there = {(row.partition, offset) for row in groups.lag(group, tps) for offset in range(row.end or 0)}
    found = account(readers, there)
    say(
        f"{flow.count} records, kills { ({reader.name: reader.kills for reader in readers}) }, "
        f"freezes { ({reader.name: reader.freezes for reader in readers}) }, "
        f"removals { ({one.name: one.removals for one in readers if isinstance(one, Spark)}) }, "
        f"{len(found.repeated)} records read more than once, {sum(found.repeated.values())} times, "
        f"bound {found.bound}, by cause {dict(found.by_cause)}"
    )
    assert len(there) == flow.count
    assert found.missing == set()
    assert found.invented == set()
    assert found.unexplained == {}
    assert sum(found.repeated.values()) <= found.bound
