"""Logins by PLAIN, SCRAM, OAUTHBEARER and GSSAPI (RFC 4616, 5802, 7628, 4752); the refresh of OAuth tokens.

Each mechanism is a generator that yields the bytes to send and receives the broker's answers. The generator ends when
the broker has accepted the login. With SCRAM the broker must also have proved its identity.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import importlib
import json
import logging
import re
import secrets
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import OAuth, Sasl, sasl_of
from kafka_source.client_config.tokens import provided_token
from kafka_source.errors import AuthenticationError, KafkaGroupError, RetriableError

Exchange = Generator[bytes, bytes, None]
"""A login under way."""

MIN_ITERATIONS = 4096
"""The fewest accepted rounds of SCRAM, as in Java's client (RFC 7677). With fewer rounds, the password could be found
cheaply from a recorded exchange.
"""

# No broker is set to more rounds. A round takes half a microsecond, so more rounds would only occupy this process.
_MAX_ITERATIONS = 1_000_000
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# GSSAPI's security layers are not used, because Kafka encrypts with TLS only.
_AUTHENTICATION_ONLY = 1


class SaslError(ValueError):
    """A broker refuses a login, or breaks the login's protocol; the message contains no secret."""


@dataclass(frozen=True, slots=True)
class Login:
    """The login of a client. Never log or pickle it, because it contains secrets in clear text and a lock.

    Attributes:
        sasl: The mechanism and its credentials.
        tokens: The tokens, for OAUTHBEARER.
    """

    sasl: Sasl = field(repr=False)
    tokens: Tokens | None = None

    @staticmethod
    def of(settings: Settings) -> Login | None:
        """Return the login of the settings; None if the security protocol has no SASL.

        Raises:
            OptionError: The mechanism is unknown, or one of its settings is missing.
        """
        sasl = sasl_of(settings)
        return None if sasl is None else Login(sasl, None if sasl.oauth is None else Tokens(sasl.oauth))

    def begin(self, host: str) -> Exchange:
        """Return a login at a broker.

        Args:
            host: The broker's host name, which Kerberos needs.
        """
        sasl = self.sasl
        if self.tokens is not None:
            return oauthbearer(self.tokens)
        if sasl.mechanism == "GSSAPI":
            return gssapi(f"{sasl.service_name}@{host}", keytab=sasl.keytab, principal=sasl.principal)
        if sasl.mechanism in _HASHES:
            return scram(_HASHES[sasl.mechanism], sasl.username, sasl.password)
        return plain(sasl.username, sasl.password)


def plain(username: str, password: str) -> Exchange:
    """Log in with a password in clear text (RFC 4616)."""
    yield f"\0{username}\0{password}".encode()


