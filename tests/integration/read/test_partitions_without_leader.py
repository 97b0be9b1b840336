"""A partition has no leader, or a leader without its last records.

Without one, because the only broker that has it is down, the others are read meanwhile. Where records were lost, the
leader epochs tell (KIP-320): records that the new leader has below the old offset are not skipped.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import InputPartition

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import DataLossError, KafkaGroupError, RetriableError
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where, read_options
from kafka_source.pinned_read import pinned_ranges
from kafka_source.schema import source_schema
from kafka_source.source import read_task
from kafka_source.source.batch import BatchReader
from kafka_source.source.micro_batches import MicroBatches
from kafkagroup.admin import Groups
from kafkagroup.admin.watch_rates import GroupSample, History
from kafkagroup.cli.rows import overview
from kafkagroup.embedded import EmbeddedKafka
from tests.support.queries import Job, query_of
from tests.support.records import produce, write_records
from tests.support.unclean_election import LOSES_RECORDS, lose_records, replicas_of
from tests.support.waiting import wait_until

PARTITIONS = 3
DEAD = 3


@pytest.fixture(scope="module")
def nodes() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(nodes=3) as kafka:
        yield kafka


class Outage:
    """A topic with a partition that only node `DEAD` has, and what queries read of it.

    Values are the number of the partition, then that of the record in it.
    """

    def __init__(self, kafka: EmbeddedKafka, name: str) -> None:
        self.kafka, self.topic = kafka, kafka.create_topic(name, PARTITIONS, 1)
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": self.topic}
        self._cluster = Cluster.of(read_options(given, Where.BATCH))
        metadata = kafka.admin().list_topics(name, timeout=10).topics[name]
        (self.lost,) = (number for number, one in metadata.partitions.items() if one.leader == DEAD)
        self.others = [number for number in range(PARTITIONS) if number != self.lost]
        self._count = 0

    def produce(self, *numbers: int) -> list[int]:
        """Write ten records to each of these partitions; returns their values."""
        values = [1000 * number + self._count + n for number in numbers for n in range(10)]
        records = ({"value": str(value), "partition": value // 1000} for value in values)
        write_records(self.kafka.bootstrap_servers, self.topic, records)
        self._count += 10
        return sorted(values)

    def begin(self) -> None:
        """Kill the node, and wait until the others know it."""
        self.kafka.kill(DEAD)
        lost = TopicPartition(self.topic, self.lost)
        wait_until(lambda: self._cluster.without_leader([lost]), "the partition to lose its leader")

    def end(self) -> None:
        """Start the node again."""
        self.kafka.restart(DEAD)

    def close(self) -> None:
        self._cluster.close()
        if not self.kafka.is_running(DEAD):
            self.end()


def committed(groups: Groups, group: str) -> dict[TopicPartition, int]:
    """What a group has committed; nothing while its next coordinator does not know it."""
    with suppress(KafkaGroupError):
        return groups.committed(group)
    return {}


class Reading:
    """A query that runs: each step is a micro-batch that reads something."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, group: str | None, **options: object) -> None:
        member = {} if group is None else {"kafka.group.id": group}
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **member}
        settled = {"startingOffsets": "earliest", "coordinator.timeout.ms": "60000"}
        self._query = query_of({**given, **settled, **options})
        self._planner = MicroBatches(self._query)
        self._offset = StreamOffset()

    def step(self) -> list[int]:
        """Read the next micro-batch; empty: nothing is new."""
        start, end = self._offset, self._planner.next(self._offset, limited=True)
        self._offset = StreamOffset.from_json(end.to_json())
        bundles = [] if end is start else self._planner.tasks(start, end)
        batches = [batch for one in bundles for batch in read_task.read_bundle(one, self._query)]
        return sorted(int(value.as_py()) for batch in batches for value in batch["value"])

    def next(self) -> list[int]:
        return wait_until(self.step, "something to read")

    def run(self) -> list[int]:
        """Read as Trigger.AvailableNow does: to where the log ends now."""
        self._planner.stop_at_latest()
        found: list[int] = []
        while values := self.step():
            found += values
        return sorted(found)

    def close(self) -> None:
        self._planner.close()


def batch_reader(kafka: EmbeddedKafka, topic: str, group: str | None, **options: object) -> BatchReader:
    member = {} if group is None else {"kafka.group.id": group}
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **member, **named}
    return BatchReader(given, source_schema(headers=False))


