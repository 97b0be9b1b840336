"""Translate settings to librdkafka's names, units and ranges."""

import re
from typing import Any

from confluent_kafka import KafkaException, Producer

from kafka_source.client_config.java_settings import JAVA, Role, is_known
from kafka_source.client_config.sasl import OAuth, sasl_of, security_protocol
from kafka_source.client_config.servers import parse_servers
from kafka_source.client_config.settings import Settings
from kafka_source.client_config.tls import Pem, tls_of
from kafka_source.client_config.tokens import LibrdkafkaTokens
from kafka_source.errors import OptionError

_PROBE = "kafkagroup.probe"
# The error text of librdkafka and confluent-kafka for names that no text can set.
_NO_SETTING = ("No such configuration property", "must be set through", "cannot be set to a text")
_OUT_OF_RANGE = re.compile(r"outside allowed range (-?\d+)(?:\.\d+)?\.\.(-?\d+)")
# librdkafka tries the addresses of a name one after another, by default for 30 s each (Java: 10 s). By default it
# resolves the name again after 1 s (the JVM: 30 s), and may then begin with the address that did not answer.
DEFAULTS = {"socket.connection.setup.timeout.ms": "10000", "broker.address.ttl": "30000"}
"""Defaults for librdkafka where its own defaults differ from Java's."""

# The least `message.max.bytes`. librdkafka's consumers use this setting only to refuse a smaller `fetch.max.bytes`.
_LEAST_FETCH = 1000

_BACKOFF = ("reconnect.backoff.ms", "reconnect.backoff.max.ms")
_LEVEL = re.compile(r"compression\.(gzip|lz4|zstd)\.level")


def librdkafka_config(settings: Settings, role: Role = Role.ALL) -> dict[str, Any]:
    """Return the configuration of a confluent-kafka producer or consumer.

    The configuration has the settings that librdkafka knows, in librdkafka's names and ranges. Other settings are
    omitted, and `check.check_settings` reports them.

    Args:
        settings: Settings of the Kafka clients.
        role: The client's role; a setting of Java that only clients in other roles have is omitted.

    Returns:
        librdkafka's names and values, with secrets in plain text.

    Raises:
        OptionError: A value is invalid, or a setting that all of Java's clients have is refused.
    """
    config: dict[str, Any] = dict(DEFAULTS)
    for name in settings:
        java = JAVA.get(name)
        if java is None:
            if not is_known(name) and is_librdkafkas(name):
                check_own_setting(settings, name)
                config[name] = settings[name]
        elif java.refused_for is Role.ALL and not java.is_harmless(settings[name]):
            raise OptionError(f"kafka.{name}", None, problem=f"Remove the option kafka.{name}: {java.does}")
        elif java.roles & role and java.rdkafka:
            config.update(_accepted(settings, name))
    if role is Role.CONSUMER and "fetch.max.bytes" in config:
        config["message.max.bytes"] = str(_LEAST_FETCH)
    config.update(_security(settings))
    return config


def narrowed(settings: Settings, name: str) -> list[str]:
    """Return `name=value` for each librdkafka setting whose accepted value differs from the given value.

    Raises:
        OptionError: librdkafka refuses the value for a reason other than its range.
    """
    return [
        f"{theirs}={accepted}"
        for theirs, given in _translated(settings, name).items()
        if (accepted := _accept(settings, name, theirs, given)) != given
    ]


def is_librdkafkas(name: str) -> bool:
    """Return whether librdkafka has a setting of this name."""
    problem = _problem(name, "") or ""
    return not any(text in problem for text in _NO_SETTING)


def check_own_setting(settings: Settings, name: str) -> None:
    """Check a setting that only librdkafka has.

    Raises:
        OptionError: librdkafka refuses the setting's value.
    """
    problem = _problem(name, settings[name])
    if problem is not None:
        raise OptionError(f"kafka.{name}", settings.shown(name), f"a value that librdkafka accepts ({problem})")


def _accepted(settings: Settings, name: str) -> dict[str, str]:
    return {theirs: _accept(settings, name, theirs, given) for theirs, given in _translated(settings, name).items()}


def _translated(settings: Settings, name: str) -> dict[str, str]:
    """Return a setting of Java in librdkafka's names and units."""
    value, theirs = settings[name], JAVA[name].rdkafka
    if name == "bootstrap.servers":
        return {theirs: ",".join(map(str, parse_servers(value)))}
    if name in _BACKOFF:
        # Set both pauses, because librdkafka refuses a longest pause below the first, even if one pause is a default.
        pauses = zip(_BACKOFF, settings.reconnect_backoff_ms(), strict=True)
        return {each: str(pause) for each, pause in pauses if each == name or each not in settings}
    if name == "buffer.memory":
        return {theirs: str(max(1, (settings.integer(name) or 0) // 1024))}
    if value == "-1" and (name == "connections.max.idle.ms" or name.endswith(".buffer.bytes")):
        # -1 means no limit, or the operating system's size. librdkafka uses 0 instead.
        return {theirs: "0"}
    if name == "client.dns.lookup" and value.lower() == "default":
        return {theirs: "use_all_dns_ips"}
    level = _LEVEL.fullmatch(name)
    if level is not None and settings.get("compression.type", settings.get("compression.codec", "none")) != level[1]:
        return {}
    return {theirs: value}


def _accept(settings: Settings, name: str, theirs: str, value: str) -> str:
    """Return the nearest value that librdkafka accepts."""
    if theirs == "fetch.max.bytes" and 0 <= (settings.integer(name) or 0) < _LEAST_FETCH:
        return str(_LEAST_FETCH)
    problem = _problem(theirs, value)
    if problem is None:
        return value
    bounds = _OUT_OF_RANGE.search(problem)
    if bounds is None or not re.fullmatch(r"-?\d+", value):
        raise OptionError(f"kafka.{name}", settings.shown(name), f"a value that librdkafka accepts ({problem})")
    return str(min(max(int(value), int(bounds[1])), int(bounds[2])))


def _problem(name: str, value: str) -> str | None:
    """Return librdkafka's error text for a setting; None if librdkafka accepts it.

    librdkafka checks settings in order and stops at the first invalid setting. The second setting here is always
    invalid, so that librdkafka never makes a client with threads and connections.
    """
    try:
        Producer({name: value, _PROBE: ""})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
        return None if _PROBE in text else text
    except (TypeError, ValueError, AttributeError):
        return f"{name} cannot be set to a text"
    raise AssertionError(f"librdkafka accepted the setting {_PROBE}, which does not exist")


def _security(settings: Settings) -> dict[str, Any]:
    protocol = security_protocol(settings)
    config: dict[str, Any] = {"security.protocol": protocol.lower()} if "security.protocol" in settings else {}
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
                "another mechanism with engine=librdkafka, because this build of confluent-kafka has no Kerberos. Use "
                "engine=native, or build confluent-kafka with a librdkafka that has libsasl2 (pip install --no-binary "
                "confluent-kafka confluent-kafka)",
            )
        config["sasl.kerberos.service.name"] = sasl.service_name
        named = {"sasl.kerberos.keytab": sasl.keytab, "sasl.kerberos.principal": sasl.principal}
        config |= {name: value for name, value in named.items() if value}
    if sasl.oauth is not None:
        config |= _oauth(sasl.oauth)
    return config


def _oauth(oauth: OAuth) -> dict[str, Any]:
    if oauth.provider:
        return {"oauth_cb": LibrdkafkaTokens(oauth)}
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
    return {f"{name}.location": pem.location} if pem.location else {f"{name}.pem": pem.read()}
