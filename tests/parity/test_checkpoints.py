"""A query of `format("kafka")` goes on with `format("kafkagroup")` from its checkpoint, and the other way round."""

import contextlib
import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery
from typer.testing import CliRunner

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from kafkagroup.cli.app import app
from kafkagroup.embedded import EmbeddedKafka
from tests.parity.formats import ONE_DAILY, OURS, SPARK, Formats, kind_of
from tests.support.records import run_to_end

Batches = list[list[int]]


@pytest.fixture(params=ONE_DAILY)
def engine(request: pytest.FixtureRequest) -> str:
    """Each of our engines."""
    return str(request.param)


def run(formats: Formats, name: str, checkpoint: Path, **options: object) -> Batches:
    """Read what is there, and return the values of each batch, empty ones too."""
    batches: Batches = []

    def keep(frame: DataFrame, _: int) -> None:
        batches.append(sorted(int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect()))

    writer = formats.stream_of(name, options).writeStream.foreachBatch(keep)
    run_to_end(writer.option("checkpointLocation", str(checkpoint)))
    return batches


def note_start(formats: Formats, checkpoint: Path, **options: object) -> None:
    """Leave a checkpoint as a driver does that dies right after Spark's source has noted where the query starts."""
    writer = formats.stream_of(SPARK, options).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.processAllAvailable()
    query.stop()
    forget_batches(checkpoint, "0")


def forget_batches(checkpoint: Path, source: str) -> None:
    """Leave of a checkpoint only what Spark's source has noted."""
    assert (checkpoint / "sources" / source / "0").exists()
    for file in (*(checkpoint / "offsets").iterdir(), *(checkpoint / "commits").iterdir()):
        file.unlink()


def with_rows(batches: Batches) -> Batches:
    return [batch for batch in batches if batch]


