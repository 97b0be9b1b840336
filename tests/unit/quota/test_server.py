"""Tasks ask the driver over a real socket, and fall back on their share without it."""

import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafka_source.quota.account import GRANT_SECONDS
from kafka_source.quota.bounds import UNBOUNDED, Bounds, QuotaSettings, Ticket, bounds_at_start, watch
from kafka_source.quota.server import QuotaServer
from kafka_source.quota.task_pacer import pacer_of
from kafka_source.runtime.control_port import Address, listen_towards
from tests.support.waiting import wait_until

QUOTA = QuotaSettings(Bounds(bytes_per_second=1_000_000.0), 10, 1.0, None, None, "orders")
SETTINGS = Settings({"bootstrap.servers": "127.0.0.1:1"})


GRANT = int(GRANT_SECONDS * 1_000_000)


class Served:
    """An account that is served."""

    def __init__(self, listener: socket.socket | None = None) -> None:
        listener = listener or socket.create_server(("127.0.0.1", 0))
        self.address = Address.of(listener)
        self._server = QuotaServer(self.ticket(), SETTINGS, "", listener)
        self.account, self.close = self._server.account("read"), self._server.close

    def ticket(self, slot: int = 0, share: float = 0.25, account: str = "read") -> Ticket:
        return Ticket(QUOTA, QUOTA.bounds, self.address, slot, share, account)

    def figures(self):
        return self.account.figures(time.monotonic())


@pytest.fixture
def server():
    with closing(Served()) as started:
        yield started


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_it_listens_where_a_broker_is_reached_whichever_that_is(address):
    if ":" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    gone, there = ("no-such-host.invalid", 9092), (address, 9092)
    server = Served(listen_towards([gone, there]))
    assert server.address.host == address
    with pacer_of(server.ticket(), SETTINGS, "") as pacer:
        assert pacer.seconds_to_wait(100) == 0
        pacer.fetched(200_000, 200)
        assert pacer.seconds_to_wait(100) > 0
    assert server.figures()["slots"]["0"]["bytes"] == 200_000
    server.close()


def test_tasks_share_one_quota(server):
    with pacer_of(server.ticket(0), SETTINGS, "") as one, pacer_of(server.ticket(1), SETTINGS, "") as two:
        assert one.seconds_to_wait(100) == 0
        assert one.max_bytes(1000) == GRANT
        one.fetched(200_000, 200)
        began = time.monotonic()
        wait = one.seconds_to_wait(1000)
        assert wait > 0
        # It comes after the first one, for as much as that has fetched.
        later = two.seconds_to_wait(1000)
        assert wait + 0.15 - (time.monotonic() - began) < later < wait + 0.25
        assert two.max_bytes(1000) == GRANT
        two.fetched(25_000, 25)
    figures = server.account.figures(began)
    assert figures["usedPercent"] == 100
    assert figures["slots"]["0"]["bytes"] == 200_000
    assert figures["slots"]["1"]["records"] == 25


def test_reads_that_share_a_server_have_a_quota_each(server):
    with pacer_of(server.ticket(), SETTINGS, "") as one, pacer_of(server.ticket(account="2"), SETTINGS, "") as two:
        one.seconds_to_wait(100)
        one.fetched(20_000_000, 200)
        assert one.seconds_to_wait(1000) > 0.5
        assert two.seconds_to_wait(1000) == 0


def test_what_is_measured_and_throttled_is_told(server):
    tp = TopicPartition("orders", 3)
    with pacer_of(server.ticket(), SETTINGS, "") as pacer:
        pacer.measured(tp, 500.0, 5)
        pacer.measured(tp, 700.0, 5)
        pacer.throttled(1.5)
    assert server.account.record_bytes() == {tp: 120.0}
    figures = server.figures()
    assert figures["slots"]["0"]["throttleMs"] == 1500


def test_a_changed_bound_holds_for_tasks_that_run(server):
    with pacer_of(server.ticket(), SETTINGS, "") as pacer:
        pacer.seconds_to_wait(1)
        pacer.fetched(10_000_000, 1)
        assert pacer.seconds_to_wait(1) > 0
        server.account.change(UNBOUNDED)
        wait_until(lambda: pacer.seconds_to_wait(1) == 0, "the changed bound", 10)
        assert pacer.max_bytes(1000) is None


@pytest.mark.parametrize("why", ["token", "gone"])
def test_a_task_that_cannot_ask_keeps_to_its_share(server, why):
    ticket = server.ticket()
    if why == "token":
        ticket = replace(ticket, server=replace(ticket.server, secret="another"))
    else:
        server.close()
    with pacer_of(ticket, SETTINGS, "") as pacer:
        assert pacer.seconds_to_wait(1) == 0
        assert pacer.max_bytes(1000) == GRANT // 4
    assert "another" not in repr(ticket)


@pytest.mark.parametrize("watch", ["/no/such/file/here.json", "http://127.0.0.1:1/quota.json"])
def test_a_task_that_can_neither_ask_nor_look_keeps_to_its_share_of_what_held(server, watch):
    # The options themselves set no bound: the driver found it where it watches.
    quota = replace(QUOTA, bounds=UNBOUNDED, watch=watch, windows=1, seconds=0.1)
    server.close()
    with pacer_of(replace(server.ticket(), settings=quota), SETTINGS, "") as pacer:
        assert pacer.seconds_to_wait(1) == 0
        assert pacer.max_bytes(1000) == GRANT // 4


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
    with closing(Page('{"bytes_per_second": 4000000}')) as made:
        yield made


def test_a_task_that_cannot_ask_looks_at_the_url_itself(server, page):
    server.close()
    quota = replace(QUOTA, watch=page.url, windows=1, seconds=0.1)
    with pacer_of(replace(server.ticket(), settings=quota), SETTINGS, "") as pacer:
        wait_until(lambda: pacer.seconds_to_wait(1) == 0 and pacer.max_bytes(1000) == GRANT, "the page's bound", 30)


def test_a_document_that_comes_in_part_changes_nothing(page):
    quota = replace(QUOTA, watch=page.url, windows=1, seconds=0.1)
    seen: list[Bounds] = []
    page.cut = True
    stop = watch(quota, SETTINGS, "", QUOTA.bounds, seen.append)
    try:
        wait_until(lambda: page.served > 2, "the page's bound", 30)
        assert seen == []
        page.cut = False
        wait_until(lambda: seen == [Bounds(4_000_000.0)], "the page's bound", 30)
    finally:
        stop()


def test_no_error_shows_what_is_in_a_url():
    quota = replace(QUOTA, watch="http://127.0.0.1:s3cret@quotas/")
    with pytest.raises(InvalidConfigurationError, match=r"quota\.watch .* InvalidURL$"):
        bounds_at_start(quota, SETTINGS, "")


def test_a_file_is_watched(tmp_path):
    path = tmp_path / "quota.json"
    quota = replace(QUOTA, watch=str(path), windows=1, seconds=0.2)
    seen: list[Bounds] = []
    stop = watch(quota, SETTINGS, "", QUOTA.bounds, seen.append)

    def is_last(bounds: Bounds | None) -> bool:
        return bounds is None or seen[-1:] == [bounds]

    try:
        for text, expected in [
            ('{"bytes_per_second": 5}', Bounds(5.0)),
            ('{"bytes_per_sec', None),
            ('{"clients": {"orders": {"enabled": false}}}', UNBOUNDED),
        ]:
            path.write_text(text)
            wait_until(partial(is_last, expected), f"{expected} after {seen}", 10)
        assert seen == [Bounds(5.0), UNBOUNDED]
    finally:
        stop()
