"""A host name with several addresses, some of which answer nothing, as behind a firewall that drops packets."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kafka_source.client_config import Settings
from kafka_source.fetch.select import engine_for
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient
from kafka_source.kafka_client.addresses import Address, connect_first, interleaved
from kafka_source.model.stream_offset import Range
from tests.support.fake_broker import TOPIC, FakeBroker, Partition
from tests.support.fetches import fetch_request
from tests.support.silence import LIVE, NAME, SILENT, silence

CLOSED = "127.0.0.3"
# The whole test takes less. A connection that waits for the silent address gets nowhere in this time.
PATIENT = {"socket.connection.setup.timeout.ms": "60000"}


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of NAME in the resolver's order."""
    found: list[str] = []
    resolve: Callable[..., Any] = socket.getaddrinfo

    def resolved(host: Any, port: Any, *more: Any, **named: Any) -> list[Any]:
        hosts = found if host in (NAME, NAME.encode()) else [host]
        return [entry for each in hosts for entry in resolve(each, port, *more, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return found


@pytest.fixture
def broker(addresses: list[str]) -> Iterator[FakeBroker]:
    """A broker whose name has a silent address first."""
    made = FakeBroker(NAME)
    with closing(made), silence(made.port):
        addresses += [SILENT, LIVE]
        yield made


def test_the_event_loop_connects_to_the_address_that_answers(broker: FakeBroker) -> None:
    broker.coordinator_error = 0
    with closing(KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers, **PATIENT}))) as client:
        snapshot = client.run(client.metadata([TOPIC], Deadline(15)), 15)
        client.run(client.dedicated(snapshot.broker(1), Deadline(15)), 15)
        assert client.run(client.coordinator("group", Deadline(15)), 15).endpoint.host == NAME


def test_a_blocking_connection_does_so_too(broker: FakeBroker) -> None:
    with (
        closing(KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers, **PATIENT}))) as client,
        closing(client.open_socket(client.settings.bootstrap[0])) as connection,
    ):
        # Nothing is left of the attempt's own time limit, and of its not waiting.
        assert connection.socket.gettimeout() is None
        assert connection.socket.getpeername()[0] == LIVE


@pytest.mark.requires_native
def test_a_task_reads_from_the_address_that_answers(broker: FakeBroker) -> None:
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(10)
    request = fetch_request(Range(TOPIC, 0, 0, 10))
    engine = engine_for("native", Settings({"bootstrap.servers": broker.bootstrap_servers, **PATIENT}))
    assert sum(batch.num_rows for batch in engine.read(request)) == 10


def test_the_time_limit_is_for_all_addresses_together(broker: FakeBroker, addresses: list[str]) -> None:
    addresses[:] = [SILENT] * 9
    settings = Settings({"bootstrap.servers": broker.bootstrap_servers, "socket.connection.setup.timeout.ms": "600"})
    with closing(KafkaClient(settings)) as client:
        limit = Deadline(5)
        with pytest.raises(ConnectionLost, match=rf"{NAME}:\d+ cannot be reached: .*timed out"):
            client.open_socket(client.settings.bootstrap[0])
        assert not limit.over


def test_an_address_that_refuses_makes_room_for_the_next(broker: FakeBroker, addresses: list[str]) -> None:
    addresses[:] = [CLOSED, CLOSED, LIVE]
    with connect_first(NAME, broker.port, 15) as connected:
        assert connected.getpeername()[0] == LIVE


def test_the_error_is_that_of_the_last_address(broker: FakeBroker, addresses: list[str]) -> None:
    addresses[:] = [CLOSED]
    with pytest.raises(ConnectionRefusedError):
        connect_first(NAME, broker.port, 15)


def test_families_take_turns() -> None:
    six, four = ([Address(family, (str(n), 1)) for n in range(3)] for family in (socket.AF_INET6, socket.AF_INET))
    assert interleaved([*six, *four[:1]]) == [six[0], four[0], six[1], six[2]]
    assert interleaved([]) == []
