import pytest
from confluent_kafka import Producer

from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.client_config.check import check_settings
from kafka_source.client_config.java_settings import Role
from kafka_source.errors import OptionError
from kafka_source.kafka_client import ConnectionSettings, Endpoint, parse_servers
from kafka_source.runtime.retry import RetryPolicy


def test_servers_with_and_without_ports_and_of_ipv6() -> None:
    assert parse_servers(" a:1, b ,[::1]:93,[fe80::2]") == (
        Endpoint("a", 1),
        Endpoint("b", 9092),
        Endpoint("::1", 93),
        Endpoint("fe80::2", 9092),
    )
    assert str(Endpoint("::1", 93)) == "[::1]:93"


def test_a_protocol_before_an_address_is_ignored_as_in_java() -> None:
    servers = "SASL_SSL://a:1, PLAINTEXT://[::1]:93,http://b,::1:5"
    assert parse_servers(servers) == (Endpoint("a", 1), Endpoint("::1", 93), Endpoint("b", 9092), Endpoint("::1", 5))
    theirs = librdkafka_config(Settings({"bootstrap.servers": servers}))
    assert theirs["bootstrap.servers"] == "a:1,[::1]:93,b:9092,[::1]:5"


@pytest.mark.parametrize(
    "servers",
    [
        "",
        " , ",
        "a:x",
        ":9092",
        "[]:1",
        "a:65536",
        "b:1,a:99999",
        "a:" + "9" * 5000,
        "a:1;b:1",
        "a/b:1",
        "a b:1",
        "x://",
    ],
)
def test_malformed_servers_are_refused_by_the_options_name(servers: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse_servers(servers)


def test_a_login_in_the_address_of_a_broker_is_not_shown() -> None:
    with pytest.raises(OptionError, match=r"SASL_SSL://\*{5}@broker:9092"):
        parse_servers("SASL_SSL://alice:s3cret@broker:9092")


def test_times_are_those_of_the_settings() -> None:
    settings = ConnectionSettings.of(
        Settings({"bootstrap.servers": "a:1", "request.timeout.ms": "1500", "retry.backoff.ms": "20"})
    )
    assert (settings.request_timeout, settings.retry, settings.connect_timeout) == (1.5, RetryPolicy(0.02, 1.0), 10.0)
    assert settings.rebootstrap_after == 300.0


@pytest.mark.parametrize(
    ("given", "first", "longest"),
    [
        ({}, 50, 1_000),
        ({"reconnect.backoff.ms": "20000"}, 20_000, 20_000),
        ({"reconnect.backoff.ms": "20"}, 20, 20),
        ({"reconnect.backoff.ms": "20000", "reconnect.backoff.max.ms": "5000"}, 5_000, 5_000),
        ({"reconnect.backoff.max.ms": "20"}, 20, 20),
        ({"reconnect.backoff.max.ms": "20000"}, 50, 20_000),
        ({"reconnect.backoff.ms": "0"}, 0, 0),
    ],
)
def test_pauses_before_a_connection_are_those_of_java(given: dict[str, str], first: int, longest: int) -> None:
    """As kafka-clients 4.3.1 has them: the first one alone is the longest too, and is never longer than the longest."""
    settings = Settings({"bootstrap.servers": "127.0.0.1:1", **given})
    assert ConnectionSettings.of(settings).reconnect == RetryPolicy(first / 1000, longest / 1000)
    theirs = librdkafka_config(settings)
    Producer({**theirs, "log_level": 0})
    if given:
        assert (theirs["reconnect.backoff.ms"], theirs["reconnect.backoff.max.ms"]) == (str(first), str(longest))
    assert check_settings(settings, Role.CONSUMER, native=False) == ()


def test_the_recovery_strategy_none_is_kept() -> None:
    given = Settings({"bootstrap.servers": "a:1", "metadata.recovery.strategy": "NONE"})
    assert ConnectionSettings.of(given).rebootstrap_after is None


def test_no_secret_is_in_the_repr() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter22";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    settings = ConnectionSettings.of(Settings({"bootstrap.servers": "a:1", **given}))
    assert settings.sasl is not None
    assert settings.sasl.sasl.password == "hunter22"
    assert "hunter22" not in repr(settings)
