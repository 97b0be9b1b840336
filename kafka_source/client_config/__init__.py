"""The `kafka.*` settings of a user, in Java's names, as configurations of both client libraries.

Passwords, keys and tokens are hidden wherever a `Settings` is shown; the dictionaries that `kafka_python_config` and
`librdkafka_config` return hold them in the clear, for the clients alone: show them with `hidden`.
"""

from kafka_source.client_config.kafka_python import kafka_python_config
from kafka_source.client_config.librdkafka import librdkafka_config
from kafka_source.client_config.settings import DEFAULT_CLIENT_ID, HIDDEN, RedactingFilter, Settings, hidden, is_secret

__all__ = [
    "DEFAULT_CLIENT_ID",
    "HIDDEN",
    "RedactingFilter",
    "Settings",
    "hidden",
    "is_secret",
    "kafka_python_config",
    "librdkafka_config",
]
