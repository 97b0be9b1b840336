"""Tasks ask the driver over a real socket, and fall back on their share without it."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.kafka_client import Endpoint
from kafka_source.quota import UNBOUNDED, Bounds
from kafka_source.quota.account import Account, Report
from kafka_source.quota.bounds_watcher import BoundsWatcher, look_first, look_of
from kafka_source.quota.server import QuotaServer, listen_towards, new_token
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.quota.task_pacer import pacer_of

QUOTA = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), False, 10, 1.0, None, None, "orders")
SETTINGS = Settings({"bootstrap.servers": "127.0.0.1:1"})


@pytest.fixture
def server():
    started = QuotaServer(Account(QUOTA), socket.create_server(("127.0.0.1", 0)), new_token())
    yield started
    started.close()


def ticket_of(server: QuotaServer, part: int = 0, share: float = 0.25) -> Ticket:
    return Ticket(QUOTA, QUOTA.bounds, part, share, server.endpoint, server.token)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_it_listens_where_a_broker_is_reached_whichever_that_is(address):
    if ":" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    gone, there = Endpoint("no-such-host.invalid", 9092), Endpoint(address, 9092)
    server = QuotaServer(Account(QUOTA), listen_towards([gone, there]), new_token())
    assert server.endpoint[0] == address
    with pacer_of(ticket_of(server), SETTINGS, "") as pacer:
        assert pacer.wait(100) == 0
        pacer.fetched(200_000, 200)
        assert pacer.wait(100) > 0
    assert server.call(lambda account: account.figures(time.monotonic()))["slots"]["0"]["bytes"] == 200_000
    server.close()


def test_it_listens_by_its_own_name_where_no_broker_has_an_address():
    with listen_towards([Endpoint("no-such-host.invalid", 9092)]) as listener:
        assert listener.getsockname()[1] > 0


def test_tasks_share_one_quota(server):
    with pacer_of(ticket_of(server, 0), SETTINGS, "") as one, pacer_of(ticket_of(server, 1), SETTINGS, "") as two:
        assert one.wait(100) == 0
        # It comes after the first one.
        assert 0 < two.wait(100) <= 0.026
        assert one.most_bytes(1000) == 25_000
        # The second task has come since: each has half of what is to be read.
        assert two.most_bytes(1000) == 12_500
        one.fetched(200_000, 200)
        assert one.wait(100) > 0
        two.fetched(25_000, 25)
        assert two.wait(100) > 0
    figures = server.call(lambda account: account.figures(time.monotonic()))
    assert figures["usedPercent"] == 100
    assert figures["slots"]["0"]["bytes"] == 200_000
    assert figures["slots"]["1"]["records"] == 25


def test_what_is_measured_and_throttled_is_told(server):
    tp = TopicPartition("orders", 3)
    with pacer_of(ticket_of(server), SETTINGS, "") as pacer:
        pacer.measured(tp, 500.0, 5)
        pacer.measured(tp, 700.0, 5)
        pacer.throttled(1.5)
    assert server.call(lambda account: account.record_bytes()) == {tp: 120.0}
    figures = server.call(lambda account: account.figures(time.monotonic()))
    assert figures["slots"]["0"]["throttleMs"] == 1500


def test_a_changed_bound_holds_for_tasks_that_run(server):
    with pacer_of(ticket_of(server), SETTINGS, "") as pacer:
        pacer.wait(1)
        pacer.fetched(10_000_000, 1)
        assert pacer.wait(1) > 0
        server.call(lambda account: account.change(UNBOUNDED))
        deadline = time.monotonic() + 10
        while pacer.wait(1) > 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert pacer.most_bytes(1000) is None


@pytest.mark.parametrize("why", ["token", "gone"])
def test_a_task_that_cannot_ask_keeps_to_its_share(server, why):
    ticket = ticket_of(server)
    if why == "token":
        ticket = replace(ticket, token="another")
    else:
        server.close()
    with pacer_of(ticket, SETTINGS, "") as pacer:
        assert pacer.wait(1) == 0
        assert pacer.most_bytes(1000) == 6_250
    assert "another" not in repr(ticket)


@pytest.mark.parametrize("watch", ["/no/such/file/here.json", "http://127.0.0.1:1/quota.json"])
def test_a_task_that_can_neither_ask_nor_look_keeps_to_its_share_of_what_held(server, watch):
    # The options themselves set no bound: the driver found it where it watches.
    quota = replace(QUOTA, bounds=UNBOUNDED, watch=watch, windows=1, seconds=0.1)
    server.close()
    with pacer_of(replace(ticket_of(server), settings=quota), SETTINGS, "") as pacer:
        assert pacer.wait(1) == 0
        assert pacer.most_bytes(1000) == 6_250


class Page:
    """A document on a web server.

    Attributes:
        text: The document.
        cut: Whether its last chunk ends too early.
        served: How often.
    """

    def __init__(self, text: str) -> None:
        self.text, self.cut, self.served = text, False, 0
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                end = "" if page.cut else "\r\n0\r\n\r\n"
                self.wfile.write(f"{len(page.text) + page.cut:x}\r\n{page.text}{end}".encode())
                page.served += 1

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def page():
    made = Page('{"bytes_per_second": 4000000}')
    yield made
    made.close()


def wait_for(happened) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_task_that_cannot_ask_looks_at_the_url_itself(server, page):
    server.close()
    quota = replace(QUOTA, watch=page.url, windows=1, seconds=0.1)
    with pacer_of(replace(ticket_of(server), settings=quota), SETTINGS, "") as pacer:
        wait_for(lambda: pacer.wait(1) == 0 and pacer.most_bytes(1000) == 25_000)


def test_a_document_that_comes_in_part_changes_nothing(page):
    quota = replace(QUOTA, watch=page.url)
    seen: list[Bounds] = []
    page.cut = True
    watch = BoundsWatcher(look_of(quota, SETTINGS, ""), seen.append, 0.1, QUOTA.bounds)
    try:
        wait_for(lambda: page.served > 2)
        assert seen == []
        page.cut = False
        wait_for(lambda: seen == [Bounds(4_000_000.0)])
    finally:
        watch.close()


def test_no_error_shows_what_is_in_a_url():
    quota = replace(QUOTA, watch="http://127.0.0.1:s3cret@quotas/")
    with pytest.raises(InvalidConfigurationError, match=r"quota\.watch .* InvalidURL$"):
        look_first(look_of(quota, SETTINGS, ""))


def test_a_connection_without_a_token_is_ended_and_one_with_it_may_be_silent():
    server = QuotaServer(Account(QUOTA), socket.create_server(("127.0.0.1", 0)), new_token(), patience=0.2)
    try:
        with (
            pacer_of(ticket_of(server), SETTINGS, "") as pacer,
            socket.create_connection(server.endpoint, timeout=30) as nobody,
        ):
            assert pacer.wait(1) == 0
            assert nobody.recv(1) == b""
            pacer.fetched(10_000, 10)
            time.sleep(0.3)
            assert pacer.wait(1) >= 0
        # The driver was told, not the task's own share.
        assert server.call(lambda account: account.figures(time.monotonic()))["slots"]["0"]["bytes"] == 10_000
    finally:
        server.close()


def test_a_report_survives_the_wire():
    report = Report(1, 2.0, 3.0, 4, 5.0, 6.0, {TopicPartition("t", 7): (8.0, 9)})
    assert Report.from_json(report.to_json()) == report


def test_a_file_is_watched(tmp_path):
    path = tmp_path / "quota.json"
    quota = replace(QUOTA, watch=str(path))
    seen: list[Bounds] = []
    watch = BoundsWatcher(look_of(quota, SETTINGS, ""), seen.append, 0.2, QUOTA.bounds)
    try:
        for text, expected in [
            ('{"bytes_per_second": 5}', Bounds(5.0)),
            ('{"bytes_per_sec', None),
            ('{"clients": {"orders": {"enabled": false}}}', UNBOUNDED),
        ]:
            path.write_text(text)
            deadline = time.monotonic() + 10
            while expected is not None and seen[-1:] != [expected]:
                assert time.monotonic() < deadline, seen
                time.sleep(0.01)
        assert seen == [Bounds(5.0), UNBOUNDED]
    finally:
        watch.close()
