from __future__ import annotations

import pytest

from kafka_source.client_config import Settings
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


@pytest.mark.parametrize("servers", ["", " , ", "a:x", ":9092", "[]:1", "a:65536", "b:1,a:99999", "a:" + "9" * 5000])
def test_malformed_servers_are_refused_by_the_options_name(servers: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse_servers(servers)


def test_times_are_those_of_the_settings() -> None:
    settings = ConnectionSettings.of(
        Settings({"bootstrap.servers": "a:1", "request.timeout.ms": "1500", "retry.backoff.ms": "20"})
    )
    assert (settings.request_timeout, settings.retry, settings.connect_timeout) == (1.5, RetryPolicy(0.02, 1.0), 10.0)
    assert settings.rebootstrap_after == 300.0


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
