"""Partitions read in step by time (`maxTimestampSkew`): a watermark drops no rows of partitions that are behind."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import groupby

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.functions import count, window

from assignors import TopicPartition
from kafka_source.model.stream_offset import StreamOffset
from kafkagroup.progress import lag_of, sources_of
from tests.support.queries import Job
from tests.support.records import run_to_end, stream

pytestmark = pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "getDefaultReadLimit"),
    reason="Spark before 4.2 runs AvailableNow of a Python source as one batch",
)

HOUR = 3_600_000
SKEW = 10 * 60_000
ENGINES = pytest.mark.parametrize("engine", ["native", "librdkafka"])


class Backlog:
    """A topic with ten hours of records, of which the last partition has a hundredth."""

    def __init__(self, kafka, name: str, *, partitions: int = 4, **config: object) -> None:
        # Brokers from Kafka 4.0 on refuse records that are more than an hour ahead of their clock.
        takes_future = {"message.timestamp.after.max.ms": (1 << 63) - 1}
        self.kafka, self.name = kafka, kafka.create_topic(name, partitions, config=takes_future)
        self.began = round(time.time() * 1000) - 10 * HOUR
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **config})
        self.times: dict[int, int] = {}

    def fill(self, partition: int, *, every_ms: int, first: int = 0, last: int = 10 * HOUR) -> None:
        for at in range(first, last, every_ms):
            self.put(partition, at)
        assert self.producer.flush(60) == 0

    def put(self, partition: int, at: int) -> None:
        number = len(self.times)
        self.times[number] = at
        self.producer.produce(self.name, str(number), partition=partition, timestamp=self.began + at)

    def batches(self, job: Job) -> list[list[int]]:
        """The times in each micro-batch of a query."""
        found = []
        with closing(job.planner()) as planner:
            while (end := planner.next(job.offsets[-1], limited=True)) is not job.offsets[-1]:
                job.offsets.append(StreamOffset.from_json(end.to_json()))
                found.append([self.times[number] for number in job.read(planner, *job.offsets[-2:])])
        return found


def uneven(kafka, name: str) -> Backlog:
    backlog = Backlog(kafka, name)
    for partition, every in enumerate([10_000, 20_000, 100_000, 1_000_000]):
        # The leader of the third one was away for two hours.
        backlog.fill(partition, every_ms=every, last=8 * HOUR if partition == 2 else 10 * HOUR)
    return backlog


def lateness(batches: list[list[int]]) -> int:
    """By how much a record is at most older than one of an earlier micro-batch."""
    latest, most = 0, 0
    for batch in batches:
        most = max(most, latest - min(batch, default=latest))
        latest = max([latest, *batch])
    return most


def windows(spark, backlog: Backlog, tmp_path, name: str, **options: object):
    """Run a query to its end that counts in windows; return it, and what it has counted."""
    frame = stream(spark, backlog.kafka, backlog.name, startingOffsets="earliest", **options)
    counts = frame.withWatermark("timestamp", "10 minutes").groupBy(window("timestamp", "10 minutes"), "partition")
    writer = counts.agg(count("*").alias("count")).writeStream.outputMode("update").format("memory").queryName(name)
    query = run_to_end(writer.option("checkpointLocation", str(tmp_path / name)), 300)
    found = spark.sql(f"SELECT partition, window.start, max(count) AS n FROM {name} GROUP BY ALL").collect()
    return query, sum(row.n for row in found)


def dropped(query) -> int:
    return sum(one["numRowsDroppedByWatermark"] for p in query.recentProgress for one in p["stateOperators"])


def test_a_windowed_query_that_catches_up_drops_no_row_and_without_the_option_it_does(spark, kafka, tmp_path):
    backlog = Backlog(kafka, "late-rows", partitions=2)
    backlog.fill(0, every_ms=60_000)
    # As many records in an hour as the other one has in ten: a share in proportion to the lag is too much time.
    backlog.fill(1, every_ms=6_000, first=8 * HOUR, last=9 * HOUR)
    limit = {"maxOffsetsPerTrigger": 200}
    loose, counted_loosely = windows(spark, backlog, tmp_path, "loose", **limit)
    aligned, counted = windows(spark, backlog, tmp_path, "aligned", maxTimestampSkew="10m", **limit)
    assert counted_loosely < counted == len(backlog.times)
    assert dropped(loose) > 0
    assert dropped(aligned) == 0


def test_the_progress_of_a_query_shows_the_skew_and_the_partition_that_holds_the_others_back(spark, kafka, tmp_path):
    backlog = uneven(kafka, "skew-in-progress")
    query, _ = windows(spark, backlog, tmp_path, "progress", maxTimestampSkew="10m", maxOffsetsPerTrigger=2000)
    drivers = [one.driver for progress in query.recentProgress for one in sources_of(progress) if one.has_read]
    first, *others = [driver.alignment for driver in drivers if driver is not None and driver.alignment is not None]
    assert (first.time_ms, first.held_by, first.skew_before_ms) == (backlog.began, TopicPartition(backlog.name, 0), 0)
    assert max(one.skew_after_ms or 0 for one in others) < 2 * SKEW
    metrics = lag_of(query.recentProgress[0])[0].metrics
    assert (metrics["leastTimestamp"], metrics["heldBackBy"]) == (str(backlog.began), f"{backlog.name}-0")
    assert metrics["timestampSkewBeforeMs"] == "0"


@ENGINES
def test_no_micro_batch_is_further_ahead_than_the_skew(kafka, engine):
    backlog = uneven(kafka, f"in-step-{engine}")
    job = Job(
        kafka, backlog.name, subscribe=backlog.name, engine=engine, maxOffsetsPerTrigger=500, maxTimestampSkew="10m"
    )
    batches = backlog.batches(job)
    assert sorted(time for batch in batches for time in batch) == sorted(backlog.times.values())
    assert lateness(batches) <= SKEW
    free = Job(kafka, f"{backlog.name}-free", subscribe=backlog.name, engine=engine, maxOffsetsPerTrigger=500)
    assert lateness(backlog.batches(free)) > HOUR


def test_transactions_that_copy_old_records_hold_nothing_back_and_aborted_ones_are_not_read(kafka):
    backlog = Backlog(kafka, "copied", partitions=2, **{"transactional.id": "copied"})
    backlog.producer.init_transactions(30)
    kept = 0
    for start in range(0, 10 * HOUR, HOUR):
        for aborts in (False, True):
            backlog.producer.begin_transaction()
            for at in range(start, start + HOUR, 60_000):
                backlog.put(0, at)
                if at % (10 * 60_000) == 0:
                    backlog.put(1, at)
            backlog.producer.flush(60)
            # Control records have the time of now, hours after their records.
            if aborts:
                backlog.producer.abort_transaction(30)
            else:
                backlog.producer.commit_transaction(30)
                kept += 66
    options = {"maxTimestampSkew": "10m", "maxOffsetsPerTrigger": 50, "kafka.isolation.level": "read_committed"}
    batches = backlog.batches(Job(kafka, backlog.name, subscribe=backlog.name, **options))
    assert sum(map(len, batches)) == kept
    # Between two reads of its search, records are taken to be in order.
    assert lateness(batches) <= 2 * SKEW


def test_each_of_two_queries_of_a_group_keeps_its_own_partitions_in_step(kafka):
    backlog = Backlog(kafka, "shared", partitions=4)
    for partition in range(4):
        backlog.fill(partition, every_ms=60_000 if partition % 2 else 600_000)
    read: set[int] = set()

    def run(_: int) -> list[tuple[frozenset[TopicPartition], list[int]]]:
        found, deadline = [], time.monotonic() + 200
        job = Job(kafka, "shared", subscribe=backlog.name, maxTimestampSkew="10m", maxOffsetsPerTrigger=50)
        with closing(job.planner()) as planner:
            while read != backlog.times.keys():
                assert time.monotonic() < deadline
                end = planner.next(job.offsets[-1], limited=True)
                if end is not job.offsets[-1]:
                    job.offsets.append(StreamOffset.from_json(end.to_json()))
                    numbers = job.read(planner, *job.offsets[-2:])
                    found.append((frozenset(end.partitions), [backlog.times[number] for number in numbers]))
                    read.update(numbers)
        return found

    with ThreadPoolExecutor(2) as threads:
        for batches in threads.map(run, range(2)):
            for _, same in groupby(batches, key=lambda batch: batch[0]):
                assert lateness([times for _, times in same]) <= SKEW
    assert read == backlog.times.keys()
