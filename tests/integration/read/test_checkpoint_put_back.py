"""A checkpoint is behind its group: by the query's own commits, because it was put back, or by commits of others."""

import json
import logging
from contextlib import closing

import pytest
from pyspark.errors import StreamingQueryException

from assignors import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.stream_offset import Span, StreamOffset
from tests.support.queries import Job, Pipe
from tests.support.records import run_to_end, stream, to_files, written
from tests.support.waiting import wait_until_committed

COUNT = 90
OWN = "The checkpoint is older than this query's own commits"


@pytest.fixture
def name(topic) -> str:
    made: str = topic("put-back", partitions=2, records=COUNT)
    return made


@pytest.fixture
def job(kafka, name, group):
    """A query of one kind in three batches."""

    def one(kind: str, **options: object) -> Job:
        what = {"assign": json.dumps({name: [0, 1]})} if kind == "assign" else {"subscribe": name}
        commit = {"assign": "batch"}.get(kind, kind)
        return Job(kafka, group, commit=commit, maxOffsetsPerTrigger=COUNT // 3, **{**what, **options})

    return one


def jumps(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "ahead of this query's checkpoint" in r.getMessage()]


@pytest.mark.parametrize("kind", ["batch", "task", "assign"])
def test_a_checkpoint_that_was_put_back_stops_the_query_before_it_reads_or_commits(groups, group, job, kind):
    query = job(kind)
    assert sorted(query.run()) == list(range(COUNT))
    wait_until_committed(groups, group, COUNT)
    before, newest = groups.committed(group), list(query.offsets)
    query.offsets = newest[:2]
    with pytest.raises(InvalidConfigurationError, match=f"{OWN}.*from=.* to=.*group.on.older.checkpoint=replay"):
        query.run()
    assert groups.committed(group) == before
    # A batch of the old checkpoint that Spark has planned and not finished.
    planner = query.planner()
    with pytest.raises(InvalidConfigurationError, match=OWN):
        planner.tasks(newest[0], newest[1])
    planner.close()
    # The newest checkpoint goes on, also where the commit of its last batch has failed.
    query.offsets = newest
    assert query.run() == []
    assert groups.committed(group) == before


@pytest.mark.parametrize("kind", ["batch", "task", "assign"])
def test_with_replay_the_query_reads_again_from_the_checkpoint_and_the_group_follows(groups, group, job, kind):
    query = job(kind)
    query.run()
    wait_until_committed(groups, group, COUNT)
    before, first = groups.committed(group), dict(query.offsets[1].ends)
    done = query.offsets[:2]
    query.offsets = list(done)
    planner = query.planner(group_on_older_checkpoint="replay")
    planner.next(done[-1], limited=True)
    wait_until_committed(groups, group, first)
    planner.close()
    # The driver has died before Spark knew that batch. The option is not needed any more.
    assert len(query.run()) == COUNT - sum(first.values())
    wait_until_committed(groups, group, before)
    assert query.run() == []


@pytest.mark.parametrize("kind", ["batch", "task", "assign"])
def test_a_group_that_others_have_moved_on_is_followed_with_one_warning(groups, group, name, job, kind, caplog):
    query = job(kind)
    query.offsets = [StreamOffset({TopicPartition(name, n): Span(0, 5, n) for n in (0, 1)}, slots=2)]
    groups.rewind(group, {TopicPartition(name, 0): 20, TopicPartition(name, 1): 3}, checkpoints_follow=False)
    with caplog.at_level(logging.WARNING):
        found = query.run()
    ends = query.offsets[-1].ends
    assert len(found) == sum(ends.values()) - 20 - 5
    (line,) = jumps(caplog)
    assert line.endswith(f"{name}-0 from=5 to=20.")


def test_a_checkpoint_of_sparks_source_whose_label_others_have_used_says_so(groups, group, name, job, caplog):
    query = job("batch")
    query.offsets = [StreamOffset.from_json({name: {"0": 5, "1": 5}})]
    groups.rewind(group, {TopicPartition(name, n): 20 for n in (0, 1)}, checkpoints_follow=False)
    planner = query.planner()
    with caplog.at_level(logging.WARNING):
        planner.next(query.offsets[0], limited=True)
    planner.close()
    (line,) = jumps(caplog)
    assert "Spark's own Kafka source" in line
    assert "group.membership=false" in line


def test_with_the_sink_replay_sets_the_group_back_to_the_checkpoint(kafka, name, topic, group):
    query = Pipe(kafka.bootstrap_servers, name, topic("put-back-out"), group, group, maxOffsetsPerTrigger=COUNT // 3)
    for _ in range(3):
        query.whole_batch()
    query.close()
    checkpoint = query.offsets[:2]
    options = {"maxOffsetsPerTrigger": COUNT, "group_on_older_checkpoint": "replay"}
    # A new prefix, because the ledger of the old one has decided about these batches.
    with closing(
        Pipe(kafka.bootstrap_servers, name, topic("put-back-2"), group, f"{group}-2", checkpoint, **options)
    ) as again:
        assert again.whole_batch() >= 0
        assert len(again.read) == COUNT - sum(checkpoint[1].ends.values())


def test_in_spark_no_batch_is_missing_when_checkpoint_and_output_are_put_back_together(
    spark, kafka, name, groups, group, tmp_path
):
    def run(**options: object) -> None:
        frame = stream(spark, kafka, name, kafka_group_id=group, startingOffsets="earliest",
                       maxOffsetsPerTrigger=COUNT // 3, **options)  # fmt: skip
        run_to_end(to_files(frame, tmp_path))

    run()
    assert written(tmp_path / "out") == list(range(COUNT))
    wait_until_committed(groups, group, COUNT)
    committed = groups.committed(group)
    checkpoint, sink = tmp_path / "checkpoint", tmp_path / "out" / "_spark_metadata"
    for log in (checkpoint / "offsets", checkpoint / "commits", sink):
        for path in [*log.glob("[1-9]"), *log.glob(".[1-9].crc")]:
            path.unlink()
    first = written(tmp_path / "out")
    assert 0 < len(first) < COUNT
    with pytest.raises(StreamingQueryException, match=OWN):
        run()
    assert (written(tmp_path / "out"), groups.committed(group)) == (first, committed)
    run(**{"group_on_older_checkpoint": "replay"})
    assert written(tmp_path / "out") == list(range(COUNT))
    wait_until_committed(groups, group, committed)
