"""A peer's length is checked before memory is allocated, and first bytes that are not Kafka's are named."""

import itertools
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.client_config import Settings
from kafka_source.kafka_client import (
    ApiVersions,
    BlockingConnection,
    ConnectionLost,
    Deadline,
    Endpoint,
    EventLoop,
    KafkaClient,
    RequestConnection,
)
from kafka_source.kafka_client.framing import HANDSHAKE_BYTES, FrameBuffer, FrameError
from kafka_source.kafka_client.handshake import Session
from kafka_source.kafka_client.metadata import Broker
from tests.support.fake_broker import listening

TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
MIB = 1 << 20


@pytest.fixture
def answering_with() -> Iterator[Callable[[bytes], Endpoint]]:
    """A listener that answers the first bytes of each connection with these, and then waits for the client's end."""
    answer = [b""]

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer[0])
        while connection.recv(65536):
            pass

    with listening(serve) as endpoint:

        def answering(content: bytes) -> Endpoint:
            answer[0] = content
            return endpoint

        yield answering


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("first_bytes", "named"),
    [
        pytest.param(TLS_ALERT, r"TLS.*kafka\.security\.protocol", id="a TLS alert"),
        pytest.param(HTTP, r"HTTP server.*kafka\.bootstrap\.servers", id="HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "no Kafka listener", id="SSH"),
        pytest.param((HANDSHAKE_BYTES + 1).to_bytes(4, "big"), "no Kafka listener", id="too long"),
        pytest.param(b"\xff\xff\xff\xff", "no Kafka listener", id="negative"),
    ],
)
@pytest.mark.parametrize("blocking", [True, False])
def test_who_answers_in_place_of_a_broker_is_named(
    answering_with: Callable[[bytes], Endpoint], first_bytes: bytes, named: str, blocking: bool
) -> None:
    endpoint = answering_with(first_bytes)
    client = KafkaClient(Settings({"bootstrap.servers": str(endpoint)}), EventLoop.shared())
    with little_memory(), pytest.raises(ConnectionLost, match=named) as caught:
        if blocking:
            client.open_socket(endpoint)
        else:
            client.run(client.dedicated(Broker(1, endpoint), Deadline(10)))
    assert str(endpoint) in str(caught.value)


@pytest.mark.parametrize("size", [2**31 - 1, 65 * MIB, 3, 0, -1])
def test_a_response_of_a_size_that_none_has_ends_the_connection(size: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        raw = BlockingConnection(ours, Session(ApiVersions({})), "me", Endpoint("b", 1), 0.0)
        connection = RequestConnection(raw, what="Fetching from", timeout=10, max_bytes=64 * MIB)
        connection.send_request(lambda *_: b"request")
        theirs.sendall(size.to_bytes(4, "big", signed=True))
        with little_memory(), pytest.raises(ConnectionLost, match=rf"Fetching from b:1 failed.* {size} bytes"):
            connection.receive_response(bytearray())


@given(st.lists(st.binary(min_size=4, max_size=30), max_size=5), st.lists(st.integers(0, 150), max_size=6))
def test_frames_are_the_same_however_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    buffer = FrameBuffer(100)
    found = [f for begin, end in itertools.pairwise(places) for f in buffer.feed(stream[begin:end])]
    assert found == frames


def test_the_limit_holds_for_what_comes_after_it_was_raised() -> None:
    buffer = FrameBuffer(10)
    with pytest.raises(FrameError, match="11 bytes"):
        list(buffer.feed((11).to_bytes(4, "big")))
    buffer = FrameBuffer(10)
    buffer.max_bytes = 11
    assert list(buffer.feed((11).to_bytes(4, "big") + b"x" * 11)) == [b"x" * 11]
