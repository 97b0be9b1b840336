"""Java-named settings as both client libraries take them."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_source.client_config import Settings, java_names, librdkafka_config
from kafka_source.errors import AuthenticationError, OptionError, RetriableError
from kafka_source.kafka_client.sasl_arguments import sasl_arguments

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="pw";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="pw";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def librdkafka(**settings: str) -> dict[str, object]:
    return librdkafka_config(Settings({name.replace("_", "."): value for name, value in settings.items()}))


def python_sasl(settings: Settings) -> dict[str, Any]:
    """What kafka-python's SASL mechanism gets."""
    arguments = sasl_arguments(settings)
    assert arguments is not None
    return arguments


@pytest.mark.parametrize(
    ("java", "value", "expected"),
    [
        ("bootstrap.servers", "a:1,b:2", {"bootstrap.servers": "a:1,b:2"}),
        ("acks", "all", {"acks": "all"}),
        ("linger.ms", "5", {"linger.ms": "5"}),
        ("max.request.size", "2000000", {"message.max.bytes": "2000000"}),
        ("buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768"}),
        ("request.timeout.ms", "30000", {"socket.timeout.ms": "30000"}),
        ("fetch.max.wait.ms", "500", {"fetch.wait.max.ms": "500"}),
        ("receive.buffer.bytes", "65536", {"socket.receive.buffer.bytes": "65536"}),
        ("connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
        ("statistics.interval.ms", "1000", {"statistics.interval.ms": "1000"}),
        ("default.api.timeout.ms", "60000", {}),
        ("group.id", "g", {}),
        ("session.timeout.ms", "45000", {}),
        ("max.poll.records", "500", {}),
    ],
)
def test_java_names(java: str, value: str, expected: dict[str, str]) -> None:
    assert librdkafka_config(Settings({java: value})) == expected


@pytest.mark.parametrize(("codec", "level"), [("zstd", {"compression.level": "7"}), ("lz4", {})])
def test_a_compression_level_counts_for_its_own_codec(codec: str, level: dict[str, str]) -> None:
    config = librdkafka_config(Settings({"compression.type": codec, "compression.zstd.level": "7"}))
    assert config == {"compression.type": codec, **level}


@pytest.mark.parametrize("name", sorted(java_names.REFUSED))
def test_what_would_change_the_records_is_refused(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        librdkafka_config(Settings({name: "org.example.Some"}))
    assert caught.value.option == f"kafka.{name}"


def test_values_are_checked_by_librdkafka_itself() -> None:
    with pytest.raises(OptionError, match=r"kafka\.max\.request\.size got '10'.*outside allowed range"):
        librdkafka_config(Settings({"max.request.size": "10"}))
    with pytest.raises(OptionError, match=r"kafka\.compression\.type got 'zip'"):
        librdkafka_config(Settings({"compression.type": "zip"}))


@pytest.mark.parametrize("name", ["sasl.passwrod", "error_cb", "opaque", "plugin.library.pathz"])
def test_a_name_that_nobody_knows_is_refused_and_its_value_not_shown(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        librdkafka_config(Settings({name: "topsecret"}))
    assert caught.value.option == f"kafka.{name}"
    if name.startswith("sasl"):
        assert "did you mean kafka.sasl.password?" in str(caught.value)
        assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_ssl"])
def test_user_and_password(protocol: str, mechanism: str, jaas: str) -> None:
    by_jaas = Settings({"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})
    by_names = Settings(
        {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "pw"}
    )
    assert librdkafka_config(by_jaas) == librdkafka_config(by_names)
    config = librdkafka_config(by_jaas)
    assert (config["sasl.mechanisms"], config["sasl.username"], config["sasl.password"]) == (
        mechanism.upper(),
        "alice",
        "pw",
    )
    Producer({**config, "log_level": 0})
    other = python_sasl(by_jaas)
    assert (other["sasl_mechanism"], other["sasl_plain_username"], other["sasl_plain_password"]) == (
        mechanism.upper(),
        "alice",
        "pw",
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM}, "sasl.jaas.config"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token",
            },
            "sasl.jaas.config",
        ),
    ],
)
def test_security_that_cannot_work_is_named(settings: dict[str, str], named: str) -> None:
    for make in (librdkafka_config, sasl_arguments):
        with pytest.raises(OptionError) as caught:
            make(Settings(settings))
        assert caught.value.option == f"kafka.{named}"
        assert "pw" not in str(caught.value)


def test_kerberos() -> None:
    settings = Settings({"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "broker"})
    assert python_sasl(settings)["sasl_kerberos_service_name"] == "broker"
    try:
        config = librdkafka_config(settings)
    except OptionError as error:
        assert error.option == "kafka.sasl.mechanism"
        assert "no Kerberos" in str(error)
    else:
        assert config["sasl.kerberos.service.name"] == "broker"


@pytest.fixture
def token_endpoint() -> Iterator[str]:
    """An OAuth server on loopback; its path says how it answers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path != "/token":
                self.send_error(401, "client_secret s3cret is wrong")
                return
            token = f"{self.headers['Authorization']}|{body}|{len(calls)}"
            calls.append(token)
            answer = json.dumps({"access_token": token, "expires_in": 300}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    calls: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def oauth(url: str) -> Settings:
    return Settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s3cret" scope="kafka" extension_tenant="t1";',
        }
    )


def test_oauth_tokens_are_fetched_once_and_kept(token_endpoint: str) -> None:
    settings = oauth(f"{token_endpoint}/token")
    config = librdkafka_config(settings)
    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.client.secret"] == "s3cret"
    assert config["sasl.oauthbearer.extensions"] == "tenant=t1"
    provider = python_sasl(settings)["sasl_oauth_token_provider"]
    token = provider.token()
    assert token == provider.token() == "Basic bWU6czNjcmV0|grant_type=client_credentials&scope=kafka|0"
    assert provider.extensions() == {"tenant": "t1"}


@pytest.mark.parametrize(("path", "kind"), [("/refused", AuthenticationError), (None, RetriableError)])
def test_an_oauth_server_that_gives_no_token(token_endpoint: str, path: str | None, kind: type[Exception]) -> None:
    url = f"{token_endpoint}{path}" if path else "http://127.0.0.1:1/token"
    with pytest.raises(kind, match="No token came from") as caught:
        python_sasl(oauth(url))["sasl_oauth_token_provider"].token()
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_unsecured_tokens_for_test_brokers() -> None:
    settings = Settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="alice";',
        }
    )
    assert librdkafka_config(settings)["sasl.oauthbearer.config"] == "principal=alice"
    token = python_sasl(settings)["sasl_oauth_token_provider"].token()
    assert token.count(".") == 2
    assert token.endswith(".")
