"""A stream with a `kafka.group.instance.id` of the user's: restarts, and another application with the same one."""

import json
from contextlib import closing

from kafka_source.model.stream_offset import StreamOffset
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.queries import Job
from tests.support.records import produce, running, stream, to_files, written
from tests.support.waiting import wait_until

PARTITIONS = 4


def start(spark, kafka, name, folder):
    frame = stream(
        spark,
        kafka,
        name,
        kafka_group_id=f"{name}-group",
        kafka_group_instance_id=f"{name}-app",
        kafka_session_timeout_ms=120_000,
        kafka_heartbeat_interval_ms=300,
        group_members=2,
        startingOffsets="earliest",
    )
    return to_files(frame, folder).start()


def last_assignment(folder):
    """Generation and slots by partition, as the last batch's offset has them."""
    last = max((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offset = json.loads(last.read_text().splitlines()[-1])
    return offset["generation"], {
        (topic, partition): slot
        for topic, spans in offset["partitions"].items()
        for partition, (_, _, slot) in spans.items()
    }


def test_it_comes_back_to_the_same_partitions_without_a_rebalance(spark, kafka, topic, tmp_path):
    name = topic("restart", partitions=PARTITIONS)
    first = start(spark, kafka, name, tmp_path)
    other = None
    try:
        produce(kafka.bootstrap_servers, name, 40)
        wait_until(lambda: len(written(tmp_path / "out")) == 40, "the stream to read", 200)
        other = ConfluentConsumer(kafka.bootstrap_servers, f"{name}-group", name)
        wait_until(lambda: bool(other.assigned), "partitions for the other consumer")
        produce(kafka.bootstrap_servers, name, 40, first=40)
        wait_until(lambda: len(written(tmp_path / "out")) + len(other.records) == 80, "both to read")
        first.stop()
        before, rebalances = last_assignment(tmp_path), other.rebalances
        produce(kafka.bootstrap_servers, name, 40, first=80)
        with running(start(spark, kafka, name, tmp_path)):
            wait_until(lambda: len(written(tmp_path / "out")) + len(other.records) == 120, "both to read on", 200)
        assert last_assignment(tmp_path) == before
        assert len(before[1]) == PARTITIONS - len(other.assigned)
        assert other.rebalances == rebalances
    finally:
        first.stop()
        if other is not None:
            other.close()
    assert sorted([*written(tmp_path / "out"), *(value for _, _, value in other.records)]) == list(range(120))


def test_a_replayed_batch_is_committed_before_its_partitions_are_given_away(kafka, topic, group):
    name = topic("replayed", partitions=2, records=20)
    job = Job(kafka, group, subscribe=name, group_members=1, kafka_group_instance_id=group)
    with closing(job.planner()) as died:
        # It dies before Spark asks for the next micro-batch, so its batch is not committed.
        end = died.next(StreamOffset(), limited=True)
    with closing(job.planner()) as restarted:
        assert len(job.read(restarted, StreamOffset(), end)) == 20
        with closing(ConfluentConsumer(kafka.bootstrap_servers, group, name)) as other:
            wait_until(restarted.rebalance_due, "the rebalance")
            assert restarted.next(end, limited=True) is end
            wait_until(lambda: bool(other.assigned), "partitions for the other consumer")
            produce(kafka.bootstrap_servers, name, 20, first=20)
            wait_until(lambda: bool(other.records), "the other consumer to read")
    assert min(value for _, _, value in other.records) >= 20
