"""Which kind of group refuses a consumer."""

import pytest

from kafka_source.group.classic.strategies import kind_of


@pytest.mark.parametrize(
    ("group_type", "protocol_type", "protocol", "told"),
    [
        ("share", "share", "", "a share group"),
        ("", "share", "", "a share group"),
        ("streams", "streams", "", "a Kafka Streams group"),
        ("classic", "consumer", "stream", "a Kafka Streams application"),
        ("classic", "connect", "sessioned", "a Kafka Connect cluster"),
        ("classic", "workers", "", "the protocol type workers"),
    ],
)
def test_a_group_of_another_kind_is_named(group_type: str, protocol_type: str, protocol: str, told: str) -> None:
    kind = kind_of(group_type, protocol_type, protocol)
    assert kind is not None
    assert told in kind


@pytest.mark.parametrize(
    ("group_type", "protocol_type", "protocol"),
    [("classic", "consumer", "range"), ("consumer", "consumer", ""), ("", "", ""), ("classic", "", "")],
)
def test_a_consumer_group_is_no_other_kind(group_type: str, protocol_type: str, protocol: str) -> None:
    assert kind_of(group_type, protocol_type, protocol) is None
