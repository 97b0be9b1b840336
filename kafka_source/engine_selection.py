"""Which engine serves a query: the native one, with our own connections and the Rust kernel, or librdkafka."""

from __future__ import annotations

import importlib.util
import logging
from functools import cache

from kafka_source.client_config import Settings
from kafka_source.client_config.check import check_settings
from kafka_source.client_config.java_settings import Role
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
def check_engine(name: str, settings: Settings, role: Role = Role.CONSUMER, *, native: bool | None = None) -> None:
    """Check the settings where the query is planned, and log once what a user has to know about them.

    Args:
        name: The `engine` option.
        settings: Settings of the Kafka clients.
        role: CONSUMER in a read, PRODUCER in a write.
        native: Whether the native engine serves; None: as `is_native` says.

    Raises:
        OptionError: A setting is refused, or has a value that it does not take.
        InvalidConfigurationError: `native` is asked for and not installed.
    """
    for warning in check_settings(settings, role, native=is_native(name) if native is None else native):
        log.warning("%s", warning)
    if name == "auto" and importlib.util.find_spec(NATIVE_MODULE) is None:
        log.warning("the package kafkagroup-native is not installed: the slower librdkafka engine serves (engine=auto)")