def values_of(reader: BatchReader, tasks: Iterable[InputPartition]) -> list[int]:
    return sorted(int(value.as_py()) for task in tasks for batch in reader.read(task) for value in batch["value"])


def assert_the_lag_of_the_others_is_shown(groups: Groups, group: str, outage: Outage) -> None:
    """Each partition has ten records, and the group has read four of them."""
    described, rows = groups.describe(group), groups.lag(group)
    assert [row.lag for row in rows] == [None if n == outage.lost else 6 for n in range(PARTITIONS)]
    assert overview(described, rows).lag == 12
    assert [one.lag for one in groups.list(lag=True, pattern=group)] == [12]
    sample = GroupSample.from_group(described, rows, 0)
    assert (sample.lag, History().add(sample).uncommitted) == (12, 0)


@pytest.fixture
def outage(nodes, group) -> Iterator[Outage]:
    with closing(Outage(nodes, group)) as one:
        yield one


@pytest.fixture
def reading(nodes, group):
    """Starts queries of a topic; the group is that of the test, unless another is given."""
    with ExitStack() as stack:
        yield lambda topic, group, **options: stack.enter_context(closing(Reading(nodes, topic, group, **options)))


def test_the_others_are_read_meanwhile_and_the_partition_when_it_has_a_leader_again(
    nodes, group, reading, outage, caplog
):
    first = outage.produce(*range(PARTITIONS))
    in_group, without = reading(outage.topic, group), reading(outage.topic, None)
    impatient = reading(outage.topic, None, coordinator_timeout_ms=1)
    for query in (in_group, without, impatient):
        assert query.next() == first

    groups, behind = Groups(Settings({"bootstrap.servers": nodes.bootstrap_servers})), f"{group}-behind"
    groups.create(behind, {TopicPartition(outage.topic, number): 4 for number in range(PARTITIONS)})
    outage.begin()
    wait_until(lambda: committed(groups, behind), "the next coordinator to know the group")
    assert_the_lag_of_the_others_is_shown(groups, behind, outage)
    assert f"no broker leads {outage.topic}:{outage.lost}: their lag is unknown" in caplog.text
    meanwhile = outage.produce(*outage.others)
    assert in_group.next() == without.next() == meanwhile
    with pytest.raises(RetriableError, match=rf"{outage.topic}:{outage.lost} .*coordinator\.timeout\.ms"):
        wait_until(lambda: impatient.step() and None, "the error")
    # Queries that start now.
    late, late_without = reading(outage.topic, f"{group}-late"), reading(outage.topic, None)
    lost = [value for value in first if value // 1000 == outage.lost]
    assert late.next() == late_without.next() == sorted({*first, *meanwhile} - {*lost})
    # A run that ends where the log ends does not end before it has read everything.
    now = reading(outage.topic, f"{group}-now")
    with ThreadPoolExecutor(3) as pool:
        run = pool.submit(now.run)
        # Without a group a batch leaves the partition to its task, the last one. One in a group waits with its plan.
        reader, member = (batch_reader(nodes, outage.topic, name) for name in (None, f"{group}-batch"))
        *tasks, waits = reader.partitions()
        assert values_of(reader, tasks) == sorted({*first, *meanwhile} - {*lost})
        task = pool.submit(values_of, reader, [waits])
        batch = pool.submit(lambda: values_of(member, member.partitions()))
        wait_until(
            lambda: f"no broker leads {outage.topic}:{outage.lost}: waiting up to 300 s" in caplog.text, "a word"
        )
        outage.end()
        assert task.result(60) == lost
        assert batch.result(60) == run.result(60) == sorted(first + meanwhile)

    last = outage.produce(outage.lost)
    assert in_group.next() == without.next() == last
    assert late.next() == late_without.next() == lost + last


def read_on(job: Job, planner: MicroBatches) -> list[int]:
    """Read what is new with a driver that goes on running."""
    found = []
    while (end := planner.next(job.offsets[-1], limited=True)) is not job.offsets[-1]:
        job.offsets.append(end)
        found += job.read(planner, *job.offsets[-2:])
    return found


def elect(kafka, topic: str, leader: int) -> None:
    """A clean election: the preferred leader leads again, and there are no new records."""

    def done() -> bool:
        admin: AdminClient = kafka.admin()
        with suppress(Exception):
            admin.elect_leaders(ElectionType.PREFERRED, [ClientPartition(topic, 0)]).result(10)
        return replicas_of(kafka, topic)[0][0] == leader

    wait_until(done, f"node {leader} to lead again")


def test_a_log_that_has_lost_records_and_grown_again_is_noticed(nodes, group, caplog):
    """Read by a driver that goes on, by restarts with and without a group, by a group's next member, by batches."""
    kafka, servers, topic = nodes, nodes.bootstrap_servers, f"{group}-lost"
    kafka.create_topic(topic, 1, 2, LOSES_RECORDS)
    leader = replicas_of(kafka, topic)[0][0]
    tp = TopicPartition(topic, 0)

    def job(name: str, **options: object) -> Job:
        given = {"subscribe": topic, "failOnDataLoss": "false", "commit": "batch", **options}
        return Job(kafka, f"{group}-{name}", **given)

    runs, stops, member, tasks = job("runs"), job("stops"), job("member"), job("tasks", commit="task")
    strict = job("strict", failOnDataLoss="true")
    alone = job("alone", commit="none", group_membership="false")
    groups = Groups(Settings({"bootstrap.servers": servers}))

    def batch(name: str, **options: object) -> list[int]:
        reader = batch_reader(kafka, topic, f"{group}-{name}", group_membership="true", **options)
        return values_of(reader, reader.partitions())

    def block() -> list[int]:
        name = f"{group}-block"
        given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.group.id": name}
        with pinned_ranges(given) as ranges:
            return [offset for one in ranges for offset in range(one.start, one.end)]

    with closing(runs.planner()) as planner:
        produce(servers, topic, 100, config={"acks": "all"})
        before: dict[str, list[int]] = {}

        def read_all(name: str, read: Callable[[], list[int]]) -> None:
            found = before.setdefault(name, [])

            def done() -> bool:
                found.extend(read())
                return len(found) == 150

            wait_until(done, f"{name} to read")

        def write_lost() -> None:
            produce(servers, topic, 50, first=100, config={"acks": "1"})
            for name, one in {
                "stops": stops,
                "member": member,
                "tasks": tasks,
                "strict": strict,
                "alone": alone,
            }.items():
                read_all(name, one.run)
            read_all("runs", lambda: read_on(runs, planner))
            read_all("batch", lambda: batch("batch", commit="task"))
            read_all("block", block)

        lose_records(kafka, topic, write_lost, lambda: produce(servers, topic, 80, first=1100))
        assert all(found == list(range(150)) for found in before.values())

        def known(*names: str) -> set[int | None]:
            return {committed(groups, f"{group}-{name}").get(tp) for name in names}

        wait_until(
            lambda: known("runs", "stops", "member", "tasks", "strict", "batch", "block") == {150},
            "the next coordinators to know the offsets",
        )
        instead = list(range(1100, 1180))
        with pytest.raises(DataLossError, match=rf"{topic}-0 .* offset 150: .* epoch 0, .* epoch [12] .* offset 100"):
            strict.run()
        # Of a stream's commits, of a task's, and of a block's.
        for name in ("strict", "batch", "block"):
            with pytest.raises(DataLossError, match=rf"{topic}-0 .* offset 150: .* epoch 0, .* offset 100"):
                batch(name)
        assert known("strict", "batch", "block") == {150}
        assert batch("batch", failOnDataLoss="false", commit="task") == instead
        with caplog.at_level(logging.WARNING):
            assert read_on(runs, planner) == instead
            assert stops.run() == instead
            assert alone.run() == instead
            # The next member has the group's offset only.
            assert job("member").run() == job("tasks", commit="task").run() == instead
        stepped = [r.getMessage() for r in caplog.records if "stepped back" in r.getMessage()]
        assert stepped == [f"stepped back {topic}-0 from=150 to=100"] * 6
        wait_until(lambda: known("runs", "stops", "member", "tasks") == {180}, "the commits")
        # An election without new records starts no micro-batch, and later records are read once.
        elect(kafka, topic, leader)
        assert read_on(runs, planner) == stops.run() == alone.run() == []
        produce(servers, topic, 10, first=1180)
        assert read_on(runs, planner) == stops.run() == alone.run() == list(range(1180, 1190))
