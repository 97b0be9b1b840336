"""Checkpoints as files: where a query is, and what has to change so that one of Spark's source continues."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.stream_offset import Span, StreamOffset
from kafkagroup.admin.checkpoints import Checkpoint

ABOUT = '{"batchWatermarkMs":7,"batchTimestampMs":8,"conf":{}}'
ORDERS = TopicPartition("orders", 0)


def spark(**offsets: int) -> str:
    """An offset of Spark's source: `orders=5` is partition 0 of the topic orders."""
    return json.dumps({topic: {"0": offset} for topic, offset in offsets.items()}, separators=(",", ":"))


def ours(start: int, end: int) -> str:
    return json.dumps(StreamOffset({ORDERS: Span(start, end, -1)}).to_json())


def checkpoint(
    folder: Path,
    offsets: Mapping[int, tuple[str, ...]],
    commits: tuple[int, ...] = (),
    initial: Mapping[int, str] | Mapping[str, str] | None = None,
) -> Checkpoint:
    for name in ("offsets", "commits", "sources"):
        (folder / name).mkdir(parents=True)
    for number, sources in offsets.items():
        (folder / "offsets" / str(number)).write_text("\n".join(("v1", ABOUT, *sources)))
        (folder / "offsets" / f".{number}.crc").write_text("checksum")
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for source, text in (initial or {}).items():
        (folder / "sources" / str(source)).mkdir()
        (folder / "sources" / str(source) / "0").write_text(text)
    return Checkpoint(str(folder))


@pytest.mark.parametrize(
    ("offsets", "commits", "position", "pending"),
    [
        ({0: (spark(orders=5),)}, (0,), 5, None),
        ({0: (spark(orders=5),), 1: (spark(orders=9),)}, (0,), 5, 9),
        ({0: (spark(orders=5),), 1: (ours(5, 8),)}, (0, 1), 8, None),
        ({0: (ours(3, 5),)}, (), 3, 5),
        ({3: (ours(3, 5),), 4: (ours(5, 7),)}, (3,), 5, 7),
    ],
)
def test_a_query_is_behind_its_last_finished_batch(tmp_path, offsets, commits, position, pending):
    (found,) = checkpoint(tmp_path / "c", offsets, commits).positions()
    assert (found.source, found.offsets) == ("0", {ORDERS: position})
    assert found.pending == (None if pending is None else {ORDERS: pending})
    assert json.loads(found.starting_offsets()) == {"orders": {"0": position}}


@pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "initial offset written with an extra byte (SPARK-19517)")
@pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "initial offset written by Spark 2.1.0")
@pytest.mark.parametrize("text", ["\0v1\n" + spark(orders=4), "v1\n" + spark(orders=4), "\0" + spark(orders=4)])
def test_a_first_batch_starts_where_sparks_source_has_noted(tmp_path, text):
    found = checkpoint(tmp_path / "c", {0: (spark(orders=5),)}, initial={0: text})
    assert found.positions()[0].offsets == {ORDERS: 4}
    change = found.rewrite()
    assert change is not None
    found.apply(change)
    assert not (tmp_path / "c" / "offsets" / ".0.crc").exists()
    version, about, line = (tmp_path / "c" / "offsets" / "0").read_text().split("\n")
    assert (version, about) == ("v1", ABOUT)
    assert StreamOffset.from_json(json.loads(line)).partitions == {ORDERS: Span(4, 5, -1)}
    assert Checkpoint(found.path).rewrite() is None
    assert Checkpoint(found.path).positions()[0].offsets == {ORDERS: 4}


def test_a_query_without_a_batch_gets_an_empty_one(tmp_path):
    found = checkpoint(tmp_path / "c", {}, initial={1: "\0v1\n" + spark(orders=4)})
    assert [(one.source, one.offsets) for one in found.positions()] == [("1", {ORDERS: 4})]
    change = found.rewrite()
    assert change is not None
    version, about, other, line = change.text.split("\n")
    assert (version, other) == ("v1", "-")
    assert json.loads(about)["batchWatermarkMs"] == 0
    assert StreamOffset.from_json(json.loads(line)).partitions == {ORDERS: Span(4, 4, -1)}


