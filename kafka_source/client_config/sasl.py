"""The SASL mechanism and credentials of a client, from settings in the names of Java's client or of librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_source.client_config.jaas import LoginModule
from kafka_source.client_config.settings import Settings
from kafka_source.errors import OptionError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

_PASSWORD_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_UNSECURED_CLAIM = "unsecuredLoginStringClaim_sub"


@dataclass(frozen=True, slots=True)
class OAuth:
    """The source of OAUTHBEARER tokens.

    Attributes:
        url: The token endpoint of the OAuth server; empty: create an unsecured token for `principal` (for tests).
        client_id: The client id of the client credentials grant.
        client_secret: The client secret of the client credentials grant.
        scope: The requested scope; may be empty.
        principal: The subject of an unsecured token.
        extensions: SASL extensions for the broker (KIP-342).
    """

    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sasl:
    """The SASL mechanism and its credentials.

    Attributes:
        mechanism: One of `MECHANISMS`.
        username: The user name for PLAIN and SCRAM.
        password: The password for PLAIN and SCRAM.
        service_name: The name of the brokers' Kerberos service, for GSSAPI.
        oauth: The source of tokens, for OAUTHBEARER.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    service_name: str = "kafka"
    oauth: OAuth | None = None


def security_protocol(settings: Settings) -> str:
    """Return `security.protocol`, PLAINTEXT if it is not set.

    Raises:
        OptionError: The protocol is unknown.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise OptionError("kafka.security.protocol", protocol, "one of " + ", ".join(PROTOCOLS))
    return protocol


def sasl_of(settings: Settings) -> Sasl | None:
    """Return the SASL mechanism and credentials; None if the security protocol does not use SASL.

    Raises:
        OptionError: The mechanism is unknown, or its credentials are missing.
    """
    if not security_protocol(settings).startswith("SASL_"):
        return None
    module = settings.login_module()
    mechanism = _mechanism(settings, module)
    if mechanism in _PASSWORD_MODULES:
        return _password(settings, mechanism, module)
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, oauth=_oauth(settings, module))
    named = module.options.get("serviceName") if module else None
    return Sasl(mechanism, service_name=settings.get("sasl.kerberos.service.name") or named or "kafka")


def _mechanism(settings: Settings, module: LoginModule | None) -> str:
    given = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    if given is None and module is not None and module.name == "PlainLoginModule":
        return "PLAIN"
    mechanism = (given or "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise OptionError("kafka.sasl.mechanism", mechanism, "one of " + ", ".join(MECHANISMS))
    return mechanism


def _password(settings: Settings, mechanism: str, module: LoginModule | None) -> Sasl:
    if module is not None and module.name != _PASSWORD_MODULES[mechanism]:
        raise OptionError("kafka.sasl.jaas.config", module.name, f"{_PASSWORD_MODULES[mechanism]} with {mechanism}")
    options = module.options if module else {}
    username = settings.get("sasl.username") or options.get("username")
    password = settings.get("sasl.password") or options.get("password")
    if not username or not password:
        raise OptionError(
            "kafka.sasl.jaas.config",
            None,
            f"a {_PASSWORD_MODULES[mechanism]} with username and password; you can set kafka.sasl.username and "
            "kafka.sasl.password instead",
        )
    return Sasl(mechanism, username, password)


def _oauth(settings: Settings, module: LoginModule | None) -> OAuth:
    options = dict(module.options) if module else {}
    extensions = {
        name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")
    }
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url:
        if options.get(_UNSECURED_CLAIM):
            return OAuth(principal=options[_UNSECURED_CLAIM], extensions=extensions)
        raise OptionError("kafka.sasl.oauthbearer.token.endpoint.url", None, "the URL of the OAuth token endpoint")

    def either(jaas: str, *names: str) -> str:
        return options.get(jaas) or next((settings[name] for name in names if settings.get(name)), "")

    prefix = "sasl.oauthbearer."
    client_id = either("clientId", f"{prefix}client.credentials.client.id", f"{prefix}client.id")
    secret = either("clientSecret", f"{prefix}client.credentials.client.secret", f"{prefix}client.secret")
    if not client_id or not secret:
        raise OptionError("kafka.sasl.jaas.config", None, "an OAuthBearerLoginModule with clientId and clientSecret")
    return OAuth(url, client_id, secret, either("scope", f"{prefix}scope"), extensions=extensions)
