"""The SASL mechanism and credentials in settings: JAAS, login handlers. `kafka_client/sasl.py` logs in."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_source.client_config.jaas import LoginModule
from kafka_source.client_config.java_settings import TOKEN_PROVIDER
from kafka_source.client_config.settings import Settings
from kafka_source.errors import OptionError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_MSK_IAM = "AWS_MSK_IAM"

_PASSWORD_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_UNSECURED_CLAIM = "unsecuredLoginStringClaim_sub"

# Java's handlers of logins and challenges, each with its counterpart, a token provider; "": none is needed.
_LOGIN_HANDLERS = {
    "OAuthBearerLoginCallbackHandler": "",
    "OAuthBearerUnsecuredLoginCallbackHandler": "",
    "IAMOAuthBearerLoginCallbackHandler": "aws",
    "GcpLoginCallbackHandler": "google",
}
_CLIENT_HANDLERS = ("IAMClientCallbackHandler", "OAuthBearerSaslClientCallbackHandler")

_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


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
        provider: The provider of the tokens if there is no endpoint, see `tokens`; empty: no provider.
        options: The provider's input: the options of the login module, with `region` for AWS.
    """

    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Sasl:
    """The SASL mechanism and its credentials.

    Attributes:
        mechanism: One of `MECHANISMS`.
        username: The user name for PLAIN and SCRAM.
        password: The password for PLAIN and SCRAM.
        service_name: The name of the brokers' Kerberos service, for GSSAPI.
        keytab: The file with the principal's keys, for GSSAPI; empty: the tickets of the process's user.
        principal: The principal that logs in, for GSSAPI; empty: the owner of the process's default ticket.
        oauth: The source of tokens, for OAUTHBEARER.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    service_name: str = "kafka"
    keytab: str = ""
    principal: str = ""
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
    _check_client_handler(settings)
    if mechanism == _MSK_IAM:
        return Sasl("OAUTHBEARER", oauth=_provided(settings, module, "aws"))
    if mechanism != "OAUTHBEARER":
        _check_login_handler(settings)
    if mechanism in _PASSWORD_MODULES:
        return _password(settings, mechanism, module)
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, oauth=_oauth(settings, module))
    return _kerberos(settings, module)


def _mechanism(settings: Settings, module: LoginModule | None) -> str:
    given = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    if given is None and module is not None and module.name == "PlainLoginModule":
        return "PLAIN"
    mechanism = (given or "GSSAPI").upper()
    if mechanism not in (*MECHANISMS, _MSK_IAM):
        raise OptionError("kafka.sasl.mechanism", mechanism, "one of " + ", ".join([*MECHANISMS, _MSK_IAM]))
    return mechanism


def _password(settings: Settings, mechanism: str, module: LoginModule | None) -> Sasl:
    if module is not None and module.name != _PASSWORD_MODULES[mechanism]:
        raise OptionError("kafka.sasl.jaas.config", module.name, f"{_PASSWORD_MODULES[mechanism]} with {mechanism}")
    options = module.options if module else {}
    if options.get("tokenauth", "").lower() == "true":
        takes = "no tokenauth: delegation tokens of Kafka are not supported. Log in with a user and a password"
        raise OptionError("kafka.sasl.jaas.config", "tokenauth", takes)
    username = settings.get("sasl.username") or options.get("username")
    password = settings.get("sasl.password") or options.get("password")
    if not username or not password:
        raise OptionError(
            "kafka.sasl.jaas.config",
            None,
            f"a {_PASSWORD_MODULES[mechanism]} with username and password; you can set kafka.sasl.username and "
            "kafka.sasl.password instead. A JAAS file of the JVM (java.security.auth.login.config) and the delegation "
            "tokens of Spark (spark.kafka.clusters.*) are not read",
        )
    return Sasl(mechanism, username, password)


def _oauth(settings: Settings, module: LoginModule | None) -> OAuth:
    provider = settings.get(TOKEN_PROVIDER, "") or _check_login_handler(settings)
    if provider:
        return _provided(settings, module, provider)
    options = dict(module.options) if module else {}
    extensions = _extensions(options)
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url:
        if options.get(_UNSECURED_CLAIM):
            return OAuth(principal=options[_UNSECURED_CLAIM], extensions=extensions)
        raise OptionError(
            "kafka.sasl.oauthbearer.token.endpoint.url",
            None,
            f"the URL of the OAuth token endpoint, or kafka.{TOKEN_PROVIDER}",
        )

    def either(jaas: str, *names: str) -> str:
        return options.get(jaas) or next((settings[name] for name in names if settings.get(name)), "")

    prefix = "sasl.oauthbearer."
    client_id = either("clientId", f"{prefix}client.credentials.client.id", f"{prefix}client.id")
    secret = either("clientSecret", f"{prefix}client.credentials.client.secret", f"{prefix}client.secret")
    if not client_id or not secret:
        raise OptionError("kafka.sasl.jaas.config", None, "an OAuthBearerLoginModule with clientId and clientSecret")
    return OAuth(url, client_id, secret, either("scope", f"{prefix}scope"), extensions=extensions)


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")}


def _provided(settings: Settings, module: LoginModule | None, provider: str) -> OAuth:
    """Return a source of tokens that come from a provider."""
    options = dict(module.options) if module else {}
    scope = settings.get("sasl.oauthbearer.scope", "")
    if scope:
        options.setdefault("scope", scope)
    if provider == "aws":
        options.setdefault("region", _region(settings, options))
    if provider == "azure" and not options.get("scope"):
        takes = "the resource with /.default, e.g. https://NAMESPACE.servicebus.windows.net/.default for Event Hubs"
        raise OptionError("kafka.sasl.oauthbearer.scope", None, takes)
    return OAuth(provider=provider, options=options, extensions=_extensions(options))


def _region(settings: Settings, options: Mapping[str, str]) -> str:
    """Return the AWS region, from the brokers' names as in Java's login, else from the environment."""
    named = _REGION.search(settings.get("bootstrap.servers", ""))
    region = named[1] if named else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = options.get("awsRegion") or region
    if not region:
        takes = "names of MSK brokers, from which the region is taken; or set the environment variable AWS_REGION"
        raise OptionError("kafka.bootstrap.servers", settings.shown("bootstrap.servers"), takes)
    return region


def _check_login_handler(settings: Settings) -> str:
    """Return the token provider that replaces a login handler of Java; empty: no provider is needed.

    Raises:
        OptionError: The handler is a Java class without a counterpart.
    """
    name = settings.get("sasl.login.callback.handler.class", "")
    short = name.rsplit(".", 1)[-1]
    if name and short not in _LOGIN_HANDLERS:
        takes = f"one of {', '.join(_LOGIN_HANDLERS)}; for another login name a function in kafka.{TOKEN_PROVIDER}"
        raise OptionError("kafka.sasl.login.callback.handler.class", name, takes)
    return _LOGIN_HANDLERS.get(short, "")


def _check_client_handler(settings: Settings) -> None:
    name = settings.get("sasl.client.callback.handler.class", "")
    if name and name.rsplit(".", 1)[-1] not in _CLIENT_HANDLERS:
        takes = f"one of {', '.join(_CLIENT_HANDLERS)}: other handlers are Java classes"
        raise OptionError("kafka.sasl.client.callback.handler.class", name, takes)


def _kerberos(settings: Settings, module: LoginModule | None) -> Sasl:
    """Return the Kerberos login that Java's Krb5LoginModule describes: with a keytab, or with an existing ticket."""
    options = dict(module.options) if module else {}
    service = settings.get("sasl.kerberos.service.name") or options.get("serviceName") or "kafka"
    if options.get("ticketCache"):
        takes = "no ticketCache: set the environment variable KRB5CCNAME in the driver and in the executors"
        raise OptionError("kafka.sasl.jaas.config", "ticketCache", takes)
    keytab, principal = options.get("keyTab", ""), options.get("principal", "")
    if options.get("useKeyTab", "true").lower() != "true":
        keytab = ""
    elif "useKeyTab" in options and not keytab:
        raise OptionError("kafka.sasl.jaas.config", "useKeyTab", "keyTab, the path of the keytab, if useKeyTab is true")
    if keytab and not principal:
        raise OptionError("kafka.sasl.jaas.config", "keyTab", "principal too, because a keytab may have several keys")
    return Sasl("GSSAPI", service_name=service, keytab=keytab, principal=principal)
