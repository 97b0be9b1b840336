"""What became of a connection that was not made: lost, which passes, or refused, which does not."""

import asyncio
import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka_source.client_config import Settings
from kafka_source.client_config.servers import Endpoint
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.model import GroupSettings, Topics
from kafka_source.kafka_client import Connection, ConnectionLost, Deadline, EventLoop, KafkaClient
from kafka_source.kafka_client.connection import HandshakeEnded
from kafka_source.kafka_client.messages.cluster import FindCoordinatorRequest
from kafka_source.kafka_client.metadata import Broker
from tests.support.fake_broker import FakeBroker, listening
from tests.support.waiting import wait_until


@pytest.fixture
def hangs_up() -> Iterator[Endpoint]:
    """A broker that goes down: it hears the first bytes of each connection, and ends it in good order."""

    def serve(connection: socket.socket) -> None:
        # All of it, for what is left unread makes a reset of the end.
        connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    with listening(serve) as endpoint:
        yield endpoint


def test_a_connection_that_is_cancelled_at_any_moment_leaves_no_socket(hangs_up: Endpoint) -> None:
    client = KafkaClient(Settings({"bootstrap.servers": f"127.0.0.1:{hangs_up.port}"}), EventLoop.shared())

    async def cancelled(turns: int) -> None:
        opening = asyncio.ensure_future(Connection.open(hangs_up, client.settings))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionLost):
            (await opening).close()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(20):
            client.run(cancelled(turns), 10)
        gc.collect()
    assert not [str(one.message) for one in found]


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
@pytest.mark.parametrize("raw", [True, False])
def test_an_end_during_the_handshake_is_a_connection_lost(hangs_up: Endpoint, protocol: str, raw: bool) -> None:
    settings = Settings({"bootstrap.servers": f"127.0.0.1:{hangs_up.port}", "security.protocol": protocol})
    client = KafkaClient(settings, EventLoop.shared())
    with pytest.raises(HandshakeEnded, match=r"127.0.0.1:\d+ ended ") as ended:
        if raw:
            client.open_socket(hangs_up)
        else:
            client.run(client.dedicated(Broker(1, hangs_up), Deadline(10)))
    assert "check kafka.security.protocol" in ended.value.advice


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}))) as made:
        yield made


def test_callers_that_connect_at_the_same_time_share_one_connection(broker: FakeBroker, client: KafkaClient) -> None:
    async def connect() -> list[Connection]:
        return await asyncio.gather(*(client.any_connection(Deadline(10)) for _ in range(3)))

    first, *others = client.run(connect())
    assert all(other is first for other in others)
    # Whatever else was opened is closed again.
    wait_until(lambda: broker.connections_open == 1, "the others to be closed")


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


def test_who_look_for_a_coordinator_at_the_same_time_share_one_request(broker: FakeBroker, client: KafkaClient) -> None:
    broker.coordinator_error = 0

    async def look() -> list[Broker]:
        return await asyncio.gather(*(client.coordinator("orders", Deadline(10)) for _ in range(50)))

    found = client.run(look())
    assert {one.endpoint.port for one in found} == {broker.port}
    assert broker.asked.count("FindCoordinatorRequest") == 1


def test_a_client_that_has_only_looked_up_a_coordinator_knows_its_cluster(
    broker: FakeBroker, client: KafkaClient
) -> None:
    """The notes of committed offsets, and the checks of topic ids, need the cluster's id."""
    broker.coordinator_error = 0
    client.run(client.coordinator("orders", Deadline(10)))
    assert client.cluster_id == "fake"


def test_a_caller_without_time_leaves_the_search_to_the_others(broker: FakeBroker, client: KafkaClient) -> None:
    searching, asked = threading.Event(), threading.Event()
    broker.coordinator_error = 0
    broker.on_find_coordinator = lambda: (asked.set(), searching.wait(10))

    async def give_up_and_look() -> Broker:
        impatient = asyncio.ensure_future(client.coordinator("orders", Deadline(10)))
        patient = asyncio.ensure_future(client.coordinator("orders", Deadline(10)))
        await asyncio.to_thread(asked.wait, 10)
        impatient.cancel()
        searching.set()
        return await patient

    assert client.run(give_up_and_look()).endpoint.port == broker.port
    assert broker.asked.count("FindCoordinatorRequest") == 1


