"""Other consumers of the group beside a running stream: they share its partitions and hand them over."""

import pytest

from kafkagroup.embedded.jars import broker_version
from tests.apps.process import java_consumer
from tests.support.records import produce, stream, to_files, written
from tests.support.waiting import wait_until

HAS_CONSUMER_PROTOCOL = pytest.mark.skipif(int(broker_version().split(".")[0]) < 4, reason="Kafka has it from 4.0 on")
PARTITIONS = 4
SETTINGS: dict[str, dict[str, object]] = {
    "classic": {"kafka_session_timeout_ms": 10_000, "kafka_heartbeat_interval_ms": 300},
    "consumer": {"kafka_group_protocol": "consumer"},
}


@pytest.fixture
def name(topic):
    return topic("shared", partitions=PARTITIONS)


@pytest.fixture
def protocol():
    """Of the group; tests have it as a parameter."""
    return "classic"


@pytest.fixture
def query(spark, kafka, name, protocol, tmp_path):
    options = {"startingOffsets": "earliest", "group_members": 2, **SETTINGS[protocol]}
    frame = stream(spark, kafka, name, kafka_group_id=f"{name}-group", **options)
    running = to_files(frame, tmp_path).start()
    yield running
    running.stop()


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=HAS_CONSUMER_PROTOCOL)])
def test_a_java_consumer_shares_the_partitions_and_gives_them_back(kafka, name, query, protocol, tmp_path):
    produce(kafka.bootstrap_servers, name, 200)
    wait_until(lambda: len(written(tmp_path / "out")) == 200, "the stream to read the first records")
    strategy = "range" if protocol == "classic" else protocol
    with java_consumer(tmp_path, kafka.bootstrap_servers, f"{name}-group", name, strategy=strategy) as java:
        java.wait_for("assigned shared")
        produce(kafka.bootstrap_servers, name, 200, first=200)

        def theirs():
            return [int(line.split()[-1]) for line in java.lines() if line.startswith("record")]

        wait_until(lambda: len(theirs()) + len(written(tmp_path / "out")) >= 400, "all records to be read by both")
        assert theirs()
        java.stop()
    produce(kafka.bootstrap_servers, name, 200, first=400)
    wait_until(lambda: len(written(tmp_path / "out")) + len(theirs()) >= 600, "the stream to read all partitions again")
    query.stop()
    assert sorted([*written(tmp_path / "out"), *theirs()]) == list(range(600))
