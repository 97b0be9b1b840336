"""Which engine serves a query: the native one, with our own connections and the Rust kernel, or librdkafka."""

from __future__ import annotations

import importlib.util
import logging
from functools import cache

from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.client_config.tls import check_versions
from kafka_source.errors import InvalidConfigurationError

log = logging.getLogger(__name__)

NATIVE_MODULE = "kafkagroup_native"


def is_native(name: str) -> bool:
    """Whether the native engine serves.

    Args:
        name: The `engine` option: native, librdkafka or auto.

    Raises:
        InvalidConfigurationError: `native` is asked for and not installed.
    """
    if name == "librdkafka":
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
    """Look at the settings where the query is planned, and say once that the slower engine will serve.

    Raises:
        OptionError: A setting is one that no Kafka client knows, or has a value that it does not take.
    """
    librdkafka_config(settings)
    if not is_native(name):
        check_versions(settings)
    if name == "auto" and importlib.util.find_spec(NATIVE_MODULE) is None:
        log.warning("the package kafkagroup-native is not installed: the slower librdkafka engine serves (engine=auto)")
