"""SASL over kafka-python's mechanisms: their arguments, OAUTHBEARER's tokens, and Kerberos logins."""

from __future__ import annotations

import base64
import http.client
import importlib
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import OAuth, sasl_of
from kafka_source.client_config.tokens import provided_token
from kafka_source.errors import AuthenticationError, KafkaGroupError, RetriableError

# As for OAUTHBEARER: the mechanisms are the public way to log in with kafka-python.

KEYTAB = "sasl_kerberos_keytab"
PRINCIPAL = "sasl_kerberos_principal"


class KerberosLogin(SaslMechanismGSSAPI):  # type: ignore[misc]
    """GSSAPI with credentials of its own in place of those of the process.

    Args:
        config: The arguments of a kafka-python mechanism, with `KEYTAB`, `PRINCIPAL` or both.

    Raises:
        gssapi.exceptions.GSSError: The KDC refuses the principal, or the keytab has no key of it.
    """

    def __init__(self, **config: Any) -> None:
        gssapi = importlib.import_module("gssapi")
        credentials = _credentials(gssapi, str(config.get(KEYTAB) or ""), str(config.get(PRINCIPAL) or ""))
        self.auth_id = f"{config['sasl_kerberos_service_name']}@{config['host']}"
        service = gssapi.Name(self.auth_id, name_type=gssapi.NameType.hostbased_service)
        self.gssapi_name = service.canonicalize(gssapi.MechType.kerberos)
        self._client_ctx = gssapi.SecurityContext(name=self.gssapi_name, creds=credentials, usage="initiate")
        self._is_done = self._is_authenticated = False
        self._next_token = self._client_ctx.step(None)


def _credentials(gssapi: Any, keytab: str, principal: str) -> Any:
    name = gssapi.Name(principal, name_type=gssapi.NameType.kerberos_principal) if principal else None
    # A cache in memory has a name, so that all connections of the process with this login share its ticket.
    store = {"client_keytab": keytab, "ccache": f"MEMORY:kafkagroup-{principal}-{keytab}"} if keytab else None
    return gssapi.Credentials(name=name, usage="initiate", store=store)


# The base class that kafka-python's public documentation names for `sasl_oauth_token_provider`.


log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0
# The part of a token's lifetime after which it is refreshed, as in the Java client.
_REFRESH_AFTER = 0.8
# Seconds between attempts to refresh a token, as in the Java client.
_RETRY_SECONDS = 10.0
_TOO_BUSY = (408, 429)


def token_provider(oauth: OAuth, refresh_after: float = _REFRESH_AFTER) -> AbstractTokenProvider:
    """Return the object from which kafka-python gets its tokens.

    Args:
        oauth: The token endpoint and the client's credentials.
        refresh_after: The part of a token's lifetime after which it is refreshed.
    """
    return _TokenProvider(oauth, refresh_after)


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, oauth: OAuth, refresh_after: float) -> None:
        self._oauth = oauth
        self._refresh_after = refresh_after
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = self._expires_at = float("-inf")

    def token(self) -> str:
        """Return a valid token; all connections share it.

        Raises:
            RetriableError: No token is available now; a later attempt may succeed.
            AuthenticationError: The token endpoint refuses the client.
        """
        with self._lock:
            if time.monotonic() >= self._refresh_at:
                self._refresh()
            return self._token

    def _refresh(self) -> None:
        try:
            token, seconds = _new_token(self._oauth)
        except KafkaGroupError as problem:
            now = time.monotonic()
            if now >= self._expires_at:
                raise
            log.warning(
                "token refresh failed; reusing the current token for another %.0f s: %s",
                self._expires_at - now,
                problem,
            )
            self._refresh_at = min(now + _RETRY_SECONDS, self._expires_at)
        else:
            now = time.monotonic()
            self._token, self._expires_at = token, now + seconds
            self._refresh_at = now + seconds * self._refresh_after

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions of the login module."""
        return dict(self._oauth.extensions)


def _new_token(oauth: OAuth) -> tuple[str, float]:
    """Return a new token and its lifetime in seconds."""
    if oauth.provider:
        token = provided_token(oauth)
        return token.value, token.expires_at - time.time()
    return _fetch(oauth) if oauth.url else _unsecured(oauth.principal)


def _fetch(oauth: OAuth) -> tuple[str, float]:
    """Return a token of the client-credentials grant (RFC 6749, section 4.4) and its lifetime in seconds."""
    form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    client = f"{urllib.parse.quote(oauth.client_id, '')}:{urllib.parse.quote(oauth.client_secret, '')}"
    request = urllib.request.Request(
        oauth.url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": "Basic " + base64.b64encode(client.encode()).decode(), "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            answer = json.load(response)
        return str(answer["access_token"]), float(answer.get("expires_in", 300))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        if isinstance(error, urllib.error.HTTPError):
            # An HTTPError is also the response and keeps its connection open.
            error.close()
        # The response may contain a token: report the type of the error only.
        reason = getattr(error, "reason", error)
        problem = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else type(reason).__name__
        kind = RetriableError if _passes(error) else AuthenticationError
        raise kind(
            # Without the part of the URL before the @, which may be a password.
            f"No token came from {oauth.url.rpartition('@')[2]} for client {oauth.client_id}: {problem}. Check "
            "kafka.sasl.oauthbearer.token.endpoint.url, clientId and clientSecret."
        ) from None


def _passes(error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in _TOO_BUSY
    if isinstance(error, urllib.error.URLError):
        return not isinstance(error.reason, ssl.SSLCertVerificationError)
    return isinstance(error, OSError | http.client.IncompleteRead | http.client.BadStatusLine)


def _unsecured(principal: str, seconds: float = 3600.0) -> tuple[str, float]:
    """Return an unsigned token (RFC 7515, appendix A.5) and its lifetime; only brokers set up for tests accept it."""
    now = time.time()

    def part(claims: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part({'sub': principal, 'iat': now, 'exp': now + seconds})}.", seconds


def sasl_arguments(settings: Settings) -> dict[str, object] | None:
    """Return the keyword arguments of a `kafka.net.sasl` mechanism; None if the security protocol has no SASL.

    They contain secrets in clear text, and perhaps a token provider with a lock: never log or pickle them.

    Raises:
        OptionError: The mechanism is unknown, or one of its settings is missing.
    """
    sasl = sasl_of(settings)
    if sasl is None:
        return None
    arguments: dict[str, object] = {
        "sasl_mechanism": sasl.mechanism,
        # This value is independent of the actual protocol: with SASL_PLAINTEXT the mechanisms of kafka-python would
        # log a warning for each connection.
        "security_protocol": "SASL_SSL",
    }
    if sasl.username:
        arguments |= {"sasl_plain_username": sasl.username, "sasl_plain_password": sasl.password}
    if sasl.mechanism == "GSSAPI":
        arguments["sasl_kerberos_service_name"] = sasl.service_name
        login = {KEYTAB: sasl.keytab, PRINCIPAL: sasl.principal}
        arguments |= {name: value for name, value in login.items() if value}
    if sasl.oauth is not None:
        arguments["sasl_oauth_token_provider"] = token_provider(sasl.oauth)
    return arguments
