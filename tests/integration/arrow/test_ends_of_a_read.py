"""A read that is cut short, by Ctrl-C, a pipe that breaks or an error in the loop, ends at once and leaves nothing."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from kafkagroup import arrow
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import write_records

ROOT = Path(__file__).parents[3]
RECORDS = 30_000


def total(stream: arrow.Stream) -> object:
    # With more threads DuckDB may read in another one than the main thread, which alone gets the signal.
    with duckdb.connect(config={"threads": 1}) as connection:
        found = connection.sql("select sum(length(value)) from stream")
        return found and found.fetchall()


@pytest.fixture(scope="module")
def orders(kafka: EmbeddedKafka) -> str:
    name = "arrow-ends"
    kafka.create_topic(name, partitions=2)
    records = ({"value": str(number).ljust(100), "partition": number % 2} for number in range(RECORDS))
    write_records(kafka.bootstrap_servers, name, records)
    return name


def child(kafka: EmbeddedKafka, topic: str, code: str) -> subprocess.Popen[bytes]:
    """A process in which `stream` is a read of the topic."""
    program = (
        "import sys\nimport pyarrow\nfrom kafkagroup import arrow\n"
        f"settings = {{'bootstrap.servers': {kafka.bootstrap_servers!r}}}\n"
        f"with arrow.read({topic!r}, settings, columns='value string', max_bytes=100_000, bar=False) as stream:\n"
        f"    {code}\n"
    )
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ctrl_c_ends_a_process_that_reads(kafka: EmbeddedKafka, orders: str) -> None:
    with child(kafka, orders, "while True:\n        print(sum(len(batch) for batch in stream), flush=True)") as running:
        assert running.stdout is not None and running.stderr is not None
        assert int(running.stdout.readline()) == RECORDS
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        said = running.stderr.read()
        assert running.wait(30) != 0
    assert b"KeyboardInterrupt" in said, said


@pytest.mark.parametrize("use", [list, pl.DataFrame, pa.table, lambda stream: stream.to_reader().read_pandas(), total])
def test_ctrl_c_ends_a_read_in_every_library(
    kafka: EmbeddedKafka, orders: str, use: Callable[[arrow.Stream], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = 0

    def press_ctrl_c(*_: object) -> None:
        nonlocal batches
        batches += 1
        if batches == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("kafkagroup.arrow.reading.Bar.update", press_ctrl_c)
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    with arrow.read(orders, settings, columns="value string", max_bytes=100_000) as stream:
        with pytest.raises(BaseException) as seen:
            use(stream)
    assert isinstance(seen.value, KeyboardInterrupt) or "KeyboardInterrupt" in str(seen.value)
    assert batches == 3, "nothing more was read"
    monkeypatch.undo()
    assert pa.table(arrow.read(orders, settings)).num_rows == RECORDS


def test_a_pipe_that_breaks_ends_a_read(kafka: EmbeddedKafka, orders: str) -> None:
    code = (
        "with pyarrow.ipc.new_stream(sys.stdout.buffer, stream.schema) as pipe:\n"
        "        for batch in stream:\n            pipe.write_batch(batch)"
    )
    with child(kafka, orders, code) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.read(1000)
        running.stdout.close()
        said = running.stderr.read()
        assert running.wait(30) != 0
    assert b"BrokenPipeError" in said, said


def test_an_error_in_the_loop_ends_a_read_and_the_next_one_is_whole(kafka: EmbeddedKafka, orders: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    assert sum(batch.num_rows for batch in arrow.read(orders, settings)) == RECORDS
    threads = threading.active_count()
    stream = arrow.read(orders, settings, max_bytes=100_000)
    with pytest.raises(ZeroDivisionError), stream:
        for _ in stream:
            raise ZeroDivisionError
    with pytest.raises(ValueError, match="closed"):
        iter(stream)
    assert pa.table(arrow.read(orders, settings)).num_rows == RECORDS
    assert threading.active_count() == threads
