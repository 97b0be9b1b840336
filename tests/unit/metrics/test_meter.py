"""From the progress of a query to the figures of each metric."""

import pytest

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import Commit, DriverFigures, Rebalance, RebalanceCause
from kafka_source.model.halt import Halt, HaltKind
from kafka_source.model.stream_offset import Span
from kafkagroup.metrics import Sample, catalog
from kafkagroup.metrics.catalog import Kind, Metric
from kafkagroup.metrics.exporter import Update
from kafkagroup.metrics.meter import QueryMeter
from kafkagroup.progress import lag_of
from tests.support.progresses import START, end_of, progress_of

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
LABELS = ("orders", "0", "billing")


def figures(batch: int, **more: object) -> DriverFigures:
    return DriverFigures(round((START + 10 * batch) * 1000), "billing", **more)  # type: ignore[arg-type]


def found(update: Update, metric: Metric) -> dict[tuple[str, ...], float]:
    return {p.series.values: p.value for p in update.points if p.series.metric is metric}


def happened(update: Update) -> dict[tuple[str, ...], float]:
    return {labels: count for labels, count in found(update, catalog.REBALANCES).items() if count}


FIRST = end_of({A: Span(0, 60, 0), B: Span(0, 100, 1)}, figures(0))
SECOND = end_of({A: Span(60, 160, 0), B: Span(100, 100, 1)}, figures(1))


def test_lag_position_and_records_of_each_partition() -> None:
    meter = QueryMeter("orders")
    meter.progress(progress_of(0, FIRST, {A: 100, B: 100}), START)
    update = meter.progress(progress_of(1, SECOND, {A: 200, B: 100}, start=FIRST), START + 10)
    a, b = (*LABELS, "0", "orders", "0"), (*LABELS, "1", "orders", "1")
    assert found(update, catalog.LAG_RECORDS) == {a: 40, b: 0}
    assert found(update, catalog.POSITION) == {a: 160, b: 100}
    assert found(update, catalog.END_OFFSET) == {a: 200, b: 100}
    assert found(update, catalog.RECORDS) == {a: 100, b: 0}
    # 100 records came in the 10 s between the two looks; the 60th of them, offset 160, came after 6 s.
    assert found(update, catalog.LAG_SECONDS) == {a: pytest.approx(4.0), b: 0}
    assert found(update, catalog.ASSIGNED) == {(*LABELS, "0"): 1, (*LABELS, "1"): 1}
    assert found(update, catalog.GENERATION) == {LABELS: 7}
    assert found(update, catalog.INPUT_ROWS) == {("orders", "0"): 10}
    assert found(update, catalog.TRIGGER) == {("orders",): 0.9}
    assert found(update, catalog.PHASES) == {("orders", "addBatch"): 0.7, ("orders", "latestOffset"): 0.1}


def test_a_look_counts_from_the_last_finished_batch_to_the_newest_end() -> None:
    meter = QueryMeter("orders", looks=True)
    assert meter.look("c", {A: 100}, START) == Update()
    end = end_of({A: Span(0, 100, 0), B: Span(0, 100, 1)}, figures(0))
    update = meter.progress(progress_of(0, end, {A: 100, B: 100}), START + 1)
    assert found(update, catalog.LAG_RECORDS) == found(update, catalog.LAG_SECONDS) == {}
    assert found(update, catalog.LAG_TIME) == {LABELS: START}
    a, b = (*LABELS, "0", "orders", "0"), (*LABELS, "1", "orders", "1")
    # One end is unknown, and so is the lag of its partition.
    update = meter.look(None, {A: 150}, START + 5)
    assert found(update, catalog.LAG_RECORDS) == {a: 50}
    assert found(update, catalog.LAG_TIME) == {LABELS: START}
    update = meter.look(None, {A: 200, B: 100}, START + 15)
    assert found(update, catalog.LAG_RECORDS) == {a: 100, b: 0}
    assert found(update, catalog.LAG_SECONDS) == {a: 15, b: 0}
    assert found(update, catalog.LAG_TIME) == {LABELS: START + 15}
    # The next micro-batch was planned before that look, with fewer records.
    second = end_of({A: Span(100, 180, 0), B: Span(100, 100, 1)}, figures(1))
    update = meter.progress(progress_of(1, second, {A: 180, B: 100}, start=end), START + 20)
    assert found(update, catalog.LAG_RECORDS) == {a: 20, b: 0}
    assert found(update, catalog.LAG_TIME) == {LABELS: START + 15}
    assert [one.lag for one in update.samples[0].partitions.values()] == [0, 0]


