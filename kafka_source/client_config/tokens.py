"""OAUTHBEARER tokens from a provider that the user names: a function, AWS, Azure or Google.

`kafka.sasl.oauthbearer.token.provider` is `module:function`, `aws`, `azure` or `google`. A function gets the options of
the login module in `kafka.sasl.jaas.config` as a dict, and returns `(token, expires_at)` with the time in seconds since
1970, as confluent-kafka's `oauth_cb` does:

    def token(options: dict[str, str]) -> tuple[str, float]: ...

The libraries of AWS, Azure and Google are extras. The driver and tasks import a library when they make a token.
"""

import base64
import importlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafka_source.client_config.sasl import OAuth
from kafka_source.errors import AuthenticationError, OptionError

_OPTION = "kafka.sasl.oauthbearer.token.provider"


class Token(NamedTuple):
    """A token and the time at which it expires, in seconds since 1970."""

    value: str
    expires_at: float


def provided_token(oauth: OAuth) -> Token:
    """Return a new token of `oauth.provider`.

    Raises:
        OptionError: The provider does not exist, or its library is not installed.
        AuthenticationError: The provider returns no token. The error has the type of the provider's exception, and not
            its text, which may contain a secret.
    """
    make = _BUILT_IN.get(oauth.provider) or _function(oauth.provider)
    try:
        value, expires_at = make(dict(oauth.options))
        return Token(str(value), float(expires_at))
    except OptionError:
        raise
    except ModuleNotFoundError as missing:
        extra = oauth.provider if oauth.provider in _BUILT_IN else ""
        install = f"pip install 'kafkagroup[{extra}]'" if extra else f"install {missing.name}"
        raise OptionError(_OPTION, oauth.provider, f"a provider whose library is installed: {install}") from None
    except Exception as problem:
        raise AuthenticationError(
            f"The token provider {oauth.provider} gave no token: {type(problem).__name__}. Check {_OPTION} and the "
            "credentials of this machine."
        ) from None


class LibrdkafkaTokens:
    """A provider as confluent-kafka's `oauth_cb`.

    The first token is made immediately, so that a provider's error is raised unchanged. confluent-kafka would raise an
    error without the reason after 10 seconds.

    Raises:
        OptionError: See `provided_token`.
        AuthenticationError: See `provided_token`.
    """

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._first: Token | None = provided_token(oauth)

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """Return a token, the time at which it expires, the principal and the extensions."""
        token, self._first = self._first or provided_token(self._oauth), None
        return token.value, token.expires_at, self._oauth.principal, dict(self._oauth.extensions)


def _function(name: str) -> Callable[[dict[str, str]], tuple[str, float]]:
    module, _, function = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        takes = f"module:function, importable where the tasks run, or one of {', '.join(_BUILT_IN)}"
        raise OptionError(_OPTION, name, takes) from None
    if not callable(found):
        raise OptionError(_OPTION, name, "a function, which returns a token and the time at which it expires")
    made: Callable[[dict[str, str]], tuple[str, float]] = found
    return made


def _aws(options: Mapping[str, str]) -> tuple[str, float]:
    """Return a token for MSK by IAM; the options are those of Java's `IAMLoginModule`."""
    signer = importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    region, profile, role = options["region"], options.get("awsProfileName"), options.get("awsRoleArn")
    if role:
        session = options.get("awsRoleSessionName") or "kafkagroup"
        token, expires_ms = signer.generate_auth_token_from_role_arn(region, role, session)
    elif profile:
        token, expires_ms = signer.generate_auth_token_from_profile(region, profile)
    else:
        token, expires_ms = signer.generate_auth_token(region)
    return token, expires_ms / 1000


def _azure(options: Mapping[str, str]) -> tuple[str, float]:
    """Return a token of Microsoft Entra ID; the option `scope` names the resource."""
    credential = importlib.import_module("azure.identity").DefaultAzureCredential()
    token = credential.get_token(options["scope"])
    return token.token, float(token.expires_on)


def _google(options: Mapping[str, str]) -> tuple[str, float]:
    """Return a token for Managed Service for Apache Kafka, in the form that Google's login handler for Java uses."""
    auth = importlib.import_module("google.auth")
    requests = importlib.import_module("google.auth.transport.requests")
    credentials, _ = auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(requests.Request())
    expires_at = credentials.expiry.timestamp() if credentials.expiry.tzinfo else _utc(credentials.expiry)
    email = getattr(credentials, "service_account_email", "") or options.get("principal", "")
    head = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": expires_at, "iss": "Google", "iat": time.time(), "scope": "kafka", "sub": email}
    parts = [json.dumps(head), json.dumps(claims), credentials.token]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), expires_at


def _utc(moment: Any) -> float:
    """Convert a UTC time without a zone, from google-auth, to seconds since 1970."""
    from datetime import timezone

    return float(moment.replace(tzinfo=timezone.utc).timestamp())


_BUILT_IN: Mapping[str, Callable[[dict[str, str]], tuple[str, float]]] = {
    "aws": _aws,
    "azure": _azure,
    "google": _google,
}
