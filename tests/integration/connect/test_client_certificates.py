"""A listener that requires a client certificate: what a client without one, or with an unknown one, is told."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError, KafkaGroupError
from kafka_source.kafka_client import BlockingConnection, ConnectionSettings, Deadline, Endpoint, KafkaClient
from kafkagroup.embedded import EmbeddedKafka, Security


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a broker, of a client that it trusts, and of a stranger."""
    made = tmp_path_factory.mktemp("certificates")
    for name in ("broker", "client", "stranger"):
        for command in (
            f"req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name} "
            "-addext subjectAltName=IP:127.0.0.1",
            f"pkcs12 -export -in {name}.pem -inkey {name}.key -passout pass:changeit -out {name}.p12",
        ):
            subprocess.run(["openssl", *command.split()], cwd=made, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def settings(folder: Path) -> Iterator[dict[str, str]]:
    listener = "listener.name.client.ssl"
    config = {
        f"{listener}.keystore.location": str(folder / "broker.p12"),
        f"{listener}.keystore.password": "changeit",
        f"{listener}.key.password": "changeit",
        f"{listener}.truststore.location": str(folder / "client.pem"),
        f"{listener}.truststore.type": "PEM",
        f"{listener}.client.auth": "required",
    }
    with EmbeddedKafka(security=Security("SSL"), config=config) as kafka:
        yield {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(folder / "broker.pem"),
        }


def identity(folder: Path, name: str) -> dict[str, str]:
    return {
        "ssl.keystore.certificate.chain": (folder / f"{name}.pem").read_text(),
        "ssl.keystore.key": (folder / f"{name}.key").read_text(),
    }


def connect(settings: dict[str, str]) -> None:
    with closing(KafkaClient(Settings(settings))) as client:
        client.run(client.metadata([], Deadline(20)), 25)


def connect_blocking(settings: dict[str, str]) -> None:
    host, port = settings["bootstrap.servers"].split(":")
    BlockingConnection.open(Endpoint(host, int(port)), ConnectionSettings.of(Settings(settings))).close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("open_it", [connect, connect_blocking])
def test_a_client_that_the_broker_does_not_know_is_told_of_its_certificate(settings, folder, version, open_it):
    given = {**settings, "ssl.enabled.protocols": version}
    open_it({**given, **identity(folder, "client")})
    for stranger in ({}, identity(folder, "stranger")):
        with pytest.raises(KafkaGroupError, match=r"kafka\.ssl\.keystore\.location") as caught:
            open_it({**given, **stranger})
        # The alert is lost where the broker's reset comes before it.
        assert isinstance(caught.value, AuthenticationError) or "client certificate" in str(caught.value)
