"""The user's `kafka.*` settings, in Java's names, and their translation for librdkafka, TLS and SASL.

Passwords, keys and tokens are hidden wherever a `Settings` is shown. The dictionary that `librdkafka_config` returns
contains these secrets in plain text for the client; use `hidden` to show the dictionary.
"""

from kafka_source.client_config.librdkafka import librdkafka_config
from kafka_source.client_config.settings import DEFAULT_CLIENT_ID, HIDDEN, Settings, hidden, is_secret

__all__ = ["DEFAULT_CLIENT_ID", "HIDDEN", "Settings", "hidden", "is_secret", "librdkafka_config"]
