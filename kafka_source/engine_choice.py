"""Which engine serves a query: the native one, with our own connections and the Rust kernel, or librdkafka."""

from __future__ import annotations

import importlib.util
import logging
from functools import cache

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import security_protocol
from kafka_source.client_config.tls import Tls, check_pem, tls_of
from kafka_source.errors import InvalidConfigurationError

log = logging.getLogger(__name__)

NATIVE_MODULE = "kafkagroup_native"


def is_native(name: str, settings: Settings) -> bool:
    """Whether the native engine serves.

    Args:
        name: The `engine` option: native, librdkafka or auto.
        settings: Of the Kafka clients.

    Raises:
        InvalidConfigurationError: `native` is asked for and not installed.
    """
    if name == "librdkafka" or (name == "auto" and _tls(settings).pkcs12):
        return False
    if importlib.util.find_spec(NATIVE_MODULE) is not None:
        return True
    if name == "native":
        raise InvalidConfigurationError(
            "engine=native, but the package kafkagroup-native is not installed where the tasks run; "
            "install it there, or use engine=auto or librdkafka"
        )
    return False


@cache
def check_engine(name: str, settings: Settings) -> None:
    """Say once, where the query is planned, that the slower engine will serve.

    Raises:
        OptionError: `native` is asked for and cannot read the client's key.
    """
    if name == "native":
        check_pem(_tls(settings))
    if name != "auto":
        return
    if importlib.util.find_spec(NATIVE_MODULE) is None:
        log.warning("the package kafkagroup-native is not installed: the slower librdkafka engine serves (engine=auto)")
    elif _tls(settings).pkcs12:
        log.warning(
            "the key store %s is PKCS12: the slower librdkafka engine serves (engine=auto); PEM is for both",
            settings["ssl.keystore.location"],
        )


def _tls(settings: Settings) -> Tls:
    return tls_of(settings) if security_protocol(settings).endswith("SSL") else Tls()
