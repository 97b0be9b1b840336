"""A control port answers who knows its secret, over a real socket."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest

from kafka_source.runtime.control_port import Address, ControlClient, ControlPort, listen_towards
from tests.support.waiting import wait_until


class Echo:
    """A port that answers with the question, and what it was asked."""

    def __init__(self, patience: float = 30.0) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address.of(listener)
        self.asked: list[Any] = []
        self.port = ControlPort(listener, self.address.secret, self._answer, patience)

    def _answer(self, question: Any) -> Any:
        self.asked.append(question)
        return question

    def connect(self) -> socket.socket:
        return socket.create_connection((self.address.host, self.address.port), 30)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.port.close()


def test_it_answers_one_question_after_another(echo: Echo) -> None:
    with closing(ControlClient(echo.address)) as client:
        for question in ([1, 2.5, "three"], {"four": None}, "x" * 100_000):
            assert client.ask(question) == question


def test_a_port_that_cannot_be_reached_is_not_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_source.runtime.control_port._CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("kafka_source.runtime.control_port._UNREACHABLE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        address = Address.of(silent)

        def tries() -> bool:
            with closing(ControlClient(address)) as client, pytest.raises(TimeoutError):
                client.ask(1)
            with suppress(BlockingIOError):
                silent.accept()[0].close()
                return True
            return False

        assert [tries(), tries()] == [True, False]
        wait_until(tries, "it to be asked again")


def test_a_server_that_has_ended_is_named_so(echo: Echo) -> None:
    with closing(ControlClient(echo.address)) as client:
        client.ask(1)
        echo.port.close()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            client.ask(2)


def test_who_does_not_know_the_secret_is_not_heard(echo: Echo) -> None:
    with (
        closing(ControlClient(replace(echo.address, secret="another"))) as client,
        pytest.raises((OSError, ValueError)),
    ):
        client.ask(1)
    assert echo.asked == []
    assert "another" not in repr(replace(echo.address, secret="another"))


def test_a_connection_without_a_proof_is_ended_and_one_with_it_may_be_silent() -> None:
    echo = Echo(patience=1.0)
    with closing(echo.port), closing(ControlClient(echo.address)) as client, echo.connect() as nobody:
        client.ask(1)
        with nobody.makefile("rb") as lines:
            assert len(lines.readline()) > 32
            # A byte now and then does not help.
            nobody.sendall(b"0")
            assert lines.read() == b""
        time.sleep(1.1)
        assert client.ask(2) == 2


def test_the_secret_is_not_sent_and_a_proof_serves_once(echo: Echo) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as lines, echo.connect() as behind:
                peer.sendall(behind.recv(1000))
                heard.append(lines.readline())

        between = threading.Thread(target=listen, daemon=True)
        between.start()
        found = replace(Address.of(listener), secret=echo.address.secret)
        with closing(ControlClient(found)) as client, pytest.raises((OSError, ValueError)):
            client.ask(1)
        between.join(30)
    assert heard
    assert echo.address.secret.encode() not in heard[0]
    with echo.connect() as again, again.makefile("rb") as lines:
        again.sendall(heard[0] + json.dumps(1).encode() + b"\n")
        lines.readline()
        with suppress(ConnectionResetError):
            assert lines.read() == b""
    assert echo.asked == []


def read_all(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as lines:
        return lines.read()


def test_strangers_do_not_fill_it() -> None:
    echo = Echo(patience=5.0)
    strangers = [echo.connect() for _ in range(100)]
    try:
        with closing(echo.port):
            ended = [read_all(stranger) for stranger in strangers]
            # The first ones got a challenge and five seconds to answer it, the others nothing.
            assert sum(1 for lines in ended if lines) == 64
            with closing(ControlClient(echo.address)) as client:
                assert client.ask(1) == 1
    finally:
        for stranger in strangers:
            stranger.close()


def test_it_listens_by_its_own_name_where_no_server_has_an_address() -> None:
    with listen_towards([("no-such-host.invalid", 9092)]) as listener:
        assert listener.getsockname()[1] > 0