def test_a_connection_whose_session_ends_is_closed_when_another_has_replaced_it(broker: FakeBroker) -> None:
    broker.session_ms = 500
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    client = KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers, **sasl}))
    node = Broker(1, Endpoint("127.0.0.1", broker.port))

    async def both() -> tuple[Connection, Connection]:
        return await client.any_connection(Deadline(10)), await client.connection(node, Deadline(10))

    with closing(client):
        first = client.run(both())
        wait_until(lambda: not any(connection.usable for connection in first), "the end of the sessions")
        second = client.run(both())
        assert not set(first) & set(second)
        wait_until(lambda: broker.connections_open == len(set(second)), "the replaced connections to be closed")


def test_a_replaced_connection_answers_what_is_in_flight(broker: FakeBroker, client: KafkaClient) -> None:
    held, asked = threading.Event(), threading.Event()
    broker.on_find_coordinator = lambda: (asked.set(), held.wait(10))

    async def replace_it() -> int:
        connection = await client.dedicated(Broker(1, Endpoint("127.0.0.1", broker.port)), Deadline(10))
        request = FindCoordinatorRequest(key="orders", key_type=0)
        answer = asyncio.ensure_future(connection.send(request, 10, max_version=2))
        await asyncio.to_thread(asked.wait, 10)
        connection.retire()
        held.set()
        return int((await answer).error_code)

    assert client.run(replace_it()) == 15
    wait_until(lambda: broker.connections_open == 0, "the connection to be closed after the answer")


def test_a_connection_that_opens_while_the_client_is_closed_is_closed_too(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(EventLoop()) as loop:
        client = KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}), loop, "shared-loop")
        node, open_it, closed = Broker(1, Endpoint("127.0.0.1", broker.port)), client.dedicated, asyncio.Event()

        async def opened_late(to: Broker, deadline: Deadline) -> Connection:
            connection = await open_it(to, deadline)
            await closed.wait()
            return connection

        monkeypatch.setattr(client, "dedicated", opened_late)

        async def close_meanwhile() -> None:
            opening = asyncio.ensure_future(client.connection(node, Deadline(10)))
            await asyncio.to_thread(wait_until, lambda: broker.connections_open == 1, "the connection")
            client._close_shared()
            closed.set()
            await asyncio.wait([opening])

        client.run(close_meanwhile())
        wait_until(lambda: broker.connections_open == 0, "the connection to be closed")


def test_a_connection_of_a_caller_that_was_cancelled_is_closed_with_the_client(broker: FakeBroker) -> None:
    client = KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    client.run(client.dedicated(Broker(1, Endpoint("127.0.0.1", broker.port)), Deadline(10)))
    client.close()
    wait_until(lambda: broker.connections_open == 0, "the connection to be closed")


@pytest.mark.parametrize("shares_loop", [False, True])
def test_a_connection_that_a_task_opens_while_its_loop_ends_is_closed(broker: FakeBroker, shares_loop: bool) -> None:
    settings = Settings({"bootstrap.servers": broker.bootstrap_servers})
    membership = ConsumerMembership(settings, GroupSettings("billing"), Topics(("orders",)))
    client = membership._looks if shares_loop else membership._client
    started = threading.Event()

    async def open_at_the_end() -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            # As a task does that wait_for of Python 3.10 and 3.11 does not tell of its cancellation (gh-86296).
            await client.dedicated(Broker(1, Endpoint("127.0.0.1", broker.port)), Deadline(10))

    client.loop.spawn(open_at_the_end())
    assert started.wait(10)
    membership.close()
    assert broker.connections == 1
    wait_until(lambda: broker.connections_open == 0, "the connection to be closed")


def test_only_one_of_two_endpoints_that_answer_at_once_stays_connected(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_source.kafka_client.client._NEXT_BROKER_SECONDS", 0.01)
    both = f"{broker.bootstrap_servers},localhost:{broker.port}"
    with closing(KafkaClient(Settings({"bootstrap.servers": both}))) as client:
        connect = client._connect

        async def at_once(endpoint: Endpoint, deadline: Deadline) -> Connection:
            connection = await connect(endpoint, deadline)
            while broker.connections_open < 2:
                await asyncio.sleep(0.001)
            return connection

        monkeypatch.setattr(client, "_connect", at_once)
        client.run(client.any_connection(Deadline(10)))
        wait_until(lambda: broker.connections_open == 1, "the other connection to be closed")
