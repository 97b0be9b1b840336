"""The `kafka.*` settings of a user, in Java's names, and what they are for librdkafka, TLS and SASL.

Passwords, keys and tokens are hidden wherever a `Settings` is shown; the dictionary that `librdkafka_config` returns
holds them in the clear, for the client alone: show it with `hidden`.
"""

from kafka_source.client_config.librdkafka import librdkafka_config
from kafka_source.client_config.settings import DEFAULT_CLIENT_ID, HIDDEN, Settings, hidden, is_secret

__all__ = [
    "DEFAULT_CLIENT_ID",
    "HIDDEN",
    "Settings",
    "hidden",
    "is_secret",
    "librdkafka_config",
]
