"""OAuth tokens for kafka-python, which has no client of its own; librdkafka fetches its own."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping

# The base class that kafka-python's public documentation names for `sasl_oauth_token_provider`.
from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_source.client_config.sasl import OAuth
from kafka_source.errors import AuthenticationError

_TIMEOUT_SECONDS = 10.0
# A token is replaced when this part of its life is over, as in the Java client.
_REFRESH_AFTER = 0.8


def token_provider(oauth: OAuth) -> AbstractTokenProvider:
    """What gives kafka-python its tokens."""
    return _TokenProvider(oauth)


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = 0.0

    def token(self) -> str:
        """A token that is good for a while; connections share it."""
        with self._lock:
            if time.monotonic() >= self._refresh_at:
                self._token, seconds = _fetch(self._oauth) if self._oauth.url else _unsecured(self._oauth.principal)
                self._refresh_at = time.monotonic() + seconds * _REFRESH_AFTER
            return self._token

    def extensions(self) -> Mapping[str, str]:
        """The SASL extensions of the login module."""
        return dict(self._oauth.extensions)


def _fetch(oauth: OAuth) -> tuple[str, float]:
    """A token by the client-credentials grant (RFC 6749, 4.4) and the seconds that it is good for."""
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        # The answer may hold a token: only the kind of the problem is told.
        problem = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        raise AuthenticationError(
            f"No token came from {oauth.url} for client {oauth.client_id}: {problem}. Check "
            "kafka.sasl.oauthbearer.token.endpoint.url, clientId and clientSecret."
        ) from None


def _unsecured(principal: str, seconds: float = 3600.0) -> tuple[str, float]:
    """An unsigned token (RFC 7515, appendix A.5), which only a broker set up for tests takes."""
    now = time.time()

    def part(claims: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part({'sub': principal, 'iat': now, 'exp': now + seconds})}.", seconds
