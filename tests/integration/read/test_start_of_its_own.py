"""Where a query goes on that has read little or nothing yet, beside what its group has committed."""

from contextlib import closing

import pytest

from assignors import TopicPartition
from kafka_source.errors import DataLossError
from tests.support.queries import Job
from tests.support.records import create_again, produce
from tests.support.waiting import wait_until, wait_until_committed

COUNT = 100


def one_batch(query: Job) -> list[int]:
    """Start the query, read one batch, and stop."""
    with closing(query.planner()) as planner:
        query.offsets.append(planner.next(query.offsets[-1], limited=True))
        return query.read(planner, *query.offsets[-2:])


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_created_again_before_the_first_record_is_no_topic_to_go_on_in(kafka, topic, group, fails):
    name = topic("unread", partitions=1, records=10)
    query = Job(kafka, group, subscribe=name, startingOffsets="latest", failOnDataLoss=str(fails).lower(),
                kafka_metadata_max_age_ms=200, data_loss_patience_ms=2_000)  # fmt: skip
    with closing(query.planner()) as planner:
        query.offsets.append(planner.next(query.offsets[-1], limited=True))
        assert query.read(planner, *query.offsets[-2:]) == []
        kafka.delete_topic(name)
        create_again(kafka, name, 1)
        # More than the old one had: its end is an offset of the new one, too.
        produce(kafka.bootstrap_servers, name, 15, first=500)

        found: list[int] = []

        def has_read() -> bool:
            end = planner.next(query.offsets[-1], limited=True)
            if end is not query.offsets[-1]:
                query.offsets.append(end)
                found.extend(query.read(planner, *query.offsets[-2:]))
            return bool(found)

        if fails:
            with pytest.raises(DataLossError, match="created again"):
                wait_until(has_read, "an error")
        else:
            wait_until(has_read, "a batch")
            assert found == list(range(500, 515))


def test_a_batch_that_runs_again_does_not_lower_what_others_have_committed(kafka, topic, groups, group):
    name = topic("ahead", partitions=1, records=20)
    tp = TopicPartition(name, 0)
    query = Job(kafka, group, subscribe=name, commit="task")
    planner = query.planner()
    query.offsets.append(planner.next(query.offsets[-1], limited=True))
    planner.close()
    produce(kafka.bootstrap_servers, name, 10, first=20)
    assert Job(kafka, group, subscribe=name).run() == list(range(30))
    wait_until_committed(groups, group, {tp: 30})
    with closing(query.planner()) as planner:
        # Spark's sink may have a part of these rows, so the batch is read whole.
        assert query.read(planner, *query.offsets[-2:]) == list(range(20))
    assert groups.committed(group) == {tp: 30}
    assert query.run() == []


@pytest.mark.parametrize("commit", ["batch", "task"])
def test_a_query_that_has_read_nothing_since_its_start_loses_nothing_to_another_one(kafka, topic, group, commit):
    name = topic("latest-start", partitions=1, records=COUNT)
    given = {"subscribe": name, "startingOffsets": "latest", "commit": commit}
    assert one_batch(Job(kafka, group, **given)) == []
    produce(kafka.bootstrap_servers, name, 10, first=COUNT)
    assert one_batch(Job(kafka, group, **given)) == list(range(COUNT, COUNT + 10))