def test_commits_and_rebalances_of_the_driver_are_counted_once() -> None:
    rebalance = Rebalance(1, 7, RebalanceCause.MEMBERS, "somebody joined", 1500, 3, ("b-0",), (), (), (B,))
    told = figures(0, commits=(Commit(1, 20.0), Commit(2, 40.0)), failed_commits=2, rebalances=(rebalance,))
    end = end_of({A: Span(0, 60, 0)}, told)
    meter = QueryMeter("orders")
    update = meter.progress(progress_of(0, end, {A: 100}), START)
    assert [p.value for p in update.points if p.series.metric is catalog.COMMIT_LATENCY] == [0.02, 0.04]
    assert found(update, catalog.COMMIT_FAILURES) == {LABELS: 2}
    assert happened(update) == {(*LABELS, "members"): 1}
    # Prometheus sees no increase in a series that begins with 1.
    assert {labels[-1] for labels in found(update, catalog.REBALANCES)} == {cause.value for cause in RebalanceCause}
    assert found(update, catalog.REBALANCE_LATENCY) == {LABELS: 1.5}
    # A stateful query also runs micro-batches without records: these end where the last one ended.
    again = meter.progress(progress_of(1, end, {A: 100}, start=end, rows=0), START + 10)
    assert happened(again) == {}
    assert found(again, catalog.COMMIT_FAILURES) == {LABELS: 0}
    assert found(again, catalog.RECORDS) == {(*LABELS, "0", "orders", "0"): 0}
    assert found(again, catalog.LAG_RECORDS) == {(*LABELS, "0", "orders", "0"): 40}


def test_bad_records_are_counted_from_0_and_once_and_only_of_queries_that_go_on_after_them() -> None:
    meter = QueryMeter("orders")
    ends = [end_of({A: Span(0, end, 0)}, figures(n, bad_records=bad)) for n, end, bad in ((0, 60, 0), (1, 99, 3))]
    update = meter.progress(progress_of(0, ends[0], {A: 100}), START)
    assert found(update, catalog.BAD_RECORDS) == {LABELS: 0}
    progress = progress_of(1, ends[1], {A: 100}, start=ends[0])
    update = meter.progress(progress, START + 10)
    assert found(update, catalog.BAD_RECORDS) == {LABELS: 3}
    assert [lag.metrics["badRecords"] for lag in lag_of(progress)] == ["3"]
    (sample,) = update.samples
    assert Sample.from_json(sample.to_json()) == sample
    # A micro-batch without new records shows the offset of the one before.
    again = progress_of(2, ends[1], {A: 100}, start=ends[1])
    assert found(meter.progress(again, START + 20), catalog.BAD_RECORDS) == {}
    others = progress_of(0, FIRST, {A: 100, B: 100})
    assert found(QueryMeter("orders").progress(others, START), catalog.BAD_RECORDS) == {}
    assert "badRecords" not in lag_of(others)[0].metrics


def test_a_group_that_is_paused_or_stopped_is_told_from_one_that_stalls() -> None:
    meter, before = QueryMeter("orders"), None
    for batch, halt in enumerate((None, Halt(HaltKind.PAUSE, "ann@here", 0), None)):
        # The second one is a micro-batch of a stateful query without new records.
        end = end_of({A: Span(0, 60, 0)}, figures(2 * batch, halt=halt))
        for number, start in ((2 * batch, before), (2 * batch + 1, end)):
            update = meter.progress(progress_of(number, end, {A: 100}, start=start), START)
            assert found(update, catalog.HALTED) == {LABELS: halt is not None}
            (sample,) = update.samples
            assert Sample.from_json(sample.to_json()) == sample
        before = end


def throttled(by: str) -> tuple[str, ...]:
    return (*LABELS, "0", by)


def quota(size: int, delay_ms: int) -> dict[str, object]:
    return {
        "bytesPerSecond": 1000.0,
        "recordsPerSecond": None,
        "usedPercent": 50.0,
        "observedBytesPerSecond": 500,
        "observedRecordsPerSecond": 5,
        "slots": {"0": {"bytes": size, "records": 5, "delayMs": delay_ms, "throttleMs": 250}},
    }


def test_a_quotas_totals_are_counted_by_their_growth_also_after_a_restart_of_the_driver() -> None:
    meter, grown = QueryMeter("orders"), []
    before = None
    for batch, (size, delay) in enumerate([(1000, 100), (1500, 300), (200, 50)]):
        end = end_of({A: Span(batch, batch + 1, 0)}, figures(batch), quota(size, delay))
        update = meter.progress(progress_of(batch, end, {A: 100}, start=before), START)
        before = end
        slot = (*LABELS, "0")
        grown.append((found(update, catalog.BYTES)[slot], found(update, catalog.THROTTLE)[throttled("quota")]))
    assert grown == [(1000, 0.1), (500, pytest.approx(0.2)), (200, 0.05)]
    assert found(update, catalog.THROTTLE)[throttled("broker")] == 0
    assert found(update, catalog.QUOTA_USED) == {LABELS: 0.5}
    assert found(update, catalog.QUOTA_BYTES) == {LABELS: 1000.0}
    assert found(update, catalog.QUOTA_RECORDS) == {}


