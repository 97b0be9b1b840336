"""Other consumers of the group beside a running stream: they share its partitions and hand them over."""

from __future__ import annotations

import pytest

from tests.apps.confluent_consumer import ConfluentConsumer
from tests.apps.process import java_consumer, streaming_app
from tests.support import produce, until, written

PARTITIONS = 4
SETTINGS = {"kafka.session.timeout.ms": 10_000, "kafka.heartbeat.interval.ms": 300, "startingOffsets": "earliest"}


@pytest.fixture
def app(kafka, topic, tmp_path):
    name = topic("shared", partitions=PARTITIONS)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "group.members": 2,
        **SETTINGS,
    }
    with streaming_app(tmp_path, options) as running:
        running.topic, running.group = name, f"{name}-group"
        yield running


def test_a_java_consumer_shares_the_partitions_and_gives_them_back(kafka, app, tmp_path):
    produce(kafka.bootstrap_servers, app.topic, 200)
    until(lambda: len(written(tmp_path / "out")) == 200, "the stream to read the first records")
    with java_consumer(tmp_path, kafka.bootstrap_servers, app.group, app.topic) as java:
        java.wait_for("assigned shared")
        produce(kafka.bootstrap_servers, app.topic, 200, first=200)

        def theirs():
            return [int(line.split()[-1]) for line in java.lines() if line.startswith("record")]

        until(lambda: len(theirs()) + len(written(tmp_path / "out")) >= 400, "all records to be read by both")
        assert theirs()
        java.stop()
    produce(kafka.bootstrap_servers, app.topic, 200, first=400)
    until(lambda: len(written(tmp_path / "out")) + len(theirs()) >= 600, "the stream to read all partitions again")
    app.stop()
    assert sorted([*written(tmp_path / "out"), *theirs()]) == list(range(600))


@pytest.mark.long
def test_a_confluent_consumer_shares_the_partitions_and_gives_them_back(kafka, app, tmp_path):
    produce(kafka.bootstrap_servers, app.topic, 200)
    until(lambda: len(written(tmp_path / "out")) == 200, "the stream to read the first records")
    other = ConfluentConsumer(kafka.bootstrap_servers, app.group, app.topic)
    try:
        until(lambda: bool(other.assigned), "partitions for the confluent consumer")
        produce(kafka.bootstrap_servers, app.topic, 200, first=200)
        until(lambda: len(written(tmp_path / "out")) + len(other.records) >= 400, "all records to be read by both")
        assert other.records
    finally:
        other.close()
    produce(kafka.bootstrap_servers, app.topic, 200, first=400)
    until(lambda: len(written(tmp_path / "out")) + len(other.records) >= 600, "the stream to have all partitions again")
    app.stop()
    assert sorted([*written(tmp_path / "out"), *(value for _, _, value in other.records)]) == list(range(600))
