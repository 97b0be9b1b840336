"""Sinks that skip the numbers of micro-batches that they have: a new checkpoint in front of them loses no records."""

from collections.abc import Callable
from contextlib import closing

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.support.queries import Job
from tests.support.records import produce, run_to_end, stream, written
from tests.support.waiting import wait_until_committed

SKIPPED = r"without reading it.* a new folder"
PARTITIONS = 2

Run = Callable[..., None]


@pytest.fixture
def name(topic) -> str:
    made: str = topic("skipped", partitions=PARTITIONS, records=100)
    return made


@pytest.fixture
def run(spark, kafka, name, group, tmp_path) -> Run:
    """Run a query until nothing is new, from a checkpoint into a folder, or for each batch into a function."""

    def start(checkpoint: str, target: str | Callable[[DataFrame, int], None] = "out", **options: object) -> None:
        given = {"kafka.group.id": group, "startingOffsets": "earliest"}
        frame = stream(spark, kafka, name, **{**given, **options})
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / checkpoint))
        if isinstance(target, str):
            run_to_end(writer.format("parquet").option("path", str(tmp_path / target)))
        else:
            run_to_end(writer.foreachBatch(target))

    return start


@pytest.mark.parametrize("commit", ["batch", "task"])
def test_a_new_checkpoint_before_an_old_folder_ends_and_its_restarts_read_what_was_skipped(
    kafka, run, groups, group, name, tmp_path, commit
):
    run("first", commit=commit)
    produce(kafka.bootstrap_servers, name, 60, first=100)
    run("first", commit=commit)
    wait_until_committed(groups, group, 160)
    before = groups.committed(group)
    produce(kafka.bootstrap_servers, name, 90, first=160)
    with pytest.raises(StreamingQueryException, match=SKIPPED):
        run("second", commit=commit)
    assert written(tmp_path / "out") == list(range(160))
    assert groups.committed(group) == before
    # The folder has the number of the second start's micro-batch, too, and not that of the third one's.
    with pytest.raises(StreamingQueryException, match=SKIPPED):
        run("second", commit=commit)
    assert groups.committed(group) == before
    run("second", commit=commit)
    assert written(tmp_path / "out") == list(range(250))
    wait_until_committed(groups, group, 250)


def test_what_the_error_advises_reads_everything(kafka, run, name, tmp_path):
    run("first")
    produce(kafka.bootstrap_servers, name, 60, first=100)
    with pytest.raises(StreamingQueryException, match=SKIPPED):
        run("second")
    run("third", "another")
    assert written(tmp_path / "another") == list(range(100, 160))


def test_a_driver_that_is_killed_between_the_commits_of_its_sink_and_of_spark_goes_on(
    kafka, run, groups, group, name, tmp_path
):
    for count in (100, 160):
        run("first")
        commits = tmp_path / "first" / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink()
        produce(kafka.bootstrap_servers, name, 60, first=count)
        run("first")
        assert written(tmp_path / "out") == list(range(count + 60))
    wait_until_committed(groups, group, 220)


def test_a_function_of_each_batch_may_do_nothing(kafka, run, groups, group, name):
    run("first", lambda frame, number: None)
    produce(kafka.bootstrap_servers, name, 60, first=100)
    run("first", lambda frame, number: None)
    wait_until_committed(groups, group, 160)


@pytest.mark.parametrize("options", [{"strict": "false"}, {}], ids=["without strict", "after a batch that was read"])
def test_a_batch_that_is_skipped_is_one_warning(kafka, groups, group, name, caplog, options):
    job = Job(kafka, group, subscribe=name, maxOffsetsPerTrigger=20, **options)
    with closing(job.planner()) as planner:
        for number in range(4):
            job.offsets.append(planner.next(job.offsets[-1], limited=True))
            if not options and number == 0:
                job.read(planner, *job.offsets[-2:])
        (told,) = [r.getMessage() for r in caplog.records if "without reading it" in r.getMessage()]
        skipped = job.offsets[1 if options else 2].partitions
        assert all(f"{tp.topic}-{tp.partition} from={s.start} to={s.end}" in told for tp, s in skipped.items())
        wait_until_committed(groups, group, job.offsets[-2].ends)


def test_a_new_checkpoint_in_the_group_of_another_one_is_told_what_must_be_new(kafka, group, name, caplog):
    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if "count from 0" in r.getMessage()]

    job = Job(kafka, group, subscribe=name)
    job.run()
    produce(kafka.bootstrap_servers, name, 60, first=100)
    job.run()
    assert told() == []
    Job(kafka, group, subscribe=name).run()
    (line,) = told()
    assert "txnAppId" in line
