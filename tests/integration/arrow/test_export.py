"""`kafkagroup export`: a topic as a file, or as a folder that the next export continues with each record once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyarrow import dataset

from kafkagroup.arrow.export import Exported
from kafkagroup.arrow.export_folder import DOCUMENT
from kafkagroup.embedded import EmbeddedKafka
from tests.support.commands import Command
from tests.support.native import reason_to_skip, without_warning
from tests.support.records import Topic, add_partitions, create_again, delete_before
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
# A request for each record batch.
SLOWLY = ("-c", "fetch.max.bytes=1")


def write(
    kafka: EmbeddedKafka, topic: str, first: int, end: int, *, partitions: int = 2, size: int = 0, batch: int = 10_000
) -> None:
    """Write the numbers [first, end), filled up to a size; each to the partition that it has as remainder."""
    config = {"queue.buffering.max.messages": 1_000_000, "batch.num.messages": batch}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **config})
    for number in range(first, end):
        text = str(number).encode()
        value = text.ljust(size)
        producer.produce(topic, value, text, number % partitions, headers=[("n", text)])
        producer.poll(0)
    assert producer.flush(60) == 0


def numbers(folder: Path) -> list[int]:
    """The keys of all records in the parts of a folder, which Arrow reads as one table."""
    table = dataset.dataset(folder, format="parquet").to_table(columns=["key"])
    return sorted(int(key) for key in table["key"].to_pylist())


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("0*"))


def process(kafka: EmbeddedKafka, *arguments: object, **popen: object) -> subprocess.Popen[bytes]:
    """An export in a process of its own."""
    command = [sys.executable, "-m", "kafkagroup.cli", "export", *map(str, arguments), "-b", kafka.bootstrap_servers]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, **popen)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def orders(kafka: EmbeddedKafka) -> str:
    kafka.create_topic("export-orders", partitions=2)
    write(kafka, "export-orders", 0, 1000)
    return "export-orders"


@pytest.fixture(scope="module")
def many(kafka: EmbeddedKafka) -> str:
    """So many record batches that an export with SLOWLY is not done when a test stops it."""
    kafka.create_topic("export-many", partitions=2)
    write(kafka, "export-many", 0, 50_000, size=100, batch=10)
    return "export-many"


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_topic_becomes_a_file(command: Command, orders: str, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"orders.{form}"
    said = command.says("export", orders, "--to", path, "--columns", "key string, value string, offset, partition")
    assert said == f"Exported 1,000 records of {orders} to {path}."
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        "parquet": pl.read_parquet, "arrow": pl.read_ipc, "csv": pl.read_csv, "jsonl": pl.read_ndjson
    }  # fmt: skip
    frame = readers[form](path)
    assert frame.columns == ["key", "value", "offset", "partition"]
    assert frame["key"].cast(pl.Int64).sort().to_list() == list(range(1000))
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_refused(command: Command, orders: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text("mine")
    assert "exists" in command.refused("export", orders, "--to", path)
    assert path.read_text() == "mine"
    command.run("export", orders, "--to", path, "--overwrite", "--from", "@499", "--columns", "key string,headers")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(lines, key=lambda line: str(line["key"])) == [
        {"key": "998", "headers": [{"key": "n", "value": "OTk4"}]},
        {"key": "999", "headers": [{"key": "n", "value": "OTk5"}]},
    ]


def test_positions_are_those_of_a_read(command: Command, orders: str, tmp_path: Path) -> None:
    def exported(*position: str) -> int:
        command.run("export", orders, "--to", tmp_path / "some.arrow", "--overwrite", *position)
        return pl.read_ipc(tmp_path / "some.arrow").height

    assert exported("--from", "-1h") == 1000
    assert exported("--until", "-1h") == 0
    assert exported("--from", "@490", "--until", "@495") == 10
    assert exported("--from", '{"0": 499, "1": 500}') == 1
    assert exported("--from", f'{{"{orders}": {{"0": 499, "1": 498}}}}') == 3
    for wrong in ("yesterday", "-1", "{", '{"0": "x"}', '{"0": 1}'):
        said = command.says("export", orders, "--to", tmp_path / "no.arrow", "--from", wrong, code=2)
        assert "--from" in said, said
    assert "--columns" in command.says("export", orders, "--to", tmp_path / "no.csv", "--columns", "payload", code=2)
    assert "--to" in command.says("export", orders, "--to", tmp_path / "orders.txt", code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["some.arrow"]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_folder_is_continued(kafka: EmbeddedKafka, command: Command, topic: Topic, tmp_path: Path, form: str) -> None:
    name, folder = topic("export-on", partitions=2), tmp_path / "parts"
    write(kafka, name, 0, 100)
    to = ("export", name, "--to", f"{folder}/")
    assert "100 records" in command.says(*to, "--format", form, "--columns", "key string")
    before = parts(folder)
    assert before == [f"0000{n}-{0:020}-{50:020}.{form}" for n in (0, 1)]
    assert "0 records" in command.says(*to)
    assert "0 records" in command.says(*to, "--until", "-1h")
    assert parts(folder) == before
    write(kafka, name, 100, 151)
    assert "6 records" in command.says(*to, "--until", '{"0": 56, "1": 20}')
    # The folder is there, so it needs no slash.
    assert f"45 records of {name} to {folder} in 2 new parts" in command.says("export", name, "--to", folder)
    keys = dataset.dataset(folder, format=form).to_table()["key"].to_pylist()
    assert sorted(map(int, keys)) == list(range(151))
    for other in (("--format", "jsonl"), ("--columns", "value"), ("--from", "@5")):
        assert f"was begun with the {other[0][2:].replace('from', 'start')}" in command.refused(*to, *other)


def test_the_start_of_a_folder_means_what_it_meant_first(
    kafka: EmbeddedKafka, command: Command, topic: Topic, tmp_path: Path
) -> None:
    name, to = topic("export-since", partitions=2), ("--to", f"{tmp_path}/", "--from", "-1s")
    write(kafka, name, 0, 10)
    time.sleep(1.1)
    assert "0 records" in command.says("export", name, *to)
    write(kafka, name, 10, 30)
    time.sleep(1.1)
    assert "20 records" in command.says("export", name, *to)
    assert numbers(tmp_path) == list(range(10, 30))


def test_a_topic_that_was_created_again_is_refused(
    kafka: EmbeddedKafka, command: Command, topic: Topic, tmp_path: Path
) -> None:
    name = topic("export-again", partitions=1)
    write(kafka, name, 0, 10, partitions=1)
    command.run("export", name, "--to", f"{tmp_path}/")
    kafka.delete_topic(name)
    create_again(kafka, name, 1)
    write(kafka, name, 0, 20, partitions=1)
    assert "deleted and created again" in command.refused("export", name, "--to", tmp_path, "--accept-loss")
    assert len(numbers(tmp_path)) == 10


def test_partitions_that_were_added_are_read_from_their_start(
    kafka: EmbeddedKafka, command: Command, topic: Topic, tmp_path: Path
) -> None:
    name = topic("export-wider", partitions=2)
    write(kafka, name, 0, 10)
    command.run("export", name, "--to", f"{tmp_path}/", "--from", "@3")
    add_partitions(kafka, name, 3)
    write(kafka, name, 10, 16, partitions=3)
    assert "6 records" in command.says("export", name, "--to", tmp_path)
    assert numbers(tmp_path) == list(range(6, 16))


def test_records_that_retention_has_deleted_are_a_loss_until_it_is_accepted(
    kafka: EmbeddedKafka, command: Command, topic: Topic, tmp_path: Path
) -> None:
    name = topic("export-lost", partitions=1)
    write(kafka, name, 0, 10, partitions=1)
    command.run("export", name, "--to", f"{tmp_path}/")
    write(kafka, name, 10, 30, partitions=1)
    delete_before(kafka, name, {0: 20})
    said = command.refused("export", name, "--to", tmp_path)
    assert f"{name}-0 cannot be read from offset 10: it has only offsets [20, 30)" in said
    assert "give --accept-loss" in said
    assert "10 records" in command.says("export", name, "--to", tmp_path, "--accept-loss")
    assert numbers(tmp_path) == [*range(10), *range(20, 30)]
    write(kafka, name, 30, 35, partitions=1)
    assert "5 records" in command.says("export", name, "--to", tmp_path)


def test_a_folder_with_other_files_and_an_export_that_does_not_begin_are_left_as_they_were(
    command: Command, orders: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").touch()
    assert "has files" in command.refused("export", orders, "--to", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert "does not exist" in command.refused("export", "no-such-topic", "--to", f"{tmp_path}/new/")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert "a file" in command.says("export", orders, "--to", tmp_path, "--overwrite", code=2)


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_an_export_that_is_killed_and_continued_has_each_record_once(
    kafka: EmbeddedKafka, topic: Topic, tmp_path: Path, kills: int
) -> None:
    name, folder, records = topic("export-killed", partitions=2), tmp_path / "parts", 20_000 * kills
    write(kafka, name, 0, records, size=100, batch=100)
    # About 40 parts for each kill.
    arguments = (name, "--to", f"{folder}/", "--part-bytes", 100_000, *SLOWLY)
    chance = random.Random(kills)
    counts: list[int] = []
    for _ in range(kills):
        with process(kafka, *arguments) as running:
            wait_until(lambda: len(parts(folder)) > (counts or [0])[-1], "a new part")
            time.sleep(chance.random() * 0.02)
            running.kill()
        assert running.wait() == -signal.SIGKILL, "it was ready before it was killed"
        counts.append(len(parts(folder)))
    with process(kafka, *arguments) as running:
        assert running.wait(120) == 0
    assert counts == sorted(set(counts)), "each of them has written parts, and none is gone"
    assert [one for one, times in Counter(numbers(folder)).items() if times > 1] == []
    assert numbers(folder) == list(range(records))
    assert {path.name for path in folder.iterdir()} == {*parts(folder), "_export.json"}


def test_two_exports_do_not_write_one_folder(kafka: EmbeddedKafka, command: Command, many: str, tmp_path: Path) -> None:
    with process(kafka, many, "--to", f"{tmp_path}/", "--part-bytes", 1) as running:
        wait_until(lambda: parts(tmp_path), "a part")
        running.send_signal(signal.SIGSTOP)
        assert "Another process is writing" in command.refused("export", many, "--to", tmp_path)
        running.kill()


@pytest.mark.parametrize("to", ["orders.csv", "parts/"])
def test_ctrl_c_ends_an_export_at_once_without_leftovers(
    kafka: EmbeddedKafka, many: str, tmp_path: Path, to: str
) -> None:
    with process(kafka, many, "--to", f"{tmp_path}/{to}", "--part-bytes", 1000, *SLOWLY) as running:
        wait_until(lambda: list(tmp_path.rglob(".*.partial")), "the export to write")
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        said = running.stderr.read()
        # Python ends by the signal itself, which is 130 too for a shell, if that came in the code of an `exec`.
        assert running.wait(30) in (130, -signal.SIGINT), said.decode()
        assert b"Traceback" not in said, said.decode()
    assert list(tmp_path.rglob(".*.partial")) == []
    assert not (tmp_path / to).is_file()


@pytest.mark.parametrize("to", ["orders.csv", "parts/"])
def test_ctrl_c_that_a_library_drops_ends_an_export_too(
    command: Command, many: str, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So does the import of pandas, which pyarrow does when it first makes an array of Python's values.
    def press_and_drop(_: Exported, batch: pa.RecordBatch) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Exported, "add", press_and_drop)
    assert command.says("export", many, "--to", f"{tmp_path}/{to}", *SLOWLY, code=130) == ""
    assert not any(path.is_file() and path.name != DOCUMENT for path in tmp_path.rglob("*"))


def test_a_pipe_that_breaks_ends_an_export_at_once(kafka: EmbeddedKafka, many: str) -> None:
    with process(kafka, many, "--to", "-", "--format", "jsonl", stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        first = json.loads(running.stdout.readline())
        running.stdout.close()
        assert running.wait(30) == 1
        assert without_warning(running.stderr.read().decode()) == ""
    assert first["topic"] == many


def test_an_export_starts_no_jvm_and_needs_no_spark(kafka: EmbeddedKafka, orders: str, tmp_path: Path) -> None:
    words = ["kafkagroup", "export", orders, "--to", str(tmp_path / "o.parquet"), "-b", kafka.bootstrap_servers]
    code = (
        "import sys\nfrom kafkagroup.cli.app import app\n"
        f"try:\n    app({words[1:]!r})\nexcept SystemExit as end:\n    assert not end.code, end\n"
        "print(sorted({'pyspark', 'py4j', 'pandas', 'polars'} & set(sys.modules)))"
    )
    # Without the native engine, rows become Arrow by `pyarrow.array`, which loads pandas where it is installed.
    loaded = "[]\n" if reason_to_skip() is None else "['pandas']\n"
    # No Java can be found either.
    there = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**there, "PATH": ""}, capture_output=True, text=True, check=True
    )
    assert done.stdout == loaded, done
    assert pl.read_parquet(tmp_path / "o.parquet").height == 1000
