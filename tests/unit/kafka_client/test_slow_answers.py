"""A peer that sends a byte now and then: none of our connections waits for the end of its response."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka_source.client_config import Settings
from kafka_source.client_config.servers import Endpoint
from kafka_source.kafka_client import (
    ApiVersions,
    BlockingConnection,
    ConnectionLost,
    Deadline,
    EventLoop,
    KafkaClient,
    RequestConnection,
)
from kafka_source.kafka_client.handshake import Session
from kafka_source.kafka_client.metadata import Broker
from tests.support.fake_broker import listening

# A response whose bytes would take a minute.
RESPONSE = (1200).to_bytes(4, "big") + b"\0" * 1200
APART = 0.05
LIMIT = 0.4


def drip(connection: socket.socket, ended: threading.Event) -> None:
    for byte in RESPONSE:
        if ended.wait(APART):
            return
        try:
            connection.send(bytes([byte]))
        except OSError:
            return


@pytest.fixture
def dripping() -> Iterator[socket.socket]:
    """Our end of a connection whose other end drips."""
    ours, theirs = socket.socketpair()
    ended = threading.Event()
    dripper = threading.Thread(target=drip, args=(theirs, ended))
    with ours, theirs:
        dripper.start()
        yield ours
        ended.set()
        dripper.join(10)


@pytest.fixture
def listener() -> Iterator[Endpoint]:
    """A server that drips on each connection."""
    ended = threading.Event()
    with listening(lambda connection: drip(connection, ended)) as endpoint:
        yield endpoint
        ended.set()


def raw(sock: socket.socket) -> BlockingConnection:
    return BlockingConnection(sock, Session(ApiVersions({})), "me", Endpoint("b", 1), 0.0)


def test_a_call_that_is_not_done_in_time_is_an_error_after_which_others_try_again() -> None:
    with closing(KafkaClient(Settings({"bootstrap.servers": "b:1"}))) as client:
        with pytest.raises(ConnectionLost, match=r"The brokers have not answered in time: not done within 0\.05 s"):
            client.run(asyncio.sleep(30), 0.05)


def test_a_task_waits_for_a_whole_response_only_so_long(dripping: socket.socket) -> None:
    connection = RequestConnection(raw(dripping), what="Fetching from", timeout=LIMIT)
    connection.send_request(lambda *_: b"request")
    longest = Deadline(10)
    with pytest.raises(
        ConnectionLost, match=r"Fetching from b:1 failed: (timed out|the response was not complete in time)"
    ):
        connection.receive_response(bytearray())
    assert not longest.over


def test_a_response_to_another_request_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = RequestConnection(raw(ours), what="Fetching from", timeout=LIMIT)
        connection.send_request(lambda *_: b"request")
        theirs.sendall(bytes((0, 0, 0, 4, 0, 0, 0, 7)))
        with pytest.raises(ConnectionLost, match="it answered another request"):
            connection.receive_response(bytearray())


@pytest.mark.parametrize("blocking", [True, False])
def test_a_handshake_has_a_limit_as_a_whole(listener: Endpoint, blocking: bool) -> None:
    limit = {"bootstrap.servers": str(listener), "socket.connection.setup.timeout.ms": str(int(LIMIT * 1000))}
    client, longest = KafkaClient(Settings(limit), EventLoop.shared()), Deadline(10)
    with pytest.raises(ConnectionLost):
        if blocking:
            client.open_socket(listener)
        else:
            client.run(client.dedicated(Broker(1, listener), Deadline(30)))
    assert not longest.over
