"""Mistakes that users make: each is told in one line, within seconds."""

from __future__ import annotations

import time

import pytest

from tests.support import reader, stream

SECONDS = 30


def reason(caught) -> str:
    """The line of an error that Spark wraps our message in."""
    return next(line for line in str(caught.value).splitlines() if "kafka_source" in line and "Error" in line)


def test_a_wrong_option_is_named_when_the_query_is_planned(spark, kafka, topic):
    with pytest.raises(Exception, match=r"Option startingOffsets got 'newest'; it takes") as caught:
        reader(spark, kafka, topic(), startingOffsets="newest").load().collect()
    assert "startingOffsets" in reason(caught)


def test_an_unknown_topic_is_named(spark, kafka):
    began = time.monotonic()
    with pytest.raises(Exception, match="Topic nowhere does not exist"):
        reader(spark, kafka, "nowhere").load().collect()
    with pytest.raises(Exception, match="Topic nowhere does not exist"):
        reader(spark, kafka, "nowhere", kafka_group_id="g").load().collect()
    assert time.monotonic() - began < 2 * SECONDS


def test_a_dead_bootstrap_server_is_named(spark):
    began = time.monotonic()
    source = spark.read.format("kafkagroup").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t")
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers=127\.0\.0\.1:9"):
        source.load().collect()
    assert time.monotonic() - began < SECONDS


def test_a_stream_tells_the_same(spark, kafka, tmp_path):
    query = (
        stream(spark, kafka, "nowhere", kafka_group_id="g")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(Exception, match="Topic nowhere does not exist"):
        query.awaitTermination(SECONDS)