def unfinish(checkpoint: Path, batch: int) -> None:
    """Let a batch be planned and not finished, as if the driver had died before its end."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def numbers(formats: Formats) -> str:
    return formats.topic("moved", range(5), range(5, 10))


@pytest.mark.spark_test(
    "KafkaMicroBatchSourceSuite", "default config of includeHeader doesn't break existing query from Spark 2.4"
)
@pytest.mark.spark_test("KafkaSourceOffsetSuite", "read Spark 2.1.0 offset format")
def test_a_stopped_query_goes_on_at_its_place(formats: Formats, numbers: str, tmp_path: Path, engine: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": numbers, "startingOffsets": "earliest"}
    assert run(formats, SPARK, checkpoint, **options) == [list(range(10))]
    formats.send(numbers, range(10, 15), 1)
    assert with_rows(run(formats, engine, checkpoint, **options)) == [list(range(10, 15))]
    formats.send(numbers, range(15, 17), 0)
    assert run(formats, engine, checkpoint, **options) == [[15, 16]]


def test_a_query_without_news_goes_on_too(formats: Formats, numbers: str, tmp_path: Path, engine: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": numbers, "startingOffsets": "earliest"}
    run(formats, SPARK, checkpoint, **options)
    # One empty batch replaces Spark's offset by one with the ids of cluster and topic.
    assert run(formats, engine, checkpoint, **options) == [[]]
    assert run(formats, engine, checkpoint, **options) == []


def test_a_planned_batch_is_read_once_more_as_it_was(
    formats: Formats, numbers: str, tmp_path: Path, engine: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": numbers, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 6}
    first, second = run(formats, SPARK, checkpoint, **options)
    unfinish(checkpoint, 1)
    formats.send(numbers, range(10, 13), 1)
    replayed, *more = run(formats, engine, checkpoint, **options)
    assert replayed == second
    assert sorted(n for batch in (first, replayed, *more) for n in batch) == list(range(13))


@pytest.mark.parametrize("starting", [pytest.param("earliest", marks=pytest.mark.long), '{"%s": {"0": 2, "1": -2}}'])
def test_a_first_batch_whose_start_the_options_give(
    formats: Formats, numbers: str, tmp_path: Path, engine: str, starting: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    given = starting % numbers if "%" in starting else starting
    options = {"subscribe": numbers, "startingOffsets": given}
    (first,) = run(formats, SPARK, checkpoint, **options)
    unfinish(checkpoint, 0)
    assert with_rows(run(formats, engine, checkpoint, **options)) == [first]


def test_a_first_batch_from_latest_is_imported(formats: Formats, numbers: str, tmp_path: Path, engine: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": numbers, "startingOffsets": "latest"}
    # The source notes where it starts and the driver dies; then it plans a batch and does not finish it.
    note_start(formats, checkpoint, **options)
    formats.send(numbers, range(10, 15), 1)
    assert run(formats, SPARK, checkpoint, **options) == [list(range(10, 15))]
    unfinish(checkpoint, 0)
    with pytest.raises(Exception, match="kafkagroup import-checkpoint") as caught:
        run(formats, engine, checkpoint, **options)
    assert "sources" in str(caught.value)
    assert "--yes" in command("import-checkpoint", checkpoint)
    assert not json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1]).get("version")
    command("import-checkpoint", checkpoint, "--yes")
    assert with_rows(run(formats, engine, checkpoint, **options)) == [list(range(10, 15))]


def test_a_query_that_was_stopped_before_its_first_batch_is_imported(
    formats: Formats, numbers: str, tmp_path: Path, engine: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": numbers, "startingOffsets": "latest"}
    note_start(formats, checkpoint, **options)
    formats.send(numbers, range(10, 15), 0)
    command("import-checkpoint", checkpoint, "--yes")
    assert with_rows(run(formats, engine, checkpoint, **options)) == [list(range(10, 15))]


@pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="sources have names since Spark 4.2")
def test_a_named_source_is_imported_and_another_one_added(
    kafka: EmbeddedKafka, formats: Formats, numbers: str, tmp_path: Path
) -> None:
    checkpoint, others = tmp_path / "checkpoint", formats.topic("added", range(20, 23))
    found: list[int] = []

    def start(name: str, **topics: str) -> StreamingQuery:
        frames = []
        for source, subscribed in topics.items():
            reader = formats.spark.readStream.format(name if name == SPARK else "kafkagroup").name(source)
            given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": subscribed}
            starting = "latest" if subscribed == numbers else "earliest"
            frames.append(reader.options(**given, startingOffsets=starting).load().selectExpr("CAST(value AS STRING)"))
        union = functools.reduce(DataFrame.union, frames)
        writer = union.writeStream.foreachBatch(lambda rows, _: found.extend(int(row[0]) for row in rows.collect()))
        return writer.option("checkpointLocation", str(checkpoint)).start()

    with evolving(formats.spark):
        query = start(SPARK, numbers=numbers)
        query.processAllAvailable()
        query.stop()
        forget_batches(checkpoint, "numbers")
        formats.send(numbers, range(10, 15), 0)
        command("import-checkpoint", checkpoint, "--yes")
        for topics in ({"numbers": numbers}, {"numbers": numbers, "added": others}):
            query = start("kafkagroup", **topics)
            query.processAllAvailable()
            query.stop()
        assert sorted(found) == [*range(10, 15), *range(20, 23)]
    shown = command("checkpoint", "show", checkpoint, "--source", "added", "--starting-offsets")
    assert json.loads(shown) == {others: {"0": 3}}


@contextlib.contextmanager
def evolving(spark: SparkSession) -> Iterator[None]:
    """A block in which queries may change their named sources."""
    setting = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(setting, "true")
    try:
        yield
    finally:
        spark.conf.unset(setting)


def test_the_offsets_are_imported_into_a_group(
    kafka: EmbeddedKafka, formats: Formats, numbers: str, tmp_path: Path
) -> None:
    checkpoint, group = tmp_path / "checkpoint", f"{numbers}-group"
    options = {"subscribe": numbers, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 6}
    run(formats, SPARK, checkpoint, **options)
    unfinish(checkpoint, 1)
    command("import-checkpoint", checkpoint, "--group", group, "-b", kafka.bootstrap_servers, "--yes")
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    assert groups.committed(group) == {TopicPartition(numbers, 0): 3, TopicPartition(numbers, 1): 3}


def test_the_way_back_is_the_json_of_starting_offsets(
    formats: Formats, numbers: str, tmp_path: Path, engine: str
) -> None:
    options = {"subscribe": numbers, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 6}
    for name in (SPARK, engine):
        checkpoint = tmp_path / name
        first, second = with_rows(run(formats, name, checkpoint, **options))
        finished = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
        positions = command("checkpoint", "show", checkpoint, "--starting-offsets")
        assert json.loads(positions) == {numbers: {"0": 5, "1": 5}}
        unfinish(checkpoint, finished)
        positions = command("checkpoint", "show", checkpoint, "--starting-offsets")
        assert json.loads(positions) == {numbers: {"0": 3, "1": 3}}
        assert run(formats, SPARK, tmp_path / f"{name}-back", subscribe=numbers, startingOffsets=positions) == [second]
        assert sorted(first + second) == list(range(10))


def test_a_checkpoint_of_another_source_is_refused(formats: Formats, numbers: str, tmp_path: Path) -> None:
    checkpoint, files = tmp_path / "files-checkpoint", tmp_path / "files"
    files.mkdir()
    (files / "one.txt").write_text("1\n")
    writer = formats.spark.readStream.text(str(files)).writeStream.format("noop")
    run_to_end(writer.option("checkpointLocation", str(checkpoint)))
    assert "no offsets of a Kafka source" in CliRunner().invoke(app, ["checkpoint", "show", str(checkpoint)]).output
    copied = tmp_path / "copied"
    shutil.copytree(checkpoint, copied)
    with pytest.raises(Exception, match="neither one of kafkagroup nor one of Spark's Kafka source") as caught:
        run(formats, OURS[0], copied, subscribe=numbers)
    assert kind_of(caught.value)