def scram(hash_name: str, username: str, password: str, nonce: str = "") -> Exchange:
    """Log in without sending the password, and check that the broker knows the password too.

    Args:
        hash_name: The name of the hash function.
        username: The user.
        password: The password.
        nonce: The client's random text; empty: a new one.

    Raises:
        SaslError: The broker's answer is malformed, requires too few or too many iterations, or has a wrong proof.
    """
    nonce = nonce or secrets.token_urlsafe(24)
    # RFC 5802, section 5.1: these two signs are separators in the message.
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={escaped},r={nonce}"
    first_answer = yield f"n,,{first_bare}".encode()

    found = _attributes(first_answer)
    server_nonce, iterations = found.get("r", ""), found.get("i", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise SaslError("the broker's nonce does not continue the client's nonce")
    if re.fullmatch("[0-9]{1,9}", iterations) is None:
        raise SaslError("the broker's number of iterations is no number")
    if not MIN_ITERATIONS <= int(iterations) <= _MAX_ITERATIONS:
        raise SaslError(
            f"the broker asks for {iterations} iterations, but this client accepts {MIN_ITERATIONS} to "
            f"{_MAX_ITERATIONS}: store the user's credentials with another number"
        )
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), _base64(found.get("s", "")), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    final_bare = f"c=biws,r={server_nonce}"
    signed = b",".join((first_bare.encode(), first_answer, final_bare.encode()))
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
    last = _attributes((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()))

    if "e" in last:
        raise SaslError(f"the broker refuses the login: {last['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    if not hmac.compare_digest(expected, _base64(last.get("v", ""))):
        raise SaslError("the broker's proof is wrong: the broker does not know the user's password")


def _attributes(message: bytes) -> dict[str, str]:
    """Return the attributes of a message of SCRAM by their letters."""
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        raise SaslError("the broker's message is not UTF-8 text") from None
    found = {name: value for name, mark, value in parts if mark}
    if "m" in found or len(found) != len(parts):
        raise SaslError("the broker's message has another form than RFC 5802 defines")
    return found


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("a part of the broker's message is not base64") from None


def oauthbearer(tokens: Tokens) -> Exchange:
    """Log in with an OAuth token.

    Raises:
        SaslError: The broker refuses the token.
        RetriableError: No token is available now.
        AuthenticationError: The token endpoint refuses the client.
    """
    extensions = "".join(f"\1{name}={value}" for name, value in tokens.extensions.items())
    if (yield f"n,,\1auth=Bearer {tokens.token()}{extensions}\1\1".encode()):
        # A broker that refuses the token sends an error, waits for this byte, and ends the login (RFC 7628, 3.2.3).
        yield b"\1"
        raise SaslError("the broker refuses the token")


def gssapi(service: str, *, keytab: str, principal: str) -> Exchange:
    """Log in by Kerberos.

    MIT's library gets a ticket from the KDC when a connection needs one, and a new ticket before the old one expires.
    With a keytab, neither kinit nor a ticket cache on disk is needed.

    Args:
        service: The broker's service and host, with `@` between them.
        keytab: The file with the principal's keys; empty: the tickets of the process's user.
        principal: The principal that logs in; empty: the owner of the default ticket.

    Raises:
        SaslError: The broker offers no login without a security layer.
        gssapi.exceptions.GSSError: The KDC or the broker refuses, or the keytab has no key of the principal.
    """
    context = _security_context(service, keytab, principal)
    answer = yield context.step(None) or b""
    while not context.complete:
        answer = yield context.step(answer) or b""
    # The broker sends its security layers (one byte) and the size of its buffer (three bytes).
    offered: bytes = context.unwrap(answer).message
    if len(offered) < 4 or not offered[0] & _AUTHENTICATION_ONLY:
        raise SaslError("the broker offers no login without a security layer")
    chosen = bytes((_AUTHENTICATION_ONLY,)) + offered[1:] + service.encode()
    if (yield context.wrap(chosen, False).message):
        raise SaslError("the broker sends more after the end of the login")


def _security_context(service: str, keytab: str, principal: str) -> Any:
    library = importlib.import_module("gssapi")
    credentials = None
    if keytab or principal:
        name = library.Name(principal, name_type=library.NameType.kerberos_principal) if principal else None
        # The name lets all connections of the process with this login share the ticket in memory.
        store = {"client_keytab": keytab, "ccache": f"MEMORY:kafkagroup-{principal}-{keytab}"} if keytab else None
        credentials = library.Credentials(name=name, usage="initiate", store=store)
    host = library.Name(service, name_type=library.NameType.hostbased_service)
    return library.SecurityContext(
        name=host.canonicalize(library.MechType.kerberos), creds=credentials, usage="initiate"
    )


log = logging.getLogger(__name__)

_TOKEN_REQUEST_SECONDS = 10.0
# The part of a token's lifetime after which it is refreshed, as in the Java client.
_REFRESH_AFTER = 0.8
# Seconds between attempts to refresh a token, as in the Java client.
_REFRESH_RETRY_SECONDS = 10.0
_TOO_BUSY = (408, 429)


class Tokens:
    """The OAUTHBEARER tokens of a client. All its connections share a token until it is refreshed.

    Args:
        oauth: The token endpoint and the client's credentials.
        refresh_after: The part of a token's lifetime after which it is refreshed.
    """

    def __init__(self, oauth: OAuth, refresh_after: float = _REFRESH_AFTER) -> None:
        self._oauth = oauth
        self._refresh_after = refresh_after
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = self._expires_at = float("-inf")

    def token(self) -> str:
        """Return a valid token.

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
            self._refresh_at = min(now + _REFRESH_RETRY_SECONDS, self._expires_at)
        else:
            now = time.monotonic()
            self._token, self._expires_at = token, now + seconds
            self._refresh_at = now + seconds * self._refresh_after

    @property
    def extensions(self) -> Mapping[str, str]:
        """The SASL extensions of the login module (KIP-342)."""
        return self._oauth.extensions


def _new_token(oauth: OAuth) -> tuple[str, float]:
    """Return a new token and its lifetime in seconds."""
    if oauth.provider:
        token = provided_token(oauth)
        return token.value, token.expires_at - time.time()
    return _fetch(oauth) if oauth.url else _unsecured(oauth.principal)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because urllib would send the client's secret to the other host, even without TLS."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that a redirect becomes an HTTPError."""


_OPENER = urllib.request.build_opener(_NoRedirects)


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
        with _OPENER.open(request, timeout=_TOKEN_REQUEST_SECONDS) as response:
            answer = json.load(response)
        return str(answer["access_token"]), float(answer.get("expires_in", 300))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        if isinstance(error, urllib.error.HTTPError):
            # An HTTPError is also the response, and keeps its connection open.
            error.close()
        # Report only the type of the error, because the response may contain a token.
        reason = getattr(error, "reason", error)
        problem = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else type(reason).__name__
        if isinstance(error, urllib.error.HTTPError) and 300 <= error.code < 400:
            problem += ", a redirect, which would send the client's secret to another address. Set that address"
        kind = RetriableError if _passes(error) else AuthenticationError
        raise kind(
            # Hide the part of the URL before the @, which may be a password.
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
