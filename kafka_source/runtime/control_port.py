"""A TCP port at which a driver answers its tasks, in lines of JSON.

A task first proves that it knows the port's secret, by the HMAC of a random challenge. The server reads nothing else
before the proof, and closes a connection without a proof after a few seconds. The secret is never sent.
"""

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

from kafka_source.runtime.event_loop import EventLoop

# The time for a task to connect, and for the server to wait for the proof.
_CONNECT_SECONDS = 5.0
_MAX_LINE = 1 << 20
# If a firewall blocks the port, each attempt takes the whole time limit. So a worker's tasks do not try again for this
# time.
_UNREACHABLE_SECONDS = 60.0
# The maximum number of connections that have not sent the proof yet.
_MAX_UNAUTHENTICATED = 64


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port of a control port, and its secret."""

    host: str
    port: int
    secret: str = field(repr=False)

    @staticmethod
    def of(listener: socket.socket) -> "Address":
        """Return the address of a listening socket, with a new secret."""
        host, port, *_ = listener.getsockname()
        return Address(str(host), int(port), secrets.token_hex())


class ControlPort:
    """The server at a control port, on its own thread.

    Args:
        listener: A listening socket.
        secret: The secret of its `Address`.
        answer: Returns the response to a task's request, both as JSON values; called on the server's thread.
        patience: Seconds within which a connection has to send the proof.
    """

    def __init__(
        self, listener: socket.socket, secret: str, answer: Callable[[Any], Any], patience: float = _CONNECT_SECONDS
    ) -> None:
        self._secret, self._answer, self._patience = secret, answer, patience
        self._strangers = 0
        self._connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        self.asked_at = time.monotonic()
        self._loop = EventLoop("kafkagroup-control")
        self._server = self._loop.run(asyncio.start_server(self._serve, sock=listener, limit=_MAX_LINE))

    def close(self) -> None:
        """Close all connections and stop listening."""
        if self._loop.alive:
            self._loop.run(self._end())
            self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        # Closing the writers ends the tasks that serve these connections.
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*(task for task in self._connections if task is not None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Keep-alive detects a machine that has disappeared.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connections[asyncio.current_task()] = writer
        try:
            with contextlib.closing(writer), contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
                known = await self._knows_secret(reader, writer)
                while known and (line := await reader.readline()):
                    self.asked_at = time.monotonic()
                    writer.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
        finally:
            del self._connections[asyncio.current_task()]

    async def _knows_secret(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if self._strangers >= _MAX_UNAUTHENTICATED:
            return False
        self._strangers += 1
        try:
            challenge = secrets.token_hex().encode()
            writer.write(challenge + b"\n")
            proof = await asyncio.wait_for(reader.readline(), self._patience)
            known = hmac.compare_digest(proof.strip(), _proof(self._secret, challenge))
            self.asked_at = time.monotonic() if known else self.asked_at
            return known
        finally:
            self._strangers -= 1


_unreachable: dict[Address, float] = {}
"""The ports that this process could not reach, each with the time of the next attempt (`time.monotonic`)."""


class ControlClient:
    """A task's connection to a control port, which is opened at the first request."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._resources = contextlib.ExitStack()
        self._stream: tuple[socket.socket, BufferedReader] | None = None

    def connect(self) -> tuple[socket.socket, BufferedReader]:
        """Return the connection; open it first if necessary, and prove that this task knows the secret.

        Raises:
            OSError: The port cannot be reached, or was not reached within the last minute.
        """
        if self._stream is None:
            if time.monotonic() < _unreachable.get(self._address, 0.0):
                raise TimeoutError(f"not reached within the last {_UNREACHABLE_SECONDS:g} s")
            try:
                self._stream = self._open()
            except OSError:
                _unreachable[self._address] = time.monotonic() + _UNREACHABLE_SECONDS
                raise
        return self._stream

    def _open(self) -> tuple[socket.socket, BufferedReader]:
        address = (self._address.host, self._address.port)
        peer = self._resources.enter_context(socket.create_connection(address, _CONNECT_SECONDS))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = self._resources.enter_context(peer.makefile("rb"))
        peer.sendall(_proof(self._address.secret, lines.readline().strip()) + b"\n")
        return peer, lines

    def ask(self, question: Any) -> Any:
        """Send a request and return the response, both as JSON values.

        Raises:
            OSError: The port cannot be reached, or the connection was lost: ConnectionResetError or BrokenPipeError.
            ValueError: The response is not JSON, because another server listens at the port.
        """
        peer, lines = self.connect()
        peer.sendall(json.dumps(question).encode() + b"\n")
        line = lines.readline()
        if not line:
            raise ConnectionResetError("the server closed the connection")
        return json.loads(line)

    def close(self) -> None:
        """Close the connection."""
        self._resources.close()


def listen_towards(servers: Iterable[tuple[str, int]]) -> socket.socket:
    """Return a socket that listens at the address from which this machine reaches one of the servers.

    Executors that can reach the servers can usually reach this address too.

    Args:
        servers: Hosts and ports; hosts that cannot be resolved or have no route are skipped.
    """
    for host, port in servers:
        with contextlib.suppress(OSError):
            for family, kind, number, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                with contextlib.suppress(OSError), socket.socket(family, kind, number) as probe:
                    # Connecting a datagram socket sends nothing, but selects the route and with it the local address.
                    probe.connect(where)
                    return socket.create_server((probe.getsockname()[0], 0), family=family)
    return socket.create_server((socket.gethostname(), 0))


def _proof(secret: str, challenge: bytes) -> bytes:
    return hmac.new(secret.encode(), challenge, "sha256").hexdigest().encode()
