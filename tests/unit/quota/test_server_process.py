"""The process that hands out a quota where Spark keeps none of ours: it serves, and ends with the Spark driver."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.quota.account import GRANT_SECONDS
from kafka_source.quota.bounds import UNBOUNDED, Bounds, QuotaSettings
from kafka_source.quota.server import ticket_of_server_process
from kafka_source.quota.task_pacer import pacer_of
from tests.support.waiting import wait_until

SETTINGS = Settings({"bootstrap.servers": "127.0.0.1:1"})


def test_what_is_watched_is_looked_at_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    document = tmp_path / "quota.json"
    document.write_text('{"bytes_per_second": 5}')
    quota = QuotaSettings(UNBOUNDED, 10, 1.0, str(document), None, "etl")
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticket = ticket_of_server_process(quota, SETTINGS, "consumer_byte_rate", driver.pid, "one")
        assert ticket.bounds == Bounds(5.0)
        document.write_text('{"bytes_per_sec": 5}')
        other = replace(quota, client_id="other")
        with pytest.raises(InvalidConfigurationError, match=r"quota\.watch.*bytes_per_sec"):
            ticket_of_server_process(other, SETTINGS, "consumer_byte_rate", driver.pid, "two")
    finally:
        driver.kill()
        driver.communicate()


def test_it_serves_and_ends_with_the_driver(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    quota = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), 10, 1.0, None, None, "etl")
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticket = ticket_of_server_process(quota, SETTINGS, "consumer_byte_rate", driver.pid, "one")
        assert ticket.server.secret not in repr(ticket)
        tickets = [ticket.of(slot, 0.25) for slot in range(2)]
        with pacer_of(tickets[0], SETTINGS, "") as one, pacer_of(tickets[1], SETTINGS, "") as two:
            assert one.seconds_to_wait(100) == 0
            assert one.max_bytes(1000) == GRANT_SECONDS * 1_000_000  # not its share: the server answers
            one.fetched(3_000_000, 3000)
            one.seconds_to_wait(100)
            assert two.seconds_to_wait(100) > 0
    finally:
        driver.kill()
        driver.communicate()

    def is_gone() -> bool:
        try:
            socket.create_connection((ticket.server.host, ticket.server.port), 1).close()
        except ConnectionError:
            return True
        return False

    wait_until(is_gone, "the server to end with its driver", 30)
