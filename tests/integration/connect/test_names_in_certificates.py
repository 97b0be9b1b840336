"""A broker whose certificate has another name than its address is refused, by each kind of connection that we make."""

import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError
from kafka_source.fetch.select import engine_for
from kafka_source.kafka_client import BlockingConnection, ConnectionSettings, Deadline, Endpoint, KafkaClient
from kafka_source.model.stream_offset import Range
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.fetches import fetch_request
from tests.support.memberships import Memberships, everything, held
from tests.support.records import produce

TOPIC, COUNT = "orders", 20
# The brokers say that their address is 127.0.0.1, and their certificate has this name alone.
NAME = "localhost"
REFUSED = "certificate is not valid for '127.0.0.1'.*kafka.ssl.endpoint.identification.algorithm"
CHECKED: dict[str, str] = {}
UNCHECKED = {"ssl.endpoint.identification.algorithm": ""}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a client of a real broker, which trust its certificate."""
    folder = tmp_path_factory.mktemp("names")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -days 2 -subj /CN=orders.example "
        f"-addext subjectAltName=DNS:{NAME}",
        "pkcs12 -export -in certificate.pem -inkey key.pem -name broker -passout pass:changeit -out store.p12",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    listener = "listener.name.client.ssl"
    config = {
        f"{listener}.keystore.location": str(folder / "store.p12"),
        f"{listener}.keystore.password": "changeit",
        f"{listener}.key.password": "changeit",
    }
    with EmbeddedKafka(security=Security("SSL"), config=config) as kafka:
        kafka.create_topic(TOPIC, 1)
        produce(kafka.internal_bootstrap_servers, TOPIC, COUNT)
        yield {
            "bootstrap.servers": f"{NAME}:{kafka.port(1)}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "certificate.pem"),
        }


def elsewhere(settings: dict[str, str]) -> dict[str, str]:
    """The same broker by its address."""
    return {**settings, "bootstrap.servers": settings["bootstrap.servers"].replace(NAME, "127.0.0.1")}


def topics_of(settings: dict[str, str]) -> set[str]:
    with closing(KafkaClient(Settings(settings))) as client:
        return set(client.run(client.metadata([TOPIC], Deadline(30)), 35).topics)


def test_metadata_is_asked_of_a_broker_with_the_right_name_only(settings: dict[str, str]) -> None:
    assert topics_of(settings) == {TOPIC}
    with pytest.raises(AuthenticationError, match=REFUSED):
        topics_of(elsewhere(settings))
    assert topics_of(elsewhere(settings) | UNCHECKED) == {TOPIC}


def test_a_group_whose_coordinator_has_another_name_is_not_joined(settings: dict[str, str]) -> None:
    refused, joined = Memberships(Settings(settings), "refused"), Memberships(Settings(settings | UNCHECKED), "joined")
    with closing(refused), closing(joined):
        with pytest.raises(AuthenticationError, match=REFUSED):
            refused.make(TOPIC).join(30)
        membership = joined.make(TOPIC)
        membership.join(30)
        assert held(membership) == everything(TOPIC, 1)


def test_a_blocking_connection_checks_the_name_too(settings: dict[str, str]) -> None:
    port = int(settings["bootstrap.servers"].partition(":")[2])

    def connect(host: str, more: dict[str, str]) -> None:
        BlockingConnection.open(Endpoint(host, port), ConnectionSettings.of(Settings(settings | more))).close()

    connect(NAME, CHECKED)
    with pytest.raises(AuthenticationError, match=REFUSED):
        connect("127.0.0.1", CHECKED)
    connect("127.0.0.1", UNCHECKED)


@pytest.mark.requires_native
def test_no_records_are_fetched_from_a_leader_with_another_name(settings: dict[str, str]) -> None:
    """The metadata come from the right name; the leader that they name has another one."""
    request = fetch_request(Range(TOPIC, 0, 0, COUNT), timeout_ms=4000)

    def rows(more: dict[str, str]) -> int:
        return sum(batch.num_rows for batch in engine_for("native", Settings(settings | more)).read(request))

    with pytest.raises(AuthenticationError, match=REFUSED):
        rows(CHECKED)
    assert rows(UNCHECKED) == COUNT
