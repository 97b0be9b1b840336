"""A TCP proxy that drops, holds, duplicates or changes requests and responses between a Kafka client and a broker.

    proxy = TcpProxy()
    with proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port(1))
        proxy.on_response = lambda frame: [] if frame.api_key == OFFSET_COMMIT else [frame.payload]

A hook gets a whole frame (a request or a response without its 4 bytes of length) and returns the payloads to forward:
`[frame.payload]` forwards the frame unchanged, `[]` drops the frame, `[frame.payload] * 2` duplicates the frame. A hook
may raise `CutConnection`. Hooks run in the connections' threads. For connections with TLS, use
`TcpProxy(frames=False)`, which forwards bytes without hooks.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from kafkagroup.embedded.server_config import LOOPBACK, free_ports

Direction = Literal["request", "response"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One request or response of the Kafka protocol."""

    direction: Direction
    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    payload: bytes


Hook = Callable[[Frame], Iterable[bytes]]


class CutConnection(Exception):  # noqa: N818
    """Raised by a hook to close the connections to client and broker instead of forwarding the frame."""


def pass_on(frame: Frame) -> Iterable[bytes]:
    """Return the frame's payload unchanged: the default hook."""
    return [frame.payload]


class TcpProxy:
    """Listens on a loopback port from its creation, and forwards connections to the port that `connect_to` sets.

    Args:
        port: The port to listen on; None: a free port.
        frames: Whether to split the bytes into Kafka frames and call the hooks; false for TLS.

    Attributes:
        on_request: Hook for frames to the broker.
        on_response: Hook for frames to the client.
        delay: Seconds to wait before a frame is forwarded.
        refuse: Whether to close each new connection immediately.
    """

    def __init__(self, port: int | None = None, *, frames: bool = True) -> None:
        self.on_request: Hook = pass_on
        self.on_response: Hook = pass_on
        self.delay = 0.0
        self.refuse = False
        self._frames = frames
        self._target: int | None = None
        self._changed = threading.Condition()
        self._held: set[Direction] = set()
        self._closed = False
        self._connections: set[_Connection] = set()
        self._numbers = itertools.count(1)
        self._listener = socket.create_server((LOOPBACK, port or free_ports(1)[0]))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)
        self._acceptor.start()

    def __repr__(self) -> str:
        return f"TcpProxy({self.port} -> {self._target})"

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect_to(self, port: int) -> None:
        """Forward new connections to this loopback port. Before this call, new connections are closed immediately."""
        self._target = port

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        with self._changed:
            return len(self._connections)

    def cut(self) -> None:
        """Close every open connection; new connections are accepted unless `refuse` is set."""
        with self._changed:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        with self._changed:
            self._changed.notify_all()

    def hold(self, *directions: Direction) -> None:
        """Stop forwarding in these directions (by default both) until `release`; connections stay open."""
        with self._changed:
            self._held |= set(directions or ("request", "response"))

    def release(self) -> None:
        """Forward the held frames in their order, and then new frames."""
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Close every connection and stop listening."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        # On Linux, closing the socket does not wake a thread that waits in accept; a shutdown does.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._acceptor.join(5)

    # ---- inside

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse or self._target is None:
                client.close()
                continue
            try:
                broker = socket.create_connection((LOOPBACK, self._target), timeout=10)
            except OSError:
                client.close()
                continue
            for end in (client, broker):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(next(self._numbers), client, broker)
            with self._changed:
                self._connections.add(connection)
            for direction in ("request", "response"):
                threading.Thread(
                    target=self._forward,
                    args=(connection, direction),
                    name=f"proxy-{self.port}-{connection.number}-{direction}",
                    daemon=True,
                ).start()

    def _forward(self, connection: _Connection, direction: Direction) -> None:
        try:
            while (chunk := self._next(connection, direction)) is not None:
                if not self._wait(connection, direction):
                    break
                for out in self._apply(connection, direction, chunk):
                    connection.send(direction, out)
        except (OSError, CutConnection):
            pass
        finally:
            connection.close()
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def _next(self, connection: _Connection, direction: Direction) -> bytes | None:
        return connection.receive_frame(direction) if self._frames else connection.receive_some(direction)

    def _wait(self, connection: _Connection, direction: Direction) -> bool:
        """Wait until this direction is released, and then for the delay.

        Returns:
            False if the connection or the proxy has been closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: direction not in self._held or connection.closed.is_set() or self._closed)
        if self._closed:
            return False
        return not connection.closed.wait(self.delay) if self.delay else not connection.closed.is_set()

    def _apply(self, connection: _Connection, direction: Direction, chunk: bytes) -> Iterable[bytes]:
        if not self._frames:
            return [chunk]
        frame = connection.describe(direction, chunk)
        hook = self.on_request if direction == "request" else self.on_response
        return [struct.pack(">i", len(payload)) + payload for payload in hook(frame)]


class _Connection:
    """The sockets to client and broker, and the API of each request, because responses do not contain the API."""

    def __init__(self, number: int, client: socket.socket, broker: socket.socket) -> None:
        self.number = number
        self.closed = threading.Event()
        self._client = client
        self._broker = broker
        self._requests: dict[int, tuple[int, int]] = {}

    def send(self, direction: Direction, data: bytes) -> None:
        (self._broker if direction == "request" else self._client).sendall(data)

    def receive_some(self, direction: Direction) -> bytes | None:
        return self._source(direction).recv(65536) or None

    def receive_frame(self, direction: Direction) -> bytes | None:
        header = self._receive_exactly(direction, 4)
        return None if header is None else self._receive_exactly(direction, struct.unpack(">i", header)[0])

    def describe(self, direction: Direction, payload: bytes) -> Frame:
        if direction == "request":
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", payload)
            self._requests[correlation_id] = (api_key, api_version)
        else:
            (correlation_id,) = struct.unpack_from(">i", payload)
            # The entry is not removed, because a duplicated request has two responses.
            api_key, api_version = self._requests.get(correlation_id, (-1, -1))
        return Frame(direction, self.number, api_key, api_version, correlation_id, payload)

    def close(self) -> None:
        self.closed.set()
        for end in (self._client, self._broker):
            # Closing a socket does not wake the other thread, which waits in recv; a shutdown does.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _source(self, direction: Direction) -> socket.socket:
        return self._client if direction == "request" else self._broker

    def _receive_exactly(self, direction: Direction, count: int) -> bytes | None:
        source, parts = self._source(direction), bytearray()
        while len(parts) < count:
            piece = source.recv(min(count - len(parts), 1 << 20))
            if not piece:
                return None
            parts += piece
        return bytes(parts)
