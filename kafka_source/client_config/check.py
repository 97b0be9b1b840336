"""Check a query's Kafka settings by Java's table: types, ranges, names. Addresses: `servers.py`.

Every value that Java accepts is valid. If librdkafka's range is narrower, it gets the nearest value, with a warning.
"""

import difflib
import importlib.util
import logging

from kafka_source.client_config.java_settings import (
    FOLLOWED_BY_NATIVE,
    JAVA,
    KNOWN,
    Handling,
    JavaSetting,
    Role,
    Type,
    is_known,
)
from kafka_source.client_config.librdkafka import check_own_setting, is_librdkafkas, librdkafka_config, narrowed
from kafka_source.client_config.sasl import sasl_of, security_protocol
from kafka_source.client_config.settings import Settings
from kafka_source.client_config.tls import check_versions, ssl_context, tls_of
from kafka_source.errors import OptionError

log = logging.getLogger(__name__)

_INTEGERS = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}


def check_settings(settings: Settings, role: Role, *, native: bool) -> tuple[str, ...]:
    """Check all settings of a query.

    Args:
        settings: Settings of the Kafka clients.
        role: CONSUMER in a read, PRODUCER in a write.
        native: Whether the query uses the native engine; if not, librdkafka must accept the settings too.

    Returns:
        Warnings about settings that are unknown, unexpectedly have no effect, or are narrowed for librdkafka.

    Raises:
        OptionError: A setting is refused, or has a value that Java refuses.
    """
    warnings: list[str] = []
    for name in settings:
        java = JAVA.get(name)
        if java is not None:
            warnings += _checked(settings, java, role, native=native)
        elif not is_known(name):
            warnings += _not_of_java(settings, name, native=native)
    if native:
        _check_security(settings)
    else:
        check_versions(settings)
        librdkafka_config(settings, role)
    return tuple(warnings)


def _checked(settings: Settings, java: JavaSetting, role: Role, *, native: bool) -> list[str]:
    """Check one setting of Java and return its warnings."""
    if java.refused_for & role and not java.is_harmless(settings[java.name]):
        raise OptionError(f"kafka.{java.name}", None, problem=f"Remove the option kafka.{java.name}: {java.does}")
    handling = java.native if native else java.librdkafka
    if handling in (Handling.UNUSED, Handling.REFUSED) or not java.roles & role:
        log.debug("setting ignored name=kafka.%s", java.name)
        return []
    if not _takes(java, settings[java.name]):
        raise OptionError(f"kafka.{java.name}", settings.shown(java.name), java.takes)
    if native or not java.rdkafka:
        return []
    return [
        f"setting kafka.{java.name}={settings.shown(java.name)} is out of librdkafka's range: "
        f"librdkafka uses {accepted}"
        for accepted in narrowed(settings, java.name)
    ]


def _takes(java: JavaSetting, value: str) -> bool:
    """Return whether Java accepts a value."""
    if java.words:
        return value.lower() in java.words
    if java.type in _INTEGERS:
        try:
            number = int(value)
        except ValueError:
            return False
        limit = 1 << _INTEGERS[java.type]
        least = -limit if java.minimum is None else java.minimum
        most = limit - 1 if java.maximum is None else java.maximum
        return least <= number <= most
    if java.type is Type.BOOLEAN:
        return value.lower() in ("true", "false")
    return True


def _not_of_java(settings: Settings, name: str, *, native: bool) -> list[str]:
    """Check a setting that Java lacks: a setting of librdkafka, or an unknown name, whose value is not shown."""
    if not is_librdkafkas(name):
        close = difflib.get_close_matches(name, sorted(KNOWN), n=1)
        meant = f"; did you mean kafka.{close[0]}?" if close else ""
        return [f"setting kafka.{name} is not known to any Kafka client and is ignored{meant}"]
    if native and name not in FOLLOWED_BY_NATIVE:
        return [f"setting kafka.{name} is librdkafka's own, and the native engine ignores it: use engine=librdkafka"]
    check_own_setting(settings, name)
    return []


def _check_security(settings: Settings) -> None:
    """Read certificates and credentials once, so that the driver raises their errors."""
    if security_protocol(settings).endswith("SSL"):
        ssl_context(tls_of(settings))
    sasl = sasl_of(settings)
    if sasl is not None and sasl.mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
        takes = (
            "a mechanism whose library is installed where the query and its tasks run: pip install kafkagroup[kerberos]"
        )
        if "sasl.mechanism" not in settings and "sasl.mechanisms" not in settings:
            problem = (
                "Set kafka.sasl.mechanism, for example to PLAIN, SCRAM-SHA-512 or OAUTHBEARER. Without this option "
                "Kafka uses GSSAPI (Kerberos), which needs pip install kafkagroup[kerberos]"
            )
            raise OptionError("kafka.sasl.mechanism", None, problem=problem)
        raise OptionError("kafka.sasl.mechanism", "GSSAPI", takes)
