"""What happens between two micro-batches: a stream's planner, asked as Spark asks it, with a real group behind it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.schema import source_schema
from kafka_source.source import group_member_owner, read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import TaskBundle
from kafka_source.source.stream import StreamReaderSpark40
from kafkagroup.admin import Groups
from tests.support.memberships import held, rejoin_until_joined
from tests.support.queries import Job, query_of
from tests.support.records import add_partitions, open_transaction, produce, send
from tests.support.waiting import wait_until, wait_until_committed

Start = Callable[..., MicroBatches]

QUICK = {"kafka_metadata_max_age_ms": 300, "min.records.per.task": 1}
QUICK_MEMBER = {"group_members": 1, "kafka_heartbeat_interval_ms": 200, "rebalance_batch_ms": 300}


@pytest.fixture
def start(kafka, opened) -> Start:
    """Starts planners; options with _ for . in their names."""

    def one(**options: object) -> MicroBatches:
        quick = {**QUICK, **(QUICK_MEMBER if "kafka_group_id" in options else {})}
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **quick, **options}
        planner = MicroBatches(query_of(given))
        opened.callback(planner.close)
        return planner

    return one


def after(planner: MicroBatches, before: StreamOffset) -> StreamOffset:
    """The next micro-batch that reads anything."""

    def there() -> StreamOffset | None:
        end = planner.next(before, limited=True)
        return end if ranges(planner, before, end) else None

    found = wait_until(there, "something to read")
    assert isinstance(found, StreamOffset)
    return found


def ranges(planner: MicroBatches, before: StreamOffset, end: StreamOffset) -> list[Range]:
    """What the tasks of a micro-batch read."""
    return sorted(r for bundle in planner.tasks(before, end) for task in bundle.tasks for r in task.ranges)


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("commit", ["batch", "task"])
@pytest.mark.parametrize("starting", [None, '{"%s": {"0": -1}}'])
def test_a_partition_that_is_added_to_an_idle_query_is_read_from_its_first_record(
    kafka, topic, group, start, starting, commit, stopped
):
    name = topic("idle", partitions=1, records=5)
    given = {} if starting is None else {"startingOffsets": starting % name}
    planner = start(subscribe=name, kafka_group_id=group, commit=commit, **given)
    # An empty batch keeps in the checkpoint where the query has started.
    before = planner.next(StreamOffset(), limited=True)
    assert before.ends == {TopicPartition(name, 0): 5}
    assert ranges(planner, StreamOffset(), before) == []
    assert planner.next(before, limited=True) is before
    if stopped:
        planner.close()
    add_partitions(kafka, name, 2)
    send(kafka, name, range(50), 1)
    if stopped:
        planner = start(subscribe=name, kafka_group_id=group, commit=commit, **given)
    assert ranges(planner, before, after(planner, before)) == [Range(name, 1, 0, 50, epoch=0)]


def test_a_query_waits_for_others_that_may_take_longer_than_itself(topic, members, group, start, monkeypatch, caplog):
    name = topic("patient", partitions=2)
    busy = members.make(name, app="busy", slots=1)
    busy.join(30)
    monkeypatch.setattr(group_member_owner, "_JOIN_MARGIN_MS", 0)
    planner = start(subscribe=name, kafka_group_id=group, kafka_max_poll_interval_ms=1_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(planner.next, StreamOffset(), limited=True)
        wait_until(lambda: caplog.text.count("keeps waiting") >= 2 or waiting.done(), "the query's patience")
        assert not waiting.done()
        # An attempt of the query may end at this moment, and its next one begins another rebalance.
        rejoin_until_joined(busy, waiting)
    assert len(held(busy)) == 1


def test_a_position_behind_the_last_stable_offset_is_no_loss_of_data(kafka, topic, start):
    name = topic("open", partitions=1)
    producer = open_transaction(kafka.bootstrap_servers, name, name, map(str, range(10)))
    planner = start(subscribe=name, startingOffsets=f'{{"{name}": {{"0": 4}}}}', kafka_isolation_level="read_committed")
    before = planner.next(StreamOffset(), limited=True)
    assert before.ends == {TopicPartition(name, 0): 4}
    assert planner.next(before, limited=True) is before
    producer.commit_transaction(60)
    assert ranges(planner, before, after(planner, before)) == [Range(name, 0, 4, 11, epoch=0)]


def test_the_reader_for_spark_before_42_continues_at_the_batch_that_spark_asks_for_after_a_restart(kafka, topic):
    name = topic("spark40", partitions=1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4",
    }

    def planned(reader: StreamReaderSpark40, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
        bundles = [one for one in reader.partitions(start, end) if isinstance(one, TaskBundle)]
        return [(r.start, r.end) for bundle in bundles for task in bundle.tasks for r in task.ranges]

    def run_twice() -> None:
        first = StreamReaderSpark40(options, source_schema(headers=False))
        start = first.initialOffset()
        end = first.latestOffset()
        assert planned(first, start, end) == [(0, 4)]
        assert planned(first, end, later := first.latestOffset()) == [(4, 6)]
        assert first.latestOffset() == later
        first.stop()
        second = StreamReaderSpark40(options, source_schema(headers=False))
        assert planned(second, end, end) == []
        assert planned(second, end, second.latestOffset()) == [(4, 6)]
        second.stop()

    produce(kafka.bootstrap_servers, name, 6)
    # In the main thread a reader handles SIGTERM, which is the test process's own here.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run_twice).result(120)


def test_nothing_is_committed_or_rejoined_for_a_batch_of_another_cluster(start, topic, kafka):
    name = topic("moved", records=10)
    planner = start(subscribe=name, kafka_group_id=f"{name}-group", startingOffsets="earliest")
    end = after(planner, StreamOffset())
    with pytest.raises(InvalidConfigurationError, match="cluster"):
        planner.next(replace(end, cluster="another"), limited=True)
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    wait_until_committed(groups, f"{name}-group", dict.fromkeys(end.partitions, 0))


@pytest.mark.parametrize(
    "before",
    [
        {"commit": "task", "group_members": 4},
        {"commit": "batch", "group_members": 2, "minPartitions": 8},
        {"group_membership": "false"},
    ],
)
def test_tasks_that_commit_a_batch_that_was_planned_otherwise_do_not_fence_each_other(
    kafka, topic, group, groups, before
):
    name = topic("planned-otherwise", partitions=4, records=400)
    job = Job(kafka, group, subscribe=name, min_records_per_task=1)
    planner = job.planner(**before)
    end = planner.next(StreamOffset(), limited=True)
    planner.close()
    now: dict[str, object] = {"commit": "task", "group_members": 2}
    planner, query = job.planner(**now), job.query(now)
    with closing(planner):
        bundles = planner.tasks(StreamOffset(), end)
        # As Spark runs them: at the same time.
        running = [read_task.read_bundle(one, query) for one in bundles]
        begun = [next(one) for one in running]
        batches = [*begun, *(batch for one in running for batch in one)]
    assert sorted(int(value.as_py()) for batch in batches for value in batch["value"]) == list(range(400))
    wait_until_committed(groups, group, 400)
