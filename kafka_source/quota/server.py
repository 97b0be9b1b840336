"""The driver hands out what may be fetched over TCP, one line of JSON each way, to tasks in whatever processes."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka_source.kafka_client import Endpoint
from kafka_source.quota.account import Account, Grant, Report
from kafka_source.quota.pacer import LocalAllowances
from kafka_source.quota.settings import Ticket

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_SECONDS = 5.0
_LONGEST_LINE = 1 << 20
_BACKLOG = 128


class QuotaServer:
    """Serves one query's account; tasks show a token that only the query's plan has.

    Args:
        account: Of the query; from here on only to be used by `call`.
        listener: A socket that listens already.
        token: See `new_token`.
        patience: Seconds within which a connection has to show the token.
    """

    def __init__(self, account: Account, listener: socket.socket, token: str, patience: float = _SECONDS) -> None:
        self._account = account
        self._patience = patience
        self._lock = threading.Lock()
        self._asked_at = time.monotonic()
        self.token = token
        self._server = _Listener(listener, self._make_handler())
        host, port, *_ = listener.getsockname()
        self.endpoint: tuple[str, int] = (str(host), int(port))
        threading.Thread(target=self._server.serve_forever, args=(0.5,), name="kafkagroup-quota", daemon=True).start()

    def call(self, work: Callable[[Account], _T]) -> _T:
        """The result of something done with the account while no task is served."""
        with self._lock:
            return work(self._account)

    @property
    def idle_seconds(self) -> float:
        """Seconds since a task asked last, or came to ask."""
        return time.monotonic() - self._asked_at

    def close(self) -> None:
        """No longer listen; tasks that are still reading pace themselves from here on."""
        self._server.shutdown()
        self._server.server_close()

    def _make_handler(self) -> type[socketserver.StreamRequestHandler]:
        serve, asked, token, patience = self._serve, self._asked, self.token, self._patience

        class Handler(socketserver.StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                # A machine that is gone says no goodbye.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self.connection.settimeout(patience)
                shown = self.rfile.readline(256).strip()
                self.connection.settimeout(None)
                if hmac.compare_digest(shown, token.encode()):
                    asked()
                    while line := self.rfile.readline(_LONGEST_LINE):
                        self.wfile.write(serve(line))

        return Handler

    def _asked(self) -> None:
        self._asked_at = time.monotonic()

    def _serve(self, line: bytes) -> bytes:
        report = Report.from_json(json.loads(line))
        self._asked()
        grant = self.call(lambda account: account.grant(report, time.monotonic()))
        return json.dumps([grant.delay, grant.bytes, grant.records]).encode() + b"\n"


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a task's connection to the quota of its query ended", exc_info=True)


class RemoteAllowances:
    """Allowances that the driver hands out; a task that cannot ask it paces itself by its share.

    Args:
        ticket: With the driver's endpoint.
        own: What serves without it.
    """

    def __init__(self, ticket: Ticket, own: Callable[[], LocalAllowances]) -> None:
        assert ticket.endpoint is not None
        self._make_own = own
        self._own: LocalAllowances | None = None
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.create_connection(ticket.endpoint, _SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines = self._socket.makefile("rb")
            self._socket.sendall(ticket.token.encode() + b"\n")
        except OSError as problem:
            self._fall_back(problem)

    def ask(self, report: Report) -> Grant:
        """See `Allowances`."""
        if self._own is None:
            assert self._socket is not None
            try:
                self._socket.sendall(json.dumps(report.to_json()).encode() + b"\n")
                return Grant(*json.loads(self._lines.readline()))
            except (OSError, ValueError, TypeError) as problem:
                self._fall_back(problem)
        assert self._own is not None
        return self._own.ask(report)

    def close(self) -> None:
        """See `Allowances`."""
        if self._socket is not None:
            self._socket.close()
        if self._own is not None:
            self._own.close()

    def _fall_back(self, problem: Exception) -> None:
        log.warning("the query's driver cannot be asked for its quota (%s): this task keeps to its share", problem)
        self._own = self._make_own()


def new_token() -> str:
    """What only the tasks of one query know."""
    return secrets.token_hex(16)


def listen_towards(servers: Iterable[Endpoint]) -> socket.socket:
    """A socket that listens where this machine reaches a server: executors that reach the brokers will reach it too.

    Args:
        servers: Any one will do; those that have no address now, or no route, are passed over.
    """
    for server in servers:
        with contextlib.suppress(OSError):
            for family, kind, number, _, where in socket.getaddrinfo(server.host, server.port, type=socket.SOCK_DGRAM):
                with contextlib.suppress(OSError), socket.socket(family, kind, number) as probe:
                    # Nothing is sent: connecting a datagram socket only chooses the route.
                    probe.connect(where)
                    return socket.create_server((probe.getsockname()[0], 0), family=family, backlog=_BACKLOG)
    return socket.create_server((socket.gethostname(), 0), backlog=_BACKLOG)
