"""A schema registry of a test: a real HTTP server that answers as the test says, and counts what it was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

Answer = tuple[int, Mapping[str, str], bytes]
HANGS_UP, SILENT = 0, 1
"""Statuses of what is no answer: the connection is closed, or nothing comes until the client closes it."""


class RegistryServer:
    """Answers on a free loopback port; 404 with Confluent's code for what it does not have.

    Attributes:
        asked: The paths of all requests, in their order.
        headers: The headers of the last request.
        posted: What was posted, in its order.
        answers: What to answer, by path; without its query what is answered whatever that is.
        first: Answers that are given once each, to whatever is asked next.
        connections: The connections that were made to it.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.posted: list[object] = []
        self.answers: dict[str, Answer] = {}
        self.first: list[Answer] = []
        self.connections: list[socket.socket] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer.connections.append(self.connection)

            def do_GET(self) -> None:
                status, headers, body = outer._answer(self.path, dict(self.headers.items()))
                if status in (HANGS_UP, SILENT):
                    self.close_connection = True
                    if status == SILENT:
                        self.rfile.read(1)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                outer.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(self, schema_id: int, schema: object, subject: str = "", **more: object) -> int:
        """Have a schema under its id, and as the newest version of a subject if one is named."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, **more}
        self.answers[f"/schemas/ids/{schema_id}"] = 200, {}, json.dumps(body).encode()
        if subject:
            answer: Answer = 200, {}, json.dumps({"subject": subject, "id": schema_id, "version": 1, **body}).encode()
            self.answers[f"/subjects/{subject}/versions/latest"] = answer
            self.answers[f"/subjects/{subject}/versions/1"] = answer
        return schema_id

    def count(self, schema_id: int) -> int:
        """How often it was asked for this id."""
        return self.asked.count(f"/schemas/ids/{schema_id}")

    def disconnect(self) -> None:
        """Close all connections, as a server does with idle ones."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, path: str, headers: dict[str, str]) -> Answer:
        with self._lock:
            self.asked.append(path)
            self.headers = headers
            if self.first:
                return self.first.pop(0)
            unknown: Answer = 404, {}, b'{"error_code":40403,"message":"Schema not found"}'
            return self.answers.get(path) or self.answers.get(path.partition("?")[0], unknown)

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self.disconnect()
        self._server.server_close()
        self._thread.join(10)
