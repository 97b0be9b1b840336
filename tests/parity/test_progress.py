"""`kafkagroup.progress` gives the figures that Spark's own source reports."""

import pytest

from kafkagroup.progress import LagListener, SourceLag, lag_of
from tests.parity.formats import ALL, OURS, SPARK, Formats
from tests.support.waiting import wait_until


@pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "test custom metrics - with rate limit")
@pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "test custom metrics - no rate limit")
@pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "test custom metrics - corner cases")
@pytest.mark.forced("a Python source cannot report metrics; a listener makes them from the progress")
def test_the_lag_is_that_of_sparks_source(formats: Formats) -> None:
    name = formats.topic("lag", range(10), range(10, 15))
    heard: list[SourceLag] = []
    listener = LagListener(heard.append)
    formats.spark.streams.addListener(listener)
    found: dict[str, list[dict[str, str]]] = {}
    try:
        for one in ALL:
            frame = formats.stream_of(
                one, {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 6}
            )
            writer = frame.writeStream.format("noop").queryName(f"lag_{one}")
            query = writer.option("checkpointLocation", str(formats.folder / one)).start()
            query.processAllAvailable()
            query.stop()
            batches = {p.batchId: p for p in query.recentProgress if p.numInputRows}
            found[one] = [lag.metrics for _, p in sorted(batches.items()) for lag in lag_of(p)]
            if one == SPARK:
                spark_says = [dict(p.sources[0].metrics) for _, p in sorted(batches.items())]
                assert found[one] == spark_says
        assert len(found[SPARK]) == 3
        assert found[SPARK][-1] == {
            "minOffsetsBehindLatest": "0",
            "maxOffsetsBehindLatest": "0",
            "avgOffsetsBehindLatest": "0.0",
        }
        assert all(found[one] == found[SPARK] for one in OURS)
        wait_until(lambda: {f"lag_{one}" for one in ALL} <= {lag.query for lag in heard}, "the listener")
    finally:
        formats.spark.streams.removeListener(listener)


@pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "SPARK-57438: estimated bytes behind latest")
@pytest.mark.forced("a Python source cannot report metrics; a listener makes them from the progress")
def test_bytes_are_estimated_where_the_size_of_an_offset_is_known(formats: Formats) -> None:
    name = formats.topic("bytes", range(10))
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    frame = formats.stream_of(OURS[0], {**options, "quota.bytes.per.second": 1_000_000})
    query = frame.writeStream.format("noop").option("checkpointLocation", str(formats.folder / "bytes")).start()
    query.processAllAvailable()
    query.stop()
    first, last = (p for p in query.recentProgress if p.numInputRows)
    assert "estimatedTotalBytesBehindLatest" not in lag_of(first)[0].metrics, "nothing was fetched before"
    assert lag_of(first, bytes_per_offset=100.0)[0].metrics["estimatedTotalBytesBehindLatest"] == "500.0"
    assert lag_of(last)[0].bytes_per_offset
    assert lag_of(last)[0].metrics["estimatedTotalBytesBehindLatest"] == "0.0"
