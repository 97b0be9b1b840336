"""What a query's progress shows of a Kafka source."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import DriverFigures
from kafka_source.model.stream_offset import Span
from kafkagroup.progress import sources_of
from tests.support.progresses import end_of

TP = TopicPartition("orders", 0)


def progress(end: str, latest: str | None = None) -> StreamingQueryProgress:
    source = SimpleNamespace(startOffset=None, endOffset=end, latestOffset=latest)
    return cast(StreamingQueryProgress, SimpleNamespace(sources=[source]))


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
