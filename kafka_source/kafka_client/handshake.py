"""The handshake of a new connection: ApiVersions, the broker's identity (KIP-1242), then SASL (KIP-152, KIP-368).

The handshake is a generator of requests that receives the responses, so event loops and blocking sockets can run it.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from kafka_source.client_config.servers import Endpoint
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, KafkaGroupError, RefreshRetriableError, code_name, error_for_code
from kafka_source.kafka_client.messages import ApiVersions, Request
from kafka_source.kafka_client.messages.cluster import ApiVersionsRequest
from kafka_source.kafka_client.messages.login import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_source.kafka_client.sasl import Exchange, Login, SaslError
from kafka_source.version import __version__

_R = TypeVar("_R")

_SOFTWARE_NAME = "kafkagroup"
# The first version of ApiVersions that names the wanted broker.
_WITH_IDENTITY = 5


class Call(NamedTuple):
    """A request and the version in which to send it."""

    request: Request[object]
    version: int


@dataclass(frozen=True, slots=True)
class Identity:
    """The broker that a client wants to reach. Another broker at the same address refuses the client (KIP-1242)."""

    cluster_id: str
    node_id: int


@dataclass(frozen=True, slots=True)
class Session:
    """The result of a handshake.

    Attributes:
        versions: The API versions and features that the broker supports.
        expires_at: The time at which the broker ends the session, in `time.monotonic()` seconds; None: never.
    """

    versions: ApiVersions
    expires_at: float | None = None

    @property
    def checks_identity(self) -> bool:
        """Whether the broker refuses clients that name another broker."""
        return self.versions.has(ApiVersionsRequest.API_KEY, _WITH_IDENTITY)


def handshake(
    endpoint: Endpoint, sasl: Login | None, expected: Identity | None = None
) -> Generator[Call, object, Session]:
    """Yield the calls to make, in order; return the session.

    Args:
        endpoint: The broker's endpoint.
        sasl: The login; None: no login.
        expected: The expected broker; None: not checked. Set `expected` only if this cluster's brokers check
            identities. Older brokers refuse the request's version, and another request costs a round trip.

    Raises:
        AuthenticationError: The broker refuses the credentials or the mechanism.
        RetriableError: No OAUTHBEARER token is available at the moment, or another broker answers.
    """
    versions = yield from _api_versions(endpoint, expected)
    if sasl is None:
        return Session(versions)
    lifetime_ms = yield from _authenticate(endpoint, versions, sasl)
    return Session(versions, time.monotonic() + lifetime_ms / 1000 if lifetime_ms > 0 else None)


def advance(talk: Generator[Call, object, Session], response: object) -> Call | Session:
    """Pass a response to the handshake; return its next call, or the session when it is complete.

    This can take seconds, because OAUTHBEARER may fetch a token, and SCRAM hashes the password thousands of times.
    """
    try:
        return talk.send(response)
    except StopIteration as done:
        session: Session = done.value
        return session


def _api_versions(endpoint: Endpoint, expected: Identity | None) -> Generator[Call, object, ApiVersions]:
    version = _WITH_IDENTITY if expected else _WITH_IDENTITY - 1
    request = ApiVersionsRequest(
        client_software_name=_SOFTWARE_NAME,
        client_software_version=__version__,
        cluster_id=expected.cluster_id if expected else None,
        node_id=expected.node_id if expected else -1,
    )
    while True:
        response = yield from _ask(request, version)
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # A broker that does not know this version responds in version 0, with its supported versions (KIP-511).
            version = min(version - 1, ranges.get(request.API_KEY, (0, 0))[1])
            continue
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and expected:
            raise RefreshRetriableError(
                f"{endpoint} is no longer the address of broker {expected.node_id} of cluster {expected.cluster_id}: "
                "another broker answers there.",
                code=response.error_code,
            )
        if response.error_code:
            raise error_for_code(response.error_code, f"Asking the broker {endpoint} for its API versions failed")
        features = {f.name: f.max_version_level for f in response.finalized_features}
        return ApiVersions(ranges, features)


def _ask(request: Request[_R], version: int) -> Generator[Call, object, _R]:
    """Yield one call; return its response."""
    return cast(_R, (yield Call(request, version)))


def _authenticate(endpoint: Endpoint, versions: ApiVersions, login: Login) -> Generator[Call, object, int]:
    name = login.sasl.mechanism
    response = yield from _ask(SaslHandshakeRequest(mechanism=name), 1)
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            f"The broker {endpoint} does not support kafka.sasl.mechanism={name}; it supports "
            f"{', '.join(response.mechanisms) or 'none'}.",
            code=response.error_code,
        )
    if response.error_code:
        raise AuthenticationError(
            f"The broker {endpoint} refuses SASL: {code_name(response.error_code)}. Check kafka.security.protocol.",
            code=response.error_code,
        )
    version = versions.version_for(SaslAuthenticateRequest)
    exchange = login.begin(endpoint.host)
    token = _first(exchange, name)
    while token is not None:
        answer = yield from _ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code:
            raise AuthenticationError(
                f"The broker {endpoint} refuses the credentials ({name}): "
                f"{answer.error_message or code_name(answer.error_code)}. Check kafka.sasl.mechanism and the "
                "credentials (kafka.sasl.jaas.config).",
                code=answer.error_code,
            )
        token = _next(exchange, answer.auth_bytes, endpoint)
    return answer.session_lifetime_ms


def _first(exchange: Exchange, name: str) -> bytes | None:
    try:
        return next(exchange)
    except KafkaGroupError:
        raise  # From our own token provider, whose messages contain no secrets.
    except Exception as error:
        # Report only the type of the error, because its message may contain secret settings.
        raise AuthenticationError(
            f"kafka.sasl.mechanism={name} cannot be used: {type(error).__name__}. Check kafka.sasl.jaas.config."
        ) from None


def _next(exchange: Exchange, answer: bytes, endpoint: Endpoint) -> bytes | None:
    """Pass the broker's answer to the login; return the next bytes to send, or None when the login is complete."""
    try:
        return exchange.send(answer)
    except StopIteration:
        return None
    except KafkaGroupError:
        raise
    except Exception as error:
        raise _failed(endpoint, error) from None


def _failed(endpoint: Endpoint, error: Exception) -> AuthenticationError:
    reason = str(error) if isinstance(error, SaslError) else type(error).__name__
    return AuthenticationError(
        f"Authentication with the broker {endpoint} failed: {reason}. "
        "Check kafka.sasl.mechanism and kafka.sasl.jaas.config.",
        code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
