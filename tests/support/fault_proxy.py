"""A proxy that damages a broker's responses by seeds: which fault comes is decided by the client id's seed alone."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafka_source.kafka_client.messages import cluster, group, transaction

_HEADER = struct.Struct(">hhih")
_SEED = re.compile(rb"seed-(\d+)")
_LONGEST_DELAY = 1.5
# Requests whose response begins with the throttle time, from which version on, and from which one it has tagged fields.
_THROTTLING = {
    request.API_KEY: (first, request.flexible_from)
    for request, first in (
        (cluster.MetadataRequest, 3),
        (cluster.FindCoordinatorRequest, 1),
        (cluster.ListOffsetsRequest, 2),
        (group.JoinGroupRequest, 2),
        (group.SyncGroupRequest, 1),
        (group.HeartbeatRequest, 1),
        (group.LeaveGroupRequest, 1),
        (group.OffsetCommitRequest, 3),
        (group.OffsetFetchRequest, 3),
        (transaction.InitProducerIdRequest, 0),
        (transaction.AddOffsetsToTxnRequest, 0),
        (transaction.TxnOffsetCommitRequest, 0),
        (transaction.EndTxnRequest, 0),
    )
}

FAULTS = ("delay", "drip", "cut", "half-open", "throttle", "wrong id")


@dataclass
class _Connection:
    client: socket.socket
    broker: socket.socket
    seed: int | None = None
    # API key and version of each request without a response.
    asked: list[tuple[int, int]] = field(default_factory=list)
    silent: bool = False


class FaultProxy:
    """Forwards to a port of 127.0.0.1; clients whose id has no `seed-N` meet no fault.

    Args:
        share: The part of responses that meet a fault.

    Attributes:
        port: Where it listens.
        made: How often each fault was made.
        healed: The seeds that meet no more faults.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.made: Counter[str] = Counter()
        self.healed: set[int] = set()
        self._draws: dict[int, random.Random] = {}
        self._target = 0
        self._closed = threading.Event()
        self._open: list[_Connection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def connect_to(self, port: int) -> None:
        """Begin to forward."""
        self._target = port
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        self._closed.set()
        for end in (self._listener, *(end for one in self._open for end in (one.client, one.broker))):
            _end(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._target), 10)
            except OSError:
                return
            broker.settimeout(None)
            connection = _Connection(client, broker)
            self._open.append(connection)
            for forward in (self._requests, self._responses):
                threading.Thread(target=self._run, args=(forward, connection), daemon=True).start()

    def _run(self, forward: Callable[[_Connection], None], connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            forward(connection)
        if not connection.silent:
            _end(connection.client)
        _end(connection.broker)

    def _requests(self, connection: _Connection) -> None:
        for frame in _frames(connection.client):
            key, version, _, size = _HEADER.unpack_from(frame)
            if connection.seed is None and (seed := _SEED.search(frame[_HEADER.size : _HEADER.size + size])):
                connection.seed = int(seed[1])
            connection.asked.append((key, version))
            connection.broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _responses(self, connection: _Connection) -> None:
        for frame in _frames(connection.broker):
            asked = connection.asked.pop(0)
            fault = self._fault(connection.seed)
            if fault is not None:
                self.made[fault[0]] += 1
            if not self._answer(connection, struct.pack(">i", len(frame)) + frame, asked, fault):
                return

    def _fault(self, seed: int | None) -> tuple[str, random.Random] | None:
        if seed is None or seed in self.healed:
            return None
        draw = self._draws.setdefault(seed, random.Random(seed))
        return (draw.choice(FAULTS), draw) if draw.random() < self.share else None

    def _answer(
        self, connection: _Connection, data: bytes, asked: tuple[int, int], fault: tuple[str, random.Random] | None
    ) -> bool:
        """Send a response, or what a fault makes of it; False: nothing more comes over this connection."""
        name, draw = fault or ("", random.Random())
        client = connection.client
        if name == "delay":
            self._closed.wait(draw.uniform(0.05, _LONGEST_DELAY))
        elif name == "drip":
            size = max(1, len(data) // 20)
            for start in range(0, len(data), size):
                client.sendall(data[start : start + size])
                self._closed.wait(draw.uniform(0.0, _LONGEST_DELAY / 10))
            return True
        elif name == "cut":
            client.sendall(data[: draw.randrange(len(data))])
            return False
        elif name == "half-open":
            connection.silent = True
            return False
        elif name == "wrong id":
            data = data[:4] + struct.pack(">i", draw.randrange(1 << 31)) + data[8:]
        elif name == "throttle" and asked[0] in _THROTTLING:
            first, flexible = _THROTTLING[asked[0]]
            if asked[1] >= first:
                place = 8 + (1 if flexible is not None and asked[1] >= flexible else 0)
                pause = struct.pack(">i", draw.randrange(50, 1500))
                data = data[:place] + pause + data[place + 4 :]
        client.sendall(data)
        return True


def _frames(sock: socket.socket) -> Iterator[bytes]:
    with sock.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", head)[0])


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