def test_a_batch_that_is_run_again_after_a_crash_brings_no_figures_of_the_run_before() -> None:
    rebalance = Rebalance(1, 7, RebalanceCause.MEMBERS, "somebody joined", 1500, 3, ("b-0",), (), (), (B,))
    halt = Halt(HaltKind.STOP, "ann@here", 0)
    told = figures(0, commits=(Commit(1, 20.0),), failed_commits=1, rebalances=(rebalance,), halt=halt)
    end = end_of({A: Span(0, 60, 0)}, told, quota(1000, 100))
    meter, restarted = QueryMeter("orders"), QueryMeter("orders")
    # The restart repeats the micro-batch in a trigger 10 s later.
    updates = [one.progress(progress_of(n, end, {A: 100}), START + 5) for n, one in enumerate((meter, restarted))]
    assert [found(update, catalog.HALTED)[LABELS] for update in updates] == [1, 0]
    assert [sum(found(update, catalog.BYTES).values()) for update in updates] == [1000, 0]
    assert [found(update, catalog.THROTTLE).get(throttled("quota"), 0) for update in updates] == [0.1, 0]
    assert [len(found(update, catalog.COMMIT_LATENCY)) for update in updates] == [1, 0]
    assert [found(update, catalog.COMMIT_FAILURES)[LABELS] for update in updates] == [1, 0]
    assert [happened(update) for update in updates] == [{(*LABELS, "members"): 1}, {}]
    # The new driver process counts from 0.
    following = end_of({A: Span(60, 90, 0)}, figures(2), quota(1200, 100))
    update = restarted.progress(progress_of(2, following, {A: 100}, start=end), START + 20)
    assert found(update, catalog.BYTES) == {(*LABELS, "0"): 1200}


def test_the_gauges_of_a_partition_that_moved_away_are_gone_and_its_counters_stay() -> None:
    meter = QueryMeter("orders")
    meter.progress(progress_of(0, FIRST, {A: 100, B: 100}), START)
    only_a = end_of({A: Span(60, 160, 0)}, figures(1))
    update = meter.progress(progress_of(1, only_a, {A: 200}, start=FIRST), START + 10)
    gone = {series.metric for series in update.gone if series.values[-1] == "1"}
    assert gone == {catalog.LAG_RECORDS, catalog.LAG_SECONDS, catalog.POSITION, catalog.END_OFFSET, catalog.ASSIGNED}


def test_a_query_that_ended_has_no_gauges() -> None:
    meter = QueryMeter("orders")
    shown = meter.progress(progress_of(0, FIRST, {A: 100, B: 100}), START)
    update = meter.terminated(failed=True)
    gauges = {p.series for p in shown.points if p.series.metric.kind is Kind.GAUGE}
    assert set(update.gone) == gauges
    assert found(update, catalog.TERMINATIONS) == {("orders", "true"): 1}


def test_before_spark_4_2_the_latest_offsets_are_those_of_the_driver() -> None:
    end = end_of({A: Span(0, 60, 0)}, figures(0, latest={A: 100}))
    progress = progress_of(0, end, None)
    update = QueryMeter("orders").progress(progress, START)
    assert found(update, catalog.LAG_RECORDS) == {(*LABELS, "0", "orders", "0"): 40}
    assert [lag.behind for lag in lag_of(progress)] == [{A: 40}]


def test_a_query_without_a_name_has_its_id() -> None:
    update = QueryMeter("?").progress(progress_of(0, FIRST, {A: 100, B: 100}, name=None), START)
    assert {p.series.values[0] for p in update.points} == {"00000000-0000-0000-0000-000000000001"}


def test_sparks_own_source_has_lag_and_no_group() -> None:
    progress = progress_of(0, {"orders": {"0": 60}}, {A: 100}, start={"orders": {"0": 0}})
    update = QueryMeter("orders").progress(progress, START)
    labels = ("orders", "0", "", "-1", "orders", "0")
    assert found(update, catalog.LAG_RECORDS) == {labels: 40}
    assert found(update, catalog.REBALANCES) == found(update, catalog.GENERATION) == {}


def test_a_sample_comes_back_from_its_json() -> None:
    rebalance = Rebalance(1, 7, RebalanceCause.LOST, "no heartbeat", 1500, None, (), ("b-0",), (A,), (B,))
    told = figures(0, commits=(Commit(1, 20.5),), failed_commits=1, rebalances=(rebalance,))
    end = end_of({A: Span(0, 60, 0), B: Span(0, 1, 1)}, told, quota(10, 20))
    (sample,) = QueryMeter("orders").progress(progress_of(0, end, {A: 100, B: 1}), START).samples
    assert Sample.from_json(sample.to_json()) == sample
    assert sample.at == START
    assert sample.partitions[A].lag == 40


def test_figures_of_the_driver_come_back_from_their_json_and_say_nothing_of_what_is_empty() -> None:
    full = figures(3, commits=(Commit(1, 2.0),), failed_commits=1, latest={A: 5, B: 7}, bad_records=0)
    assert DriverFigures.from_json(full.to_json()) == full
    assert full.to_json()["badRecords"] == 0
    assert figures(3).to_json() == {"at": round((START + 30) * 1000), "group": "billing"}
