"""The proxy between plain sockets: a client, and an upstream that answers each request with its correlation id."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy

FETCH = 1


class Upstream:
    """Answers `request(key, version, id, body)` with `id + body`."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while (request := read_frame(connection)) is not None:
                self.received.append(request)
                connection.sendall(frame(request[4:8] + request[8:]))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(api_key: int, correlation_id: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">hhi", api_key, 12, correlation_id) + body)


def read_frame(connection: socket.socket) -> bytes | None:
    with connection.makefile("rb", buffering=0) as stream:
        header = read_all(stream, 4)
        return read_all(stream, struct.unpack(">i", header)[0]) if header else None


def read_all(stream: object, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = stream.read(count - len(data))  # type: ignore[attr-defined]
        if not piece:
            return b""
        data += piece
    return data


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with closing(Upstream()) as server:
        yield server


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[TcpProxy]:
    with TcpProxy() as proxy:
        proxy.connect_to(upstream.port)
        yield proxy


def dial(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">i", correlation_id) + body


@settings(max_examples=20, deadline=None)
@given(bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=6), cut=st.integers(1, 50))
def test_frames_pass_unchanged_however_they_are_cut_into_packets(
    upstream: Upstream, bodies: list[bytes], cut: int
) -> None:
    with TcpProxy() as proxy:
        proxy.connect_to(upstream.port)
        with dial(proxy) as client:
            stream = b"".join(request(FETCH, number, body) for number, body in enumerate(bodies))
            for start in range(0, len(stream), cut):
                client.sendall(stream[start : start + cut])
            assert [read_frame(client) for _ in bodies] == [answer(n, body) for n, body in enumerate(bodies)]


def test_held_answers_come_after_the_release_in_their_order(proxy: TcpProxy, upstream: Upstream) -> None:
    before = len(upstream.received)
    proxy.hold("response")
    with dial(proxy) as client:
        client.sendall(request(FETCH, 1) + request(FETCH, 2))
        deadline = time.monotonic() + 10
        while len(upstream.received) < before + 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(upstream.received) == before + 2
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.release()
        client.settimeout(10)
        assert [read_frame(client), read_frame(client)] == [answer(1), answer(2)]


def test_close_ends_the_proxys_threads() -> None:
    proxy = TcpProxy()
    proxy.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(f"proxy-{proxy.port}")]


def test_what_is_held_when_the_proxy_ends_is_lost(upstream: Upstream) -> None:
    passed: list[Frame] = []
    # Whether the thread that holds it wakes before its sockets are closed is chance.
    for _ in range(50):
        proxy = TcpProxy()
        proxy.connect_to(upstream.port)
        proxy.on_response = lambda frame: passed.append(frame) or [frame.payload]
        proxy.hold("response")
        before = len(upstream.received)
        with dial(proxy) as client:
            client.sendall(request(FETCH, 1))
            deadline = time.monotonic() + 10
            while len(upstream.received) == before and time.monotonic() < deadline:
                time.sleep(0.001)
            proxy.close()
            assert client.recv(1) == b""
    assert not passed