def test_named_sources_are_told_apart_by_their_names(tmp_path):
    found = checkpoint(tmp_path / "c", {}, commits=(0,))
    batches = (("bills:" + ours(0, 5), 'files:{"logOffset":3}'), ("bills:" + ours(5, 8), "orders:" + ours(2, 4)))
    for number, lines in enumerate(batches):
        (tmp_path / "c" / "offsets" / str(number)).write_text("\n".join(("v2", ABOUT, *lines)))
    assert [(one.source, one.offsets, one.pending) for one in found.positions()] == [
        ("bills", {ORDERS: 5}, {ORDERS: 8})
    ]
    (tmp_path / "c" / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    after = Checkpoint(found.path).positions()
    assert [(one.source, one.offsets) for one in after] == [("bills", {ORDERS: 8}), ("orders", {ORDERS: 4})]


def test_the_first_batch_of_named_sources_gets_its_starts(tmp_path):
    found = checkpoint(tmp_path / "c", {}, initial={"bills": "\0v1\n" + spark(orders=4)})
    (tmp_path / "c" / "offsets" / "0").write_text("\n".join(("v2", ABOUT, "bills:" + spark(orders=5), "files:{}")))
    change = found.rewrite()
    assert change is not None
    found.apply(change)
    version, about, bills, files = (tmp_path / "c" / "offsets" / "0").read_text().split("\n")
    assert (version, about, files) == ("v2", ABOUT, "files:{}")
    assert StreamOffset.from_json(json.loads(bills.removeprefix("bills:"))).partitions == {ORDERS: Span(4, 5, -1)}
    assert Checkpoint(found.path).rewrite() is None


def test_named_sources_without_a_batch_get_an_empty_one(tmp_path):
    initial = {"bills": "\0v1\n" + spark(orders=4), "orders": "\0v1\n" + spark(orders=6)}
    change = checkpoint(tmp_path / "c", {}, initial=initial).rewrite()
    assert change is not None
    version, about, *lines = change.text.split("\n")
    assert (version, [line.partition(":")[0] for line in lines]) == ("v2", ["bills", "orders"])
    assert json.loads(about)["conf"]["spark.sql.streaming.queryEvolution.enableSourceEvolution"] == "true"
    assert StreamOffset.from_json(json.loads(lines[1].removeprefix("orders:"))).partitions == {ORDERS: Span(6, 6, -1)}


def test_sources_of_other_kinds_are_left_alone(tmp_path):
    files = '{"logOffset":3}'
    found = checkpoint(tmp_path / "c", {0: (files, spark(orders=5))}, initial={1: "\0v1\n" + spark(orders=4)})
    assert [one.source for one in found.positions()] == ["1"]
    change = found.rewrite()
    assert change is not None
    assert change.text.split("\n")[2] == files


@pytest.mark.parametrize("commits", [(0,), (0, 1)])
def test_after_a_finished_batch_nothing_has_to_change(tmp_path, commits):
    offsets = {0: (spark(orders=5),), 1: (spark(orders=9),)}
    assert checkpoint(tmp_path / "c", offsets, commits).rewrite() is None


@pytest.mark.parametrize(
    ("offsets", "commits", "initial", "message"),
    [
        ({}, (), {}, "no offsets of a Kafka source"),
        ({0: (spark(orders=5),)}, (), {}, "the file sources/0/0 .* does not exist"),
        ({2: (spark(orders=5),)}, (1,), {}, "damaged"),
        ({0: (spark(orders=5, new=2),)}, (), {0: "\0v1\n" + spark(orders=4)}, "does not say where new-0 start"),
        pytest.param(
            {0: (spark(orders=5),)},
            (),
            {0: "\0v99999\n" + spark(orders=4)},
            "sources/0/0 of .* has version 'v99999'; this command reads v1",
            marks=pytest.mark.spark_test("KafkaMicroBatchSourceSuite", "initial offset of a future version"),
        ),
    ],
)
def test_what_cannot_be_continued_says_why(tmp_path, offsets, commits, initial, message):
    found = checkpoint(tmp_path / "c", offsets, commits, initial)
    with pytest.raises(InvalidConfigurationError, match=message):
        found.positions()
        found.rewrite()


def test_a_path_without_a_checkpoint_and_a_newer_log_are_errors(tmp_path):
    with pytest.raises(InvalidConfigurationError, match="There is no checkpoint"):
        Checkpoint(str(tmp_path / "nowhere")).positions()
    found = checkpoint(tmp_path / "c", {0: (spark(orders=5),)})
    (tmp_path / "c" / "offsets" / "0").write_text("v9\n{}\n{}")
    with pytest.raises(InvalidConfigurationError, match="version 'v9'; this command reads v1 and v2"):
        found.positions()
