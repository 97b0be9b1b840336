"""Settings as a configuration of librdkafka."""

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
    """The configuration for a producer or consumer of confluent-kafka.

    Settings of group membership are left out, as are those of the Java clients' inner workings; every other name must
    be one that librdkafka knows.

    Returns:
        librdkafka's names and values, with secrets in the clear.

    Raises:
        OptionError: A setting is refused or unknown, or its value is not taken.
    """
    config: dict[str, Any] = {}
    for name, value in settings.items():
        if name in java_names.REFUSED:
            raise OptionError(f"kafka.{name}", value, java_names.REFUSED[name])
        if name in java_names.GROUP or name in java_names.SECURITY:
            continue
        if name in java_names.IGNORED:
            log.debug("kafka.%s has no meaning for librdkafka and is ignored", name)
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
            # A misspelt name may hold a secret: its value is not shown.
            close = difflib.get_close_matches(given, sorted(java_names.KNOWN), n=1)
            meant = f"; did you mean kafka.{close[0]}?" if close else ""
            raise OptionError(f"kafka.{given}", HIDDEN, f"no value: no Kafka client knows it{meant}")
        if problem is not None:
            shown = HIDDEN if is_secret(name) else value
            raise OptionError(f"kafka.{given}", shown, f"what librdkafka takes ({problem})")


@lru_cache(maxsize=1024)
def _problem(name: str, value: str) -> str | None:
    """What librdkafka says against a setting, None if nothing.

    It checks settings one after another and stops at the first bad one: an impossible second one keeps it from making
    a client, whatever it thinks of the first.
    """
    try:
        Producer({name: value, _PROBE: ""})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
        return None if _PROBE in text else text
    except (TypeError, ValueError, AttributeError):
        return f"{name} is not a setting for texts"
    raise AssertionError("librdkafka took an impossible setting")


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
                "another mechanism with this build of confluent-kafka, which has no Kerberos: install it from source "
                "(pip install --no-binary confluent-kafka confluent-kafka) against a librdkafka with libsasl2",
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
