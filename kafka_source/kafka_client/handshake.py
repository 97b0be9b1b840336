"""The handshake of a new connection before its first request: ApiVersions, then SASL (KIP-511, KIP-152, KIP-368).

It is a generator that yields requests and receives their responses, so that the event loop's connections and the
blocking sockets of the engines share it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.net.sasl import get_sasl_mechanism

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, KafkaGroupError, code_name, error_for_code
from kafka_source.kafka_client.messages import (
    ApiVersions,
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kafka_source.kafka_client.sasl import KEYTAB, PRINCIPAL, KerberosLogin
from kafka_source.kafka_client.settings import Endpoint
from kafka_source.version import __version__

_SOFTWARE_NAME = "kafkagroup"


class Call(NamedTuple):
    """A request and the version in which to send it."""

    request: Any
    version: int


@dataclass(frozen=True, slots=True)
class Session:
    """The result of a handshake.

    Attributes:
        versions: The API versions and features that the broker supports.
        expires_at: The time at which the broker ends the authenticated session, in `time.monotonic()` seconds; None:
            never.
    """

    versions: ApiVersions
    expires_at: float | None = None


def handshake(endpoint: Endpoint, sasl: Mapping[str, object] | None) -> Generator[Call, Any, Session]:
    """Yield the calls to make, in order; return the session.

    Raises:
        AuthenticationError: The broker refuses the credentials or the mechanism.
        RetriableError: No OAUTHBEARER token is available at the moment.
    """
    versions = yield from _api_versions(endpoint)
    if sasl is None:
        return Session(versions)
    lifetime_ms = yield from _authenticate(endpoint, versions, sasl)
    return Session(versions, time.monotonic() + lifetime_ms / 1000 if lifetime_ms > 0 else None)


def advance(talk: Generator[Call, Any, Session], response: Any) -> Call | Session:
    """Pass a response to the handshake; return its next call, or the session when it is complete.

    This can take seconds: OAUTHBEARER may have to fetch a token, and SCRAM hashes the password thousands of times.
    """
    try:
        return talk.send(response)
    except StopIteration as done:
        session: Session = done.value
        return session


def _api_versions(endpoint: Endpoint) -> Generator[Call, Any, ApiVersions]:
    version = ApiVersionsRequest.max_version
    while True:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=__version__)
        response = yield Call(request, version)
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # The broker does not know this version. It responds in version 0, with the versions it supports (KIP-511).
            version = min(version - 1, ranges.get(request.API_KEY, (0, 0))[1])
            continue
        if response.error_code:
            raise error_for_code(response.error_code, f"Asking the broker {endpoint} for its API versions failed")
        features = {f.name: f.max_version_level for f in getattr(response, "finalized_features", None) or ()}
        return ApiVersions(ranges, features)


def _authenticate(endpoint: Endpoint, versions: ApiVersions, sasl: Mapping[str, object]) -> Generator[Call, Any, int]:
    name = str(sasl["sasl_mechanism"])
    response = yield Call(SaslHandshakeRequest(mechanism=name), 1)
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
    mechanism = _mechanism(name, endpoint, sasl)
    version = versions.version_for(SaslAuthenticateRequest)
    while True:
        answer = yield Call(SaslAuthenticateRequest(auth_bytes=_token(mechanism, endpoint)), version)
        if answer.error_code:
            raise AuthenticationError(
                f"The broker {endpoint} refuses the credentials ({name}): "
                f"{answer.error_message or code_name(answer.error_code)}. Check kafka.sasl.mechanism and the "
                "credentials (kafka.sasl.jaas.config).",
                code=answer.error_code,
            )
        _receive(mechanism, answer.auth_bytes, endpoint)
        if mechanism.is_done():
            return int(getattr(answer, "session_lifetime_ms", 0) or 0)


def _mechanism(name: str, endpoint: Endpoint, sasl: Mapping[str, object]) -> Any:
    try:
        has_login = KEYTAB in sasl or PRINCIPAL in sasl
        mechanism = KerberosLogin if has_login else get_sasl_mechanism(name)
        return mechanism(host=endpoint.host, **sasl)
    except Exception as error:
        # The message of the error may contain settings, and these may be secret: report the type of the error only.
        raise AuthenticationError(
            f"kafka.sasl.mechanism={name} cannot be used: {type(error).__name__}. Check kafka.sasl.jaas.config."
        ) from None


def _token(mechanism: Any, endpoint: Endpoint) -> bytes:
    try:
        token: bytes = mechanism.auth_bytes()
    except KafkaGroupError:
        raise  # From our own token provider, whose messages contain no secrets.
    except Exception as error:
        raise _failed(endpoint, error) from None
    return token


def _receive(mechanism: Any, answer: bytes, endpoint: Endpoint) -> None:
    try:
        mechanism.receive(answer)
        if mechanism.is_done() and not mechanism.is_authenticated():
            raise ValueError("the broker's proof is wrong")
    except Exception as error:
        raise _failed(endpoint, error) from None


def _failed(endpoint: Endpoint, error: Exception) -> AuthenticationError:
    return AuthenticationError(
        f"Authentication with the broker {endpoint} failed: {type(error).__name__}. "
        "Check kafka.sasl.mechanism and kafka.sasl.jaas.config.",
        code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
