"""Metrics of a running query, scraped as Prometheus does, beside what Kafka's own tool says of the group."""

import re
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse
from pyspark.sql import DataFrame

from kafka_source.errors import InvalidConfigurationError
from kafkagroup import Settings, metrics
from kafkagroup.admin import Groups
from kafkagroup.embedded import run_java
from kafkagroup.metrics import Metrics, catalog, read_samples
from kafkagroup.metrics.group_meter import GroupMeter
from kafkagroup.plots.figures_over_time import looks_of
from tests.support.records import open_transaction, produce, stream
from tests.support.waiting import wait_until

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def scrape(running: Metrics) -> dict[tuple[str, ...], float]:
    """All figures, by the sample's name and its labels as name=value."""
    with urllib.request.urlopen(f"http://{running.prometheus_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sorted(f"{name}={value}" for name, value in sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def total(figures: dict[tuple[str, ...], float], name: str, *labels: str) -> float | None:
    """The sum of a metric's series with these labels; None if there is none."""
    found = [value for (metric, *of), value in figures.items() if metric == name and {*labels} <= {*of}]
    return sum(found) if found else None


def by_partition(figures: dict[tuple[str, ...], float], name: str) -> dict[int, float]:
    return {
        int(label.removeprefix("partition=")): value
        for (metric, *labels), value in figures.items()
        for label in labels
        if metric == name and label.startswith("partition=")
    }


def kafka_consumer_groups(servers: str, group: str) -> dict[int, tuple[int, int, int]]:
    """Committed offset, end and lag of each partition, as kafka-consumer-groups.sh says it."""
    told = run_java(GROUP_TOOL, "--bootstrap-server", servers, "--describe", "--group", group).stdout
    rows = re.findall(rf"^{group}\s+\S+\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", told, flags=re.MULTILINE)
    return {int(partition): (int(committed), int(end), int(lag)) for partition, committed, end, lag in rows}


class Gate:
    """Writes micro-batches to nowhere, and holds the one with this number."""

    def __init__(self, held: int) -> None:
        self._held = held
        self.reached, self.open = threading.Event(), threading.Event()

    def write(self, frame: DataFrame, batch: int) -> None:
        frame.write.format("noop").mode("append").save()
        if batch == self._held:
            self.reached.set()
            assert self.open.wait(120)


@pytest.mark.timeout(400)
def test_a_scrape_agrees_with_kafkas_own_tool_and_follows_a_rebalance(spark, kafka, topic, members, tmp_path):
    name, group = topic("scraped", partitions=4, records=1000), members.group
    gate = Gate(held=2)
    options = {"kafka_group_id": group, "group_members": 2, "kafka_partition_assignment_strategy": "range"}
    frame = stream(spark, kafka, name, startingOffsets="earliest", maxOffsetsPerTrigger=200, **options)
    samples = tmp_path / "samples.jsonl"
    with metrics.start(spark, prometheus="127.0.0.1:0", file=samples) as running:
        writer = frame.writeStream.queryName("scraped").foreachBatch(gate.write)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            # Batch 2 is planned, which committed batch 1, and does not end: what Kafka's tool sees stays as it is.
            assert gate.reached.wait(120)
            triggers = "kafkagroup_query_trigger_duration_seconds_count"
            wait_until(lambda: total(scrape(running), triggers) == 2, "the progress of batch 1")
            figures, theirs = scrape(running), kafka_consumer_groups(kafka.bootstrap_servers, group)
            ours = {
                partition: (position, ends, lag)
                for (partition, position), ends, lag in zip(
                    sorted(by_partition(figures, "kafkagroup_consumer_position").items()),
                    (end for _, end in sorted(by_partition(figures, "kafkagroup_partition_end_offset").items())),
                    (lag for _, lag in sorted(by_partition(figures, "kafkagroup_consumer_lag_records").items())),
                    strict=True,
                )
            }
            assert ours == theirs
            read = total(figures, "kafkagroup_consumer_records_total") or 0
            assert 300 < read <= 408
            assert sum(lag for _, _, lag in theirs.values()) == 1000 - read
            assert all(age > 0 for age in by_partition(figures, "kafkagroup_consumer_lag_seconds").values())
            assert total(figures, "kafkagroup_query_input_rows_total", "query=scraped") == read
            assert total(figures, "kafkagroup_consumer_assigned_partitions", f"group={group}") == 4
            assert total(figures, "kafkagroup_consumer_rebalances_total", "cause=start") == 1
            # Batch 1 was planned after the commit of batch 0, and tells it.
            assert (total(figures, "kafkagroup_consumer_commit_latency_seconds_count") or 0) >= 1
            assert total(figures, "kafkagroup_consumer_commit_failures_total") == 0
            gate.open.set()
            query.processAllAvailable()

            def caught_up() -> bool:
                told = kafka_consumer_groups(kafka.bootstrap_servers, group)
                return sum(lag for _, _, lag in told.values()) == 0

            wait_until(caught_up, "the commit of the last micro-batch")
            wait_until(lambda: total(scrape(running), "kafkagroup_consumer_lag_records") == 0, "the last micro-batch")

            other = members.make(name, slots=1, app="other")
            with ThreadPoolExecutor(1) as pool:
                pool.submit(other.join, 60).result()
            produce(kafka.bootstrap_servers, name, 100, first=1000)

            def rebalanced() -> bool:
                return bool(total(scrape(running), "kafkagroup_consumer_rebalances_total", "cause=members"))

            wait_until(rebalanced, "a micro-batch after the rebalance")
            owned = sum(len(slot.partitions) for slot in other.assignment.slots)
            assert owned > 0
            assert total(scrape(running), "kafkagroup_consumer_assigned_partitions") == 4 - owned
            assert len(by_partition(scrape(running), "kafkagroup_consumer_lag_records")) == 4 - owned
        finally:
            gate.open.set()
            query.stop()
        wait_until(lambda: total(scrape(running), "kafkagroup_consumer_lag_records") is None, "the end of the query")
        figures = scrape(running)
        assert total(figures, "kafkagroup_query_terminations_total", "failed=false") == 1
        assert total(figures, "kafkagroup_query_terminations_total", "failed=true") == 0
    kept = read_samples(samples)
    assert sum(one.rows for one in kept) == total(figures, "kafkagroup_query_input_rows_total")
    (moved,) = [r for one in kept for r in one.rebalances if r.cause.value == "members"][-1:]
    assert f"{group}-other-0" in {name for one in kept for r in one.rebalances for name in r.came}
    assert moved.members == 3


def test_a_slow_query_without_limits_tells_its_lag_while_a_micro_batch_runs(spark, kafka, topic, members, tmp_path):
    name, group = topic("slow", partitions=2), members.group
    settings, samples = Settings({"bootstrap.servers": kafka.bootstrap_servers}), tmp_path / "samples.jsonl"
    produce(kafka.bootstrap_servers, name, 100)
    gate = Gate(held=1)
    frame = stream(spark, kafka, name, startingOffsets="earliest", kafka_group_id=group)
    address = "127.0.0.1:0"
    with metrics.start(spark, prometheus=address, file=samples, settings=settings, look_seconds=0.5) as running:
        writer = frame.writeStream.queryName("slow").foreachBatch(gate.write)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            wait_until(lambda: total(scrape(running), "kafkagroup_consumer_lag_records") == 0, "the first micro-batch")
            produce(kafka.bootstrap_servers, name, 50, first=100)
            assert gate.reached.wait(120)
            produce(kafka.bootstrap_servers, name, 70, first=150)
            # The second micro-batch takes the 50, and is not finished.
            wait_until(lambda: total(scrape(running), "kafkagroup_consumer_lag_records") == 120, "a look")
            theirs = kafka_consumer_groups(kafka.bootstrap_servers, group)
            assert {p: lag for p, (_, _, lag) in theirs.items()} == by_partition(
                scrape(running), "kafkagroup_consumer_lag_records"
            )
            age, at = (f"kafkagroup_consumer_lag_{one}" for one in ("seconds", "timestamp_seconds"))
            before = scrape(running)
            wait_until(lambda: (total(scrape(running), age) or 0) > (total(before, age) or 0), "an older record")
            assert (total(scrape(running), at) or 0) > (total(before, at) or 0)
            update = GroupMeter().look({group: Groups(settings).lag(group)}, time.time())
            assert sum(p.value for p in update.points if p.series.metric is catalog.LAG_RECORDS) == 120
            gate.open.set()
            wait_until(lambda: total(scrape(running), "kafkagroup_consumer_lag_records") == 0, "the rest")
        finally:
            gate.open.set()
            query.stop()
    kept = read_samples(samples)
    assert 120 in {sum(p.lag for p in one.partitions.values()) for one in looks_of(kept)}
    assert sum(one.rows for one in kept) == 220


def test_a_query_with_a_quota_tells_bytes_and_time_in_throttle(spark, kafka, topic, tmp_path):
    name = topic("paced", partitions=2)
    # Small record batches, which a task fetches one after another.
    produce(kafka.bootstrap_servers, name, 2000, config={"batch.num.messages": 50})
    with metrics.start(spark, prometheus="127.0.0.1:0") as running:
        quota = {"quota_records_per_second": 400, "quota_windows": 2, "quota_window_ms": 500}
        frame = stream(spark, kafka, name, startingOffsets="earliest", **quota)
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        try:
            wait_until(lambda: total(scrape(running), "kafkagroup_consumer_records_total") == 2000, "all records")
            # The account of a micro-batch is told with the next one.
            produce(kafka.bootstrap_servers, name, 10, first=2000)
            wait_until(
                lambda: (total(scrape(running), "kafkagroup_consumer_bytes_total") or 0) > 0, "the next micro-batch"
            )
            figures = scrape(running)
        finally:
            query.stop()
    assert total(figures, "kafkagroup_quota_records_per_second") == 400
    assert total(figures, "kafkagroup_quota_bytes_per_second") is None
    assert (total(figures, "kafkagroup_consumer_throttle_seconds_total", "by=quota") or 0) > 0


def test_an_open_transaction_of_a_sink_is_seen_until_it_ends(spark, kafka, topic):
    name, prefix = topic("sunk", partitions=1), f"watched-{topic('prefix')}"
    producer = open_transaction(kafka.bootstrap_servers, f"{prefix}-0-0", name, [b"prepared"])
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    address = "127.0.0.1:0"
    with metrics.start(
        spark, prometheus=address, settings=settings, transactions=[prefix], look_seconds=0.5
    ) as running:
        wait_until(lambda: total(scrape(running), "kafkagroup_transactions_open", "state=undecided") == 1, "it is seen")
        wait_until(
            lambda: (total(scrape(running), "kafkagroup_transactions_oldest_seconds") or 0) > 0, "it grows older"
        )
        assert total(scrape(running), "kafkagroup_transactions_open", "state=decided") == 0
        producer.abort_transaction(30)
        wait_until(lambda: total(scrape(running), "kafkagroup_transactions_open", "state=undecided") == 0, "its end")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs a destination"),
        ({"prometheus": "9400"}, "is not host:port"),
        ({"prometheus": "127.0.0.1:99999"}, "is not host:port"),
        ({"file": "/nowhere/at/all"}, "cannot be written"),
    ],
)
def test_what_cannot_start_says_why(spark, given, reason):
    with pytest.raises(InvalidConfigurationError, match=reason):
        metrics.start(spark, **given)


def test_spark_captures_what_tasks_log_with_its_level_and_fields(spark, kafka, topic):
    if not hasattr(spark, "tvf") or not hasattr(spark.tvf, "python_worker_logs"):
        pytest.skip("Spark before 4.1 captures no logs of workers")
    name = topic("logged", partitions=1, records=10)
    capture = "spark.sql.pyspark.worker.logging.enabled"
    spark.conf.set(capture, "true")
    try:
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "kafka.group.id": f"{name}-g"}
        frame = spark.read.format("kafkagroup").options(**given, **{"log.level": "info"}).load()
        assert frame.count() == 10
        rows = spark.tvf.python_worker_logs().where("logger like 'kafka_source.%'").collect()
    finally:
        spark.conf.unset(capture)
    rebalances = [row for row in rows if row["msg"].startswith("rebalance ")]
    assert {row["level"] for row in rebalances} == {"INFO"}
    assert rebalances[0]["context"]["event"] == "rebalance"
    assert rebalances[0]["context"]["cause"] == "start"
