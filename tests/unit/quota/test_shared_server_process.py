"""One server process for the short-lived processes of a Spark driver, found by a file that nobody else can read."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.quota.account import GRANT_SECONDS
from kafka_source.quota.bounds import UNBOUNDED, Bounds, QuotaSettings
from kafka_source.quota.server import ticket_of_server_process
from kafka_source.quota.task_pacer import pacer_of
from kafka_source.sink.writer import stream_writer
from tests.support.waiting import wait_until

QUOTA = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), 10, 1.0, None, None, "etl")
SETTINGS = Settings({"bootstrap.servers": "127.0.0.1:1"})
ASK = """
import sys
from kafka_source.client_config import Settings
from kafka_source.quota.bounds import Bounds, QuotaSettings
from kafka_source.quota.server import ticket_of_server_process

quota = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), 10, 1.0, None, None, "etl")
settings = Settings({"bootstrap.servers": "127.0.0.1:1"})
ticket = ticket_of_server_process(quota, settings, "producer_byte_rate", int(sys.argv[1]), sys.argv[2])
print(ticket.server.port)
"""


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    document = tmp_path / "quota.json"
    document.write_text('{"bytes_per_second": 5}')
    return document


@pytest.fixture
def driver(program: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    return program


def asked(driver: subprocess.Popen[bytes], name: str, directory: Path) -> int:
    """The port of the server that a process of its own was given."""
    arguments = [sys.executable, "-c", ASK, str(driver.pid), name]
    done = subprocess.run(arguments, env={**os.environ, "TMPDIR": str(directory)}, stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def test_processes_of_a_driver_share_it_and_it_leaves_nothing_behind(
    driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    one = asked(driver, "one", tmp_path)
    assert asked(driver, "one", tmp_path) == one
    assert asked(driver, "two", tmp_path) == one
    (directory,) = tmp_path.iterdir()
    assert directory.stat().st_mode & 0o077 == 0
    assert len(list(directory.iterdir())) == 1
    driver.kill()
    driver.wait()
    wait_until(lambda: not list(directory.iterdir()), "the process to end with its driver")


def test_another_is_started_for_one_that_is_gone(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    one = asked(driver, "one", tmp_path)
    (file,) = tmp_path.glob("*/*.json")
    # What one that was killed leaves behind: a file that names a port where nobody answers.
    file.write_text(json.dumps(["127.0.0.1", 1, "gone"]))
    another = asked(driver, "one", tmp_path)
    assert another not in (one, 1)
    assert asked(driver, "one", tmp_path) == another


def test_a_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"kafkagroup-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(InvalidConfigurationError, match="TMPDIR"):
        ticket_of_server_process(QUOTA, SETTINGS, "", os.getpid(), "one")


@pytest.mark.usefixtures("users_program")
def test_a_writer_that_is_not_sent_to_tasks_starts_none(tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "quota.bytes.per.second": "1000"}
    stream_writer(options, StructType().add("value", StringType()), False).commit([], 0)
    assert not list(tmp_path.iterdir())


def test_what_is_watched_is_looked_at_before_anything_is_read(driver: subprocess.Popen[bytes], document: Path) -> None:
    quota = replace(QUOTA, bounds=UNBOUNDED, watch=str(document))
    ticket = ticket_of_server_process(quota, SETTINGS, "consumer_byte_rate", driver.pid, "one")
    assert ticket.bounds == Bounds(5.0)
    # Another read has its own bounds, at the same server.
    document.write_text('{"bytes_per_second": 7}')
    other = ticket_of_server_process(quota, SETTINGS, "consumer_byte_rate", driver.pid, "two")
    assert (other.bounds, other.server) == (Bounds(7.0), ticket.server)
    document.write_text('{"bytes_per_sec": 5}')
    with pytest.raises(InvalidConfigurationError, match=r"quota\.watch.*bytes_per_sec"):
        ticket_of_server_process(quota, SETTINGS, "consumer_byte_rate", driver.pid, "three")


def test_a_later_micro_batch_has_the_bounds_that_the_server_watches(
    driver: subprocess.Popen[bytes], document: Path
) -> None:
    quota = replace(QUOTA, bounds=UNBOUNDED, watch=str(document), seconds=0.01)

    def bounds() -> Bounds:
        return ticket_of_server_process(quota, SETTINGS, "producer_byte_rate", driver.pid, "sink").bounds

    assert [bounds() for _ in range(3)] == [Bounds(5.0)] * 3
    document.write_text('{"bytes_per_second": 7}')
    wait_until(lambda: bounds() == Bounds(7.0), "the server to see the change")
    # The query has begun, so a document that cannot be read leaves the last bounds.
    document.write_text('{"bytes_per_sec')
    assert bounds() == Bounds(7.0)


def test_it_serves_and_ends_with_the_driver(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ticket = ticket_of_server_process(QUOTA, SETTINGS, "consumer_byte_rate", driver.pid, "one")
    assert ticket.server.secret not in repr(ticket)
    tickets = [ticket.of(slot, 0.25) for slot in range(2)]
    with pacer_of(tickets[0], SETTINGS, "") as one, pacer_of(tickets[1], SETTINGS, "") as two:
        assert one.seconds_to_wait(100) == 0
        assert one.max_bytes(1000) == GRANT_SECONDS * 1_000_000  # not its share: the server answers
        one.fetched(3_000_000, 3000)
        one.seconds_to_wait(100)
        assert two.seconds_to_wait(100) > 0
    driver.kill()
    if sys.platform == "darwin":  # where a zombie counts as a process that runs
        driver.wait()

    def is_gone() -> bool:
        try:
            socket.create_connection((ticket.server.host, ticket.server.port), 1).close()
        except ConnectionError:
            return True
        return False

    wait_until(is_gone, "the server to end with its driver")
