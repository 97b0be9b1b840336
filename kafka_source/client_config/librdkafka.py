"""Translates client settings to librdkafka's configuration."""

from __future__ import annotations

import difflib
import logging
import re
from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaException, Producer

from kafka_source.client_config import java_names
from kafka_source.client_config.sasl import OAuth, sasl_of, security_protocol
from kafka_source.client_config.settings import HIDDEN, Settings, is_secret
from kafka_source.client_config.tls import Pem, tls_of
from kafka_source.errors import OptionError

log = logging.getLogger(__name__)

_PROBE = "kafkagroup.probe"


def librdkafka_config(settings: Settings) -> dict[str, Any]:
    """Return the configuration of a confluent-kafka producer or consumer.

    Settings of group membership (`java_names.GROUP`) and of the Java clients' internals (`java_names.IGNORED`) are left
    out; librdkafka must know every other name.

    Returns:
        librdkafka's names and values, with secrets in plain text.

    Raises:
        OptionError: A setting is refused or unknown, or its value is invalid.
    """
    config: dict[str, Any] = {}
    for name, value in settings.items():
        if name in java_names.REFUSED:
            raise OptionError(f"kafka.{name}", value, java_names.REFUSED[name])
        if name in java_names.GROUP or name in java_names.SECURITY:
            continue
        if name in java_names.IGNORED:
            log.debug("setting ignored name=kafka.%s reason='librdkafka has no such setting'", name)
            continue
        translated = _translated(name, value, settings)
        _check(name, translated)
        config.update(translated)
    config.update(_security(settings))
    return config


def _translated(name: str, value: str, settings: Settings) -> dict[str, str]:
    if name == "buffer.memory":
        return {"queue.buffering.max.kbytes": str(max(1, (settings.integer(name) or 0) // 1024))}
    if name == "connections.max.idle.ms" and value == "-1":
        return {name: "0"}
    level = re.fullmatch(r"compression\.(gzip|lz4|zstd)\.level", name)
    if level is not None:
        codec = settings.get("compression.type", settings.get("compression.codec", "none"))
        return {"compression.level": value} if codec == level[1] else {}
    return {java_names.RENAMED.get(name, name): value}


def _check(given: str, translated: dict[str, str]) -> None:
    for name, value in translated.items():
        problem = _problem(name, value)
        if problem is not None and "No such configuration property" in problem:
            # The value is not shown, because the setting may be a misspelled name of a secret.
            close = difflib.get_close_matches(given, sorted(java_names.KNOWN), n=1)
            meant = f"; did you mean kafka.{close[0]}?" if close else ""
            raise OptionError(f"kafka.{given}", HIDDEN, f"no value: Kafka clients have no such setting{meant}")
        if problem is not None:
            shown = HIDDEN if is_secret(name) else value
            raise OptionError(f"kafka.{given}", shown, f"a value that librdkafka accepts ({problem})")


@lru_cache(maxsize=1024)
def _problem(name: str, value: str) -> str | None:
    """Return librdkafka's error text for a setting, None if it accepts the setting.

    librdkafka checks settings one after another and stops at the first invalid one. A second setting, which is always
    invalid, prevents it from creating a client (with threads and connections) if the first one is valid.
    """
    try:
        Producer({name: value, _PROBE: ""})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
        return None if _PROBE in text else text
    except (TypeError, ValueError, AttributeError):
        return f"{name} cannot be set to a text"
    raise AssertionError(f"librdkafka accepted the setting {_PROBE}, which does not exist")


def _security(settings: Settings) -> dict[str, str]:
    protocol = security_protocol(settings)
    config = {"security.protocol": protocol.lower()} if "security.protocol" in settings else {}
    if protocol.endswith("SSL"):
        config |= _tls(settings)
    sasl = sasl_of(settings)
    if sasl is None:
        return config
    config["sasl.mechanisms"] = sasl.mechanism
    if sasl.username:
        config |= {"sasl.username": sasl.username, "sasl.password": sasl.password}
    if sasl.mechanism == "GSSAPI":
        if _problem("builtin.features", "sasl_gssapi") is not None:
            raise OptionError(
                "kafka.sasl.mechanism",
                "GSSAPI",
                "another mechanism, because this build of confluent-kafka has no Kerberos. To use GSSAPI, build it "
                "(pip install --no-binary confluent-kafka confluent-kafka) with a librdkafka that has libsasl2",
            )
        config["sasl.kerberos.service.name"] = sasl.service_name
    if sasl.oauth is not None:
        config |= _oauth(sasl.oauth)
    return config


def _oauth(oauth: OAuth) -> dict[str, str]:
    extensions = ",".join(f"{name}={value}" for name, value in oauth.extensions.items())
    if not oauth.url:
        marks = " ".join(f"extension_{name}={value}" for name, value in oauth.extensions.items())
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={oauth.principal} {marks}".strip(),
        }
    config = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": oauth.url,
        "sasl.oauthbearer.client.id": oauth.client_id,
        "sasl.oauthbearer.client.secret": oauth.client_secret,
        "sasl.oauthbearer.scope": oauth.scope,
        "sasl.oauthbearer.extensions": extensions,
    }
    return {name: value for name, value in config.items() if value}


def _tls(settings: Settings) -> dict[str, str]:
    tls = tls_of(settings)
    config = {"ssl.endpoint.identification.algorithm": "https" if tls.check_hostname else "none"}
    config |= _pem("ssl.ca", tls.authorities) | _pem("ssl.certificate", tls.certificate) | _pem("ssl.key", tls.key)
    if tls.key is not None and tls.key_password:
        config["ssl.key.password"] = tls.key_password
    if tls.revoked:
        config["ssl.crl.location"] = tls.revoked
    if tls.ciphers:
        config["ssl.cipher.suites"] = tls.ciphers
    if not tls.verify:
        config["enable.ssl.certificate.verification"] = "false"
    return config


def _pem(name: str, pem: Pem | None) -> dict[str, str]:
    if pem is None:
        return {}
    return {f"{name}.location": pem.location} if pem.location else {f"{name}.pem": pem.text}
