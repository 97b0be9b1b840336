"""What a query's progress shows of a Kafka source."""

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import DriverFigures
from kafka_source.model.halt import Halt, HaltKind
from kafka_source.model.stream_offset import Span
from kafkagroup.progress import StopListener, lag_of, sources_of
from tests.support.progresses import START, end_of, progress_of

TP = TopicPartition("orders", 0)


def progress(end: str, latest: str | None = None) -> StreamingQueryProgress:
    source = SimpleNamespace(startOffset=None, endOffset=end, latestOffset=latest)
    return cast(StreamingQueryProgress, SimpleNamespace(sources=[source], timestamp="2026-11-23T02:20:00.123Z"))


# Through Spark Connect, pyspark 4.0 and 4.1 show an offset as `str(dict)`.
@pytest.mark.parametrize("shown", [json.dumps, str])
def test_the_offsets_of_a_source_are_found_as_each_pyspark_shows_them(shown: Callable[[object], str]) -> None:
    end = end_of({TP: Span(5, 10, 0)}, DriverFigures(1_000, "billing", latest={TP: 12}))
    (found,) = sources_of(progress(shown(end)))
    assert found.latest == {TP: 12}
    assert found.driver is not None
    assert found.driver.group == "billing"


def test_what_the_driver_tells_counts_where_spark_shows_the_end_as_the_latest_offset() -> None:
    end = json.dumps(end_of({TP: Span(5, 10, 0)}, DriverFigures(1_000, "billing", latest={TP: 12})))
    (found,) = sources_of(progress(end, latest=end))
    assert found.behind == {TP: 2}


@pytest.mark.parametrize("shown", ["", "null", "{", "nonsense", "{'a': open('x')}"])
def test_what_is_no_offset_is_no_kafka_source(shown: str) -> None:
    assert sources_of(progress(shown)) == []


def test_figures_are_new_in_the_trigger_that_planned_the_micro_batch_and_no_more_in_its_replay() -> None:
    start = end_of({TP: Span(0, 10, 0)}, DriverFigures(round((START + 10) * 1000), "billing"))
    end = end_of({TP: Span(10, 20, 0)}, DriverFigures(round((START + 20) * 1000), "billing", bad_records=3))
    shown = [progress_of(batch, end, {TP: 20}, start=start) for batch in (2, 3)]
    assert [lag.bad_records for one in shown for lag in lag_of(one)] == [3, None]
    assert [source.has_read for one in shown for source in sources_of(one)] == [True, True]


@pytest.mark.parametrize(("batch", "ends"), [(1, True), (360, False)], ids=["stopped", "replayed after a resume"])
def test_a_query_ends_by_a_stop_and_not_by_its_replay_after_a_resume(batch: int, ends: bool) -> None:
    halt = Halt(HaltKind.STOP, "ann@here", round(START * 1000))
    start = end_of({TP: Span(0, 10, 0)}, DriverFigures(round(START * 1000), "billing"))
    end = end_of({TP: Span(10, 10, 0)}, DriverFigures(round((START + 10) * 1000), "billing", halt=halt))
    stopped = threading.Event()
    streams = SimpleNamespace(get=lambda _: SimpleNamespace(stop=stopped.set))
    event = SimpleNamespace(progress=progress_of(batch, end, {TP: 10}, start=start, rows=0))
    StopListener(cast(SparkSession, SimpleNamespace(streams=streams))).onQueryProgress(cast(QueryProgressEvent, event))
    assert stopped.wait(10 if ends else 0.2) is ends
