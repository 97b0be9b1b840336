"""A topic read as a stream: without a group, and as members of one."""

import json
import time

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.functions import spark_partition_id

import kafkagroup
from kafkagroup.progress import lag_of, sources_of
from tests.support.records import produce, run_to_end, running, stream, to_files, write_records, written
from tests.support.waiting import wait_until, wait_until_committed

ADMISSION = hasattr(DataSourceStreamReader, "getDefaultReadLimit")


def committed(groups, group, topic):
    return sum(offset for tp, offset in groups.committed(group).items() if tp.topic == topic)


@pytest.mark.skipif(not ADMISSION, reason="Spark before 4.2 runs AvailableNow of a Python source as one batch")
@pytest.mark.parametrize("engine", ["native", pytest.param("librdkafka", marks=pytest.mark.long)])
def test_micro_batches_have_about_as_many_bytes_as_the_limit_says(spark, kafka, topic, tmp_path, engine):
    name, count, size = topic("heavy", partitions=2), 300, 1000
    records = ({"value": f"{number:0{size}}", "partition": number % 2} for number in range(count))
    write_records(kafka.bootstrap_servers, name, records, {"batch.num.messages": 5})
    options = {"startingOffsets": "earliest", "engine": engine, "maxBytesPerTrigger": "50k"}
    query = run_to_end(to_files(stream(spark, kafka, name, **options), tmp_path))
    assert written(tmp_path / "out") == list(range(count))
    first, *others = (progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"])
    # Nothing is measured before the first batch. From the second one on a batch is as large as the limit, about.
    assert first == 2
    assert max(others) <= 80
    if engine == "native":
        # librdkafka reads ahead of the range, so it counts more bytes for an offset than the offset has.
        assert sorted(others)[len(others) // 2] >= 30


@pytest.mark.skipif(not ADMISSION, reason="Spark before 4.2 runs AvailableNow of a Python source as one batch")
def test_micro_batches_grow_until_a_trigger_takes_the_wished_time(spark, kafka, topic, tmp_path):
    name = topic("paced", partitions=1, records=13_000)
    # Far above what any of them takes, so each may be ten times as large as the last.
    query = run_to_end(
        to_files(stream(spark, kafka, name, startingOffsets="earliest", targetTriggerDuration="1h"), tmp_path)
    )
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in batches] == [1000, 10_000, 2000]
    drivers = [source.driver for progress in batches for source in sources_of(progress)]
    assert [driver and driver.max_offsets for driver in drivers] == [1000, 10_000, 100_000]
    assert written(tmp_path / "out") == list(range(13_000))


def slowly(batches):
    for batch in batches:
        time.sleep(0.5)
        yield batch


@pytest.mark.skipif(not ADMISSION, reason="Spark before 4.2 runs AvailableNow of a Python source as one batch")
@pytest.mark.parametrize(
    "target", [{"targetTriggerDuration": "50s"}, {"mode": "DROPMALFORMED"}], ids=["target", "none"]
)
def test_progress_says_how_many_cores_the_target_needs(spark, kafka, topic, tmp_path, target):
    name = topic("cores", partitions=2, records=20)
    reader = spark.readStream.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("subscribe", name)
    # Two slots whose records one task reads together.
    reader.options(**{"kafka.group.id": name, "group.members": 2, "startingOffsets": "earliest", **target})
    reader.options(**{"maxOffsetsPerTrigger": 10, "value.format": "json", "value.schema": "bigint"})
    frame = kafkagroup.map_in_arrow(reader, slowly, "offset bigint", columns=["offset"])
    query = run_to_end(to_files(frame, tmp_path))
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    (_, unknown), (bad, cores), *_ = [(lag.bad_records, lag.cores_needed) for one in batches for lag in lag_of(one)]
    assert unknown is None
    if "mode" in target:
        assert (bad, cores) == (0, None)
    else:
        took = batches[0]["durationMs"]["triggerExecution"] / 1000
        assert cores is not None
        assert 0.5 / 50 <= cores <= took / 50 + 0.001
        assert float(lag_of(batches[1])[0].metrics["coresNeeded"]) == cores


@pytest.mark.skipif(not ADMISSION, reason="Spark before 4.2 does not tell a Python source that its last batch is done")
def test_a_group_commits_what_is_done_also_after_an_available_now_run(spark, kafka, topic, groups, tmp_path, group):
    name = topic("committed", partitions=3, records=60)
    run_to_end(to_files(stream(spark, kafka, name, kafka_group_id=group, startingOffsets="earliest"), tmp_path))
    assert written(tmp_path / "out") == list(range(60))
    wait_until_committed(groups, group, 60)
    assert all(row.lag == 0 for row in groups.lag(group))


def test_offsets_are_committed_while_the_topic_is_idle(spark, kafka, topic, groups, tmp_path, group):
    name = topic("idle", partitions=2, records=10)
    frame = stream(spark, kafka, name, kafka_group_id=group, startingOffsets="earliest")
    with running(to_files(frame, tmp_path).start()):
        wait_until(lambda: committed(groups, group, name) == 10, "the last batch's offsets in the group")
        description = groups.describe(group)
        assert description.state == "Stable"
        assert sorted(tp.partition for member in description.members for tp in member.partitions) == [0, 1]


def test_latest_in_a_group_survives_a_stop_before_the_first_record(spark, kafka, topic, groups, tmp_path, group):
    name = topic("first", partitions=1, records=5)
    with running(to_files(stream(spark, kafka, name, kafka_group_id=group), tmp_path / "one").start()):
        wait_until(lambda: committed(groups, group, name) == 5, "the starting position in the group")
    produce(kafka.bootstrap_servers, name, 5, first=5)
    run_to_end(to_files(stream(spark, kafka, name, kafka_group_id=group), tmp_path / "two"))
    assert written(tmp_path / "two" / "out") == list(range(5, 10))


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_tasks_can_commit(spark, kafka, topic, groups, tmp_path, transactional, group):
    name = topic("tasks", partitions=2, records=10)
    options = {"commit": "task", "commit_transactional": transactional, "startingOffsets": "earliest"}
    run_to_end(to_files(stream(spark, kafka, name, kafka_group_id=group, **options), tmp_path))
    wait_until_committed(groups, group, 10)


def test_more_slots_than_partitions_and_fewer(spark, kafka, topic, tmp_path):
    for members, partitions in ((4, 2), (2, 5)):
        name = topic("slots", partitions=partitions, records=30)
        options = {"kafka_group_id": f"{name}-group", "group_members": members, "startingOffsets": "earliest"}
        run_to_end(to_files(stream(spark, kafka, name, **options), tmp_path / name))
        assert written(tmp_path / name / "out") == list(range(30))


LITTLE_QUOTA = {"quota_bytes_per_second": 1_000_000}
IN_GROUP = {"group_members": 4}


@pytest.mark.parametrize(
    ("more", "tasks"),
    [
        *(({}, 1), ({"minPartitions": 4}, 4), (LITTLE_QUOTA, 1)),
        *((IN_GROUP, 1), ({**IN_GROUP, "min.records.per.task": 1}, 4), ({**IN_GROUP, **LITTLE_QUOTA}, 1)),
    ],
)
def test_partitions_and_slots_with_little_to_read_share_a_task(spark, kafka, topic, tmp_path, more, tasks):
    name = topic("little", partitions=4, records=200)
    group = {"kafka_group_id": f"{name}-group"} if "group_members" in more else {}
    frame = stream(spark, kafka, name, startingOffsets="earliest", **group, **more)
    with_task = frame.select("value", "partition", "offset", spark_partition_id().alias("task"))
    run_to_end(to_files(with_task, tmp_path))
    assert written(tmp_path / "out") == list(range(200))
    assert spark.read.parquet(str(tmp_path / "out")).select("task").distinct().count() == tasks


def test_the_checkpoint_holds_ranges_and_slots_and_no_secret(spark, kafka, topic, tmp_path):
    name = topic("checkpoint", partitions=2, records=10)
    options = {"kafka_group_id": f"{name}-group", "kafka_ssl_key_password": "hush-hush", "startingOffsets": "earliest"}
    run_to_end(to_files(stream(spark, kafka, name, **options), tmp_path))
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files
    assert all(b"hush-hush" not in path.read_bytes() for path in files)
    offset = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    assert offset["version"] == 1
    assert sum(end - begin for begin, end, _ in offset["partitions"][name].values()) == 10


def test_the_progress_shows_which_slot_has_read_what(spark, kafka, topic, tmp_path):
    name = topic("progress", partitions=4, records=40)
    options = {"kafka_group_id": f"{name}-group", "group_members": 2, "startingOffsets": "earliest"}
    query = run_to_end(to_files(stream(spark, kafka, name, **options), tmp_path))
    (source,) = next(p for p in query.recentProgress if p["numInputRows"])["sources"]
    offset = source["endOffset"] if isinstance(source["endOffset"], dict) else json.loads(source["endOffset"])
    assert offset["generation"] >= 1
    assert offset["slots"] == 2
    assert {int(p): slot for p, (_, _, slot) in offset["partitions"][name].items()} == {0: 0, 1: 0, 2: 1, 3: 1}
    assert sum(end - start for start, end, _ in offset["partitions"][name].values()) == source["numInputRows"] == 40
