"""What the pictures show, computed from samples."""

import math

import pytest

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.driver_figures import Commit
from kafkagroup.metrics import PartitionSample, Sample
from kafkagroup.plots.figures_over_time import (
    Held,
    edges_of,
    holds_of,
    lag_rows,
    latencies_of,
    of_one_source,
    partitions_of,
    rates_of,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def sample(at: float, partitions: dict[TopicPartition, PartitionSample], **more: object) -> Sample:
    given: dict[str, object] = {"query": "q", "source": 0, "quota": {}, **more}
    return Sample(
        at=at, query_id="i", run_id="r", batch=int(at), group="g", generation=1, rows=0, seconds=1.0,
        partitions=partitions, **given,  # type: ignore[arg-type]
    )  # fmt: skip


def test_lag_is_unknown_where_the_query_did_not_have_the_partition() -> None:
    samples = [
        sample(0, {A: PartitionSample(0, 5, 0, 9, 1.0), B: PartitionSample(0, 1, 1, 1, 0.0)}),
        sample(1, {A: PartitionSample(5, 9, 0, 9, 0.0)}),
    ]
    assert partitions_of(samples) == [A, B]
    of_a, of_b = lag_rows(samples)
    assert of_a == [4.0, 0.0]
    assert of_b[0] == 0.0
    assert math.isnan(of_b[1])


def test_the_last_micro_batch_lasts_as_long_as_the_others() -> None:
    nothing: dict[TopicPartition, PartitionSample] = {}
    assert edges_of([sample(at, nothing) for at in (0, 10, 20)]) == [0, 10, 20, 30]
    assert edges_of([sample(5, nothing)]) == [5, 6]


def test_rates_of_reading_and_writing_and_bytes_of_the_quota() -> None:
    def quota(total: int, used: float) -> dict[str, object]:
        slots = {"0": {"bytes": total}}
        return {"slots": slots, "usedPercent": used, "recordsPerSecond": 5.0, "bytesPerSecond": None}

    rates = rates_of(
        [
            sample(0, {A: PartitionSample(0, 20, 0, 30, 0.0)}, quota=quota(0, 40.0)),
            sample(10, {A: PartitionSample(20, 60, 0, 80, 0.0)}, quota=quota(1000, 100.0)),
            sample(20, {A: PartitionSample(60, 80, 0, 80, 0.0)}, quota=quota(500, 40.0)),
        ]
    )
    assert rates.read == [2.0, 4.0, 2.0]
    assert rates.written == [0.0, 5.0, 0.0]
    # The account of a driver that was started again begins at 0.
    assert rates.bytes == [100.0, 50.0, None]
    assert rates.throttled == [False, True, False]
    assert (rates.quota_records[0], rates.quota_bytes[0]) == (5.0, None)


def test_a_partition_that_changes_its_slot_or_goes_ends_a_bar() -> None:
    def held(slot: int) -> PartitionSample:
        return PartitionSample(0, 0, slot, 0, 0.0)

    samples = [
        sample(0, {A: held(0), B: held(1)}),
        sample(1, {A: held(0)}),
        sample(2, {A: held(1)}),
        sample(3, {A: held(1), B: held(1)}),
    ]
    assert holds_of(samples) == [Held(A, 0, 0, 2), Held(A, 1, 2, 4), Held(B, 1, 0, 1), Held(B, 1, 3, 4)]


def test_latency_is_from_the_production_of_each_record_to_the_commit_of_its_micro_batch() -> None:
    def commit(at: float) -> tuple[Commit, ...]:
        return (Commit(round(at * 1000), 5.0),)

    found = latencies_of(
        [
            sample(0, {A: PartitionSample(0, 100, 0, 100, 0.0)}),
            sample(10, {A: PartitionSample(100, 200, 0, 200, 0.0)}, commits=commit(10.5)),
            sample(20, {A: PartitionSample(200, 200, 0, 200, 0.0)}, commits=commit(20.5)),
        ]
    )
    # The first micro-batch is from before the first sample, and the third has no records.
    (only,) = found
    assert only.at == 20.5
    assert only.oldest == pytest.approx(20.5)
    assert only.newest == pytest.approx(20.5 - 9.5)
    assert only.newest < only.median < only.oldest


def test_without_commits_of_the_driver_there_is_no_latency() -> None:
    assert latencies_of([sample(at, {A: PartitionSample(0, 10, 0, 10, 0.0)}) for at in range(3)]) == []


def test_of_several_queries_the_one_with_the_most_samples_is_drawn() -> None:
    nothing: dict[TopicPartition, PartitionSample] = {}
    samples = [sample(2, nothing), sample(1, nothing), sample(1, nothing, query="other")]
    assert [one.at for one in of_one_source(samples, None, None)] == [1, 2]
    assert [one.query for one in of_one_source(samples, "other", 0)] == ["other"]
    assert len(of_one_source(samples, "i", None)) == 2  # by its id, which both queries have
    with pytest.raises(
        InvalidConfigurationError, match=r"no samples of third. There are samples of: other source 0, q"
    ):
        of_one_source(samples, "third", None)
    with pytest.raises(InvalidConfigurationError, match=r"no samples of any query\."):
        of_one_source([], None, None)
