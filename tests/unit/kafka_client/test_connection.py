"""What became of a connection that was not made: lost, which passes, or refused, which does not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from kafka_source.client_config import Settings
from kafka_source.kafka_client import Connection, ConnectionLost, Deadline, EventLoop, KafkaClient
from kafka_source.kafka_client.metadata import Broker
from kafka_source.kafka_client.settings import Endpoint
from tests.fake_broker import FakeBroker
from tests.groups import wait_for


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


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    yield made
    made.close()


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[KafkaClient]:
    made = KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    yield made
    made.close()


def test_callers_that_connect_at_the_same_time_share_one_connection(broker: FakeBroker, client: KafkaClient) -> None:
    async def connect() -> list[Connection]:
        return await asyncio.gather(*(client.any_connection(Deadline(10)) for _ in range(3)))

    first, *others = client.run(connect())
    assert all(other is first for other in others)
    # Whatever else was opened is closed again.
    wait_for(lambda: broker.connections_open == 1, "the others to be closed")


def test_a_connection_is_kept_though_its_only_caller_gave_up(broker: FakeBroker, client: KafkaClient) -> None:
    node = Broker(1, Endpoint("127.0.0.1", broker.port))

    async def give_up() -> Connection:
        waiting = asyncio.ensure_future(client.connection(node, Deadline(10)))
        await asyncio.sleep(0)
        waiting.cancel()
        while not client.connected:
            await asyncio.sleep(0.01)
        return await client.connection(node, Deadline(10))

    assert client.run(give_up(), 10).usable
    assert broker.connections == 1
