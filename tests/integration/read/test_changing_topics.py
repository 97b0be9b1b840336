"""Topics that come, grow, go and are created anew while a stream of a group reads them: no record is missed."""

import json
from contextlib import closing

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.mixed_group import Trickle
from tests.support.records import add_partitions, create_again, produce, stream, to_files, written, written_rows
from tests.support.waiting import wait_until

QUICK = {
    "startingOffsets": "earliest",
    "group_members": 2,
    "kafka_heartbeat_interval_ms": 300,
    "kafka_metadata_max_age_ms": 1_000,
    "rebalance_batch_ms": 2_000,
    # A task that was planned before its topic was created again waits so long for the one of before.
    "data_loss_patience_ms": 2_000,
}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def start(spark, kafka, tmp_path, opened):
    """Starts a stream of a group into `tmp_path`, and stops it at the end."""

    def run(topic, group, **options):
        frame = stream(spark, kafka, topic, kafka_group_id=group, **{**QUICK, **options})
        query = to_files(frame, tmp_path).start()
        opened.callback(query.stop)
        return query

    return run


def generations(folder):
    """The group's generations in which batches were planned, in their order."""
    logs = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1])["generation"] for path in logs]


def by_topic(folder):
    """The values that were read of each topic, sorted."""
    found: dict[str, list[int]] = {}
    for topic, value in written_rows(folder / "out", "topic", "value"):
        found.setdefault(topic, []).append(int(value))
    return {topic: sorted(values) for topic, values in found.items()}


def test_a_pattern_follows_topics_that_come_and_grow(kafka, topic, start, tmp_path):
    prefix = topic("shop", partitions=1)
    steady = kafka.create_topic(f"{prefix}-steady", 4)
    with closing(Trickle(kafka.bootstrap_servers, steady)) as trickle:
        start(None, f"{prefix}-group", subscribePattern=f"{prefix}-.*")
        wait_until(lambda: by_topic(tmp_path).get(steady), "the first records", 200)
        before = generations(tmp_path)[-1]
        admin = kafka.admin()
        names = [f"{prefix}-new-{n:02}" for n in range(50)]
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(60)
        for number, name in enumerate(names):
            produce(kafka.bootstrap_servers, name, 1, first=number)
        wait_until(lambda: set(names) <= set(by_topic(tmp_path)), "the burst of topics")
        assert generations(tmp_path)[-1] <= before + 2
        add_partitions(kafka, steady, 6)
        produce(kafka.bootstrap_servers, steady, 300, first=1_000_000)
        trickle.close()
        wait_until(lambda: len(by_topic(tmp_path)[steady]) >= trickle.count + 300, "all records")
    partitions = {p for t, p in written_rows(tmp_path / "out", "topic", "partition") if t == steady}
    assert partitions == set(range(6))
    assert by_topic(tmp_path) == {
        steady: [*range(trickle.count), *range(1_000_000, 1_000_300)],
        **{name: [number] for number, name in enumerate(names)},
    }


@pytest.mark.long
def test_a_topic_that_is_given_up_leaves_the_others_alone(kafka, topic, start, tmp_path):
    prefix = topic("shop", partitions=1)
    steady, doomed = kafka.create_topic(f"{prefix}-steady", 4), kafka.create_topic(f"{prefix}-doomed", 2)
    produce(kafka.bootstrap_servers, doomed, 50)
    with closing(Trickle(kafka.bootstrap_servers, steady)) as trickle:
        query = start(None, f"{prefix}-group", subscribePattern=f"{prefix}-.*", failOnDataLoss="false")
        wait_until(lambda: by_topic(tmp_path).get(doomed) == list(range(50)), "the doomed topic's records", 200)
        kafka.delete_topic(doomed)
        marked = trickle.count
        wait_until(lambda: len(by_topic(tmp_path).get(steady, [])) > marked + 500, "the query to go on without it")
        trickle.close()
        wait_until(lambda: len(by_topic(tmp_path)[steady]) >= trickle.count, "all records")
        assert query.isActive
    assert by_topic(tmp_path) == {steady: list(range(trickle.count)), doomed: list(range(50))}


@pytest.mark.parametrize("anew", [True, False])
def test_a_topic_that_was_deleted_stops_the_query_unless_told_otherwise(kafka, topic, start, tmp_path, anew):
    name = topic("deleted", partitions=2, records=40)
    query = start(name, f"{name}-group")
    wait_until(lambda: len(written(tmp_path / "out")) == 40, "the records", 200)
    if anew:
        # While it runs it may look just when there is no topic of the name.
        query.stop()
    kafka.delete_topic(name)
    if anew:
        create_again(kafka, name, 2)
        produce(kafka.bootstrap_servers, name, 100, first=1000)
        query = start(name, f"{name}-group")
    wait_until(lambda: not query.isActive, "the query to stop")
    told = str(query.exception())
    assert f"{name}-" in told
    assert "failOnDataLoss" in told
    assert ("created again" in told) == anew
