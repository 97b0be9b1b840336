"""The words earliest and latest stay in the plan of a batch, and a task replaces them by the offsets of its time."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group.model import subscription_of
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.options import Where, read_options
from kafka_source.source.owners import PartitionOwner
from kafka_source.source.plan import mark_late_bounds, plan, spans
from kafka_source.source.read_task import has_late_bounds, is_unbound, resolve_late_bounds
from kafka_source.source.start_and_end import BatchBounds, resolve_batch
from tests.support.fake_broker import TOPIC, FakeBroker, Partition

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with closing(FakeBroker()) as broker:
        broker.partitions = {0: Partition(end=7), 1: Partition(end=3)}
        with closing(Cluster(Settings({"bootstrap.servers": broker.bootstrap_servers}))) as asked:
            yield asked


def marked(bounds: BatchBounds, pieces: int | None = None) -> list[Range]:
    end = StreamOffset(spans(bounds.starts, bounds.ends, {}, {}), min_partitions=pieces)
    return [r for one in mark_late_bounds(plan(end), bounds) for r in one.ranges]


def bounds(*, late_starts: bool = True, late_ends: bool = True, start: int = 2, end: int = 8) -> BatchBounds:
    both = frozenset({FIRST})
    return BatchBounds(
        {FIRST: start}, {FIRST: end}, both if late_starts else frozenset(), both if late_ends else frozenset()
    )


def test_a_whole_partition_is_late_at_both_ends() -> None:
    (one,) = marked(bounds())
    assert one == Range(TOPIC, 0, 2, 8, from_earliest=True, to_latest=True)
    assert is_unbound([one])


def test_each_piece_skips_deleted_records_and_the_last_ends_late() -> None:
    assert marked(bounds(), pieces=3) == [
        Range(TOPIC, 0, 2, 4, from_earliest=True),
        Range(TOPIC, 0, 4, 6, skip_deleted=True),
        Range(TOPIC, 0, 6, 8, skip_deleted=True, to_latest=True),
    ]


def test_an_empty_partition_is_read_if_its_end_is_late() -> None:
    assert marked(bounds(start=8)) == [Range(TOPIC, 0, 8, 8, from_earliest=True, to_latest=True)]
    assert marked(bounds(start=8, late_ends=False)) == []


@given(st.booleans(), st.booleans(), st.integers(0, 5), st.integers(5, 9), st.none() | st.integers(1, 4))
def test_without_a_late_bound_nothing_is_looked_up(start, end, low, high, pieces):
    found = marked(bounds(late_starts=start, late_ends=end, start=low, end=high), pieces)
    assert has_late_bounds(found) == ((start or end) and bool(found))
    assert sum(r.size for r in found) == high - low


def test_a_task_reads_to_the_latest_offset_of_its_time(cluster: Cluster) -> None:
    late = [Range(TOPIC, 0, 2, 4, from_earliest=True, to_latest=True), Range(TOPIC, 1, 1, 2, skip_deleted=True)]
    assert resolve_late_bounds(late, cluster, read_committed=False) == (Range(TOPIC, 0, 0, 7), Range(TOPIC, 1, 1, 2))


@pytest.mark.parametrize("strategy", ["latest", "error"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("time", range(9))
def test_a_start_by_time_is_not_beyond_the_latest_offset(
    broker: FakeBroker, time: int, isolation: str, strategy: str
) -> None:
    """Offset 5 is the first of an open transaction."""
    broker.partitions = {0: Partition(end=7, held_back=2)}
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.isolation.level": isolation,
        "subscribe": TOPIC,
        "startingTimestamp": str(time),
        "startingOffsetsByTimestampStrategy": strategy,
    }
    options, latest = read_options(given, Where.BATCH), 5 if isolation == "read_committed" else 7
    with closing(Cluster.of(options)) as cluster:
        owner = PartitionOwner(cluster, subscription_of(options))
        resolve = partial(resolve_batch, cluster, options, owner, [FIRST], subscribed=[FIRST], check_all=False)
        if strategy == "error" and time >= latest:
            with pytest.raises(InvalidConfigurationError, match="No record of"):
                resolve()
            return
        (one,) = mark_late_bounds(plan(StreamOffset(spans((found := resolve()).starts, found.ends, {}, {}))), found)
        (late,) = resolve_late_bounds(one.ranges, cluster, read_committed=options.read_committed)
    assert (late.start, late.end) == (min(time, latest), latest)


def test_a_given_start_beyond_the_latest_offset_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"\[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\].*orders-1"):
        resolve_late_bounds([Range(TOPIC, 1, 4, 4, to_latest=True)], cluster, read_committed=False)
