"""Requests and responses of the Kafka protocol, with their headers and versions."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError
from kafka_source.kafka_client.messages.codec import Reader, Writer
from kafka_source.kafka_client.messages.tables import Request

__all__ = ["ApiVersions", "Request", "decode_response", "encode_request"]

_R = TypeVar("_R")

_API_VERSIONS = 18
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The API versions and features that a broker supports.

    Attributes:
        ranges: The lowest and highest version of each API, by API key.
        features: The finalized features of the cluster, for example {"transaction.version": 2} (KIP-584).
    """

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int] = field(default_factory=dict)

    def version_for(self, request: Request[_R] | type[Request[_R]], max_version: int | None = None) -> int:
        """Return the newest version of a request (or its class) that both sides support, at most `max_version`.

        Raises:
            InvalidConfigurationError: There is no common version, because the broker is too old or too new.
        """
        newest = request.max_version if max_version is None else min(max_version, request.max_version)
        lowest, highest = self.ranges.get(request.API_KEY, (0, -1))
        version = min(newest, highest)
        if version < max(lowest, request.min_version):
            raise self._refusal(request.API_KEY, request.name, f"versions {request.min_version} to {newest}")
        return version

    def check(self, api_key: int, name: str, version: int) -> None:
        """Check that the broker supports this version of a request that is encoded without a schema.

        Raises:
            InvalidConfigurationError: The broker is too old or too new.
        """
        if not self.has(api_key, version):
            raise self._refusal(api_key, name, f"version {version}")

    def has(self, api_key: int, version: int) -> bool:
        """Return whether the broker supports this version of an API."""
        lowest, highest = self.ranges.get(api_key, (0, -1))
        return lowest <= version <= highest

    def _refusal(self, api_key: int, name: str, ours: str) -> InvalidConfigurationError:
        lowest, highest = self.ranges.get(api_key, (0, -1))
        offered = f"versions {lowest} to {highest}" if highest >= 0 else "no version"
        return InvalidConfigurationError(
            f"The broker supports {offered} of {name}, and this client uses {ours}. Brokers from 2.5 to 4.x are "
            "supported.",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )


def encode_request(request: Request[_R], correlation_id: int, client_id: str, version: int) -> bytes:
    """Return a request as bytes, with its header and its length prefix."""
    flexible = version >= request.flexible_from
    writer = Writer()
    writer.int16(request.API_KEY)
    writer.int16(version)
    writer.int32(correlation_id)
    # The client id is never in the flexible encoding, so that a broker can read the id in an unknown version.
    writer.string(client_id)
    writer.flexible = flexible
    if flexible:
        writer.tags()
    request.encode(writer, version)
    body = writer.written()
    return len(body).to_bytes(4, "big") + body


def decode_response(request: Request[_R], version: int, correlation_id: int, payload: bytes | memoryview) -> _R:
    """Return the response to a request that `encode_request` encoded.

    Args:
        request: The request.
        version: The version in which the request was sent.
        correlation_id: The id with which the request was sent.
        payload: The response without its length prefix.

    Raises:
        ValueError: The bytes are the response to another request, or do not match the schema.
    """
    data = bytes(payload)
    reader = Reader(data)
    try:
        found = reader.int32()
        if found != correlation_id:
            raise ValueError(f"the response has correlation id {found}, but the request had {correlation_id}")
        if request.API_KEY == _API_VERSIONS:
            # The header of ApiVersions is never flexible. Brokers answer an unknown version in version 0 (KIP-511).
            if data[4:6] == _UNSUPPORTED_VERSION:
                version = 0
            reader.flexible = version >= request.flexible_from
        elif version >= request.flexible_from:
            reader.flexible = True
            reader.skip_tags()
        return request.decode_response(reader, version)
    except (struct.error, IndexError) as problem:
        raise ValueError(f"it does not match the schema of {request.name} {version}: {problem}") from None
