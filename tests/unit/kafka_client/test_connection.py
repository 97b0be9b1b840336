"""What became of a connection that was not made: lost, which passes, or refused, which does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from kafka_source.client_config import Settings
from kafka_source.kafka_client import ConnectionLost, Deadline, EventLoop, KafkaClient
from kafka_source.kafka_client.metadata import Broker
from kafka_source.kafka_client.settings import Endpoint


@pytest.fixture
def hangs_up() -> Iterator[Endpoint]:
    """A broker that goes down: it hears the first bytes of each connection, and ends it in good order."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                # All of it, for what is left unread makes a reset of the end.
                connection.recv(65536)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    yield Endpoint("127.0.0.1", listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.join(5)


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
@pytest.mark.parametrize("raw", [True, False])
def test_an_end_during_the_handshake_is_a_connection_lost(hangs_up: Endpoint, protocol: str, raw: bool) -> None:
    settings = Settings({"bootstrap.servers": f"127.0.0.1:{hangs_up.port}", "security.protocol": protocol})
    client = KafkaClient(settings, EventLoop.shared())
    with pytest.raises(ConnectionLost, match=r"127.0.0.1:\d+ (ended|cannot be reached: \w)"):
        if raw:
            client.open_socket(hangs_up)
        else:
            client.run(client.dedicated(Broker(1, hangs_up), Deadline(10)))
