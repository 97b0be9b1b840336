"""Requests and responses of the Kafka protocol, with their encoding and decoding (kafka-python's schemas)."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DeleteGroupsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from kafka_source.errors import InvalidConfigurationError
from kafka_source.kafka_client import response_decoder

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "AlterClientQuotasRequest",
    "ApiVersions",
    "ApiVersionsRequest",
    "ConsumerGroupDescribeRequest",
    "DeleteGroupsRequest",
    "DescribeClientQuotasRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "HeartbeatRequest",
    "InitProducerIdRequest",
    "JoinGroupRequest",
    "LeaveGroupRequest",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "ListTransactionsRequest",
    "MetadataRequest",
    "OffsetCommitRequest",
    "OffsetDeleteRequest",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochRequest",
    "ProduceRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "SyncGroupRequest",
    "TxnOffsetCommitRequest",
    "WriteTxnMarkersRequest",
    "decode_response",
    "encode_request",
]


_SCHEMAS = "kafka_source.kafka_client.schemas"


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request that describes groups of the consumer protocol (KIP-848)."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The response to `ConsumerGroupDescribeRequest`; kafka-python finds it by its name."""


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The API versions and features that a broker supports.

    Attributes:
        ranges: The lowest and highest version of each API, by API key.
        features: The finalized features of the cluster, for example {"transaction.version": 2} (KIP-584).
    """

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int] = field(default_factory=dict)

    def version_for(self, request: Any, max_version: int | None = None) -> int:
        """Return the newest version of a request (or its class) that both sides support, at most `max_version`.

        Raises:
            InvalidConfigurationError: There is no such version: the broker is too old or too new.
        """
        newest = request.max_version if max_version is None else min(max_version, request.max_version)
        lowest, highest = self.ranges.get(request.API_KEY, (0, -1))
        version: int = min(newest, highest)
        if version < lowest:
            offered = f"versions {lowest} to {highest}" if highest >= 0 else "no version"
            raise InvalidConfigurationError(
                f"The broker supports {offered} of {request.name}, and this client versions up to {newest}. "
                "Brokers from 2.5 to 4.x are supported."
            )
        return version


def encode_request(request: Any, correlation_id: int, client_id: str, version: int) -> bytes:
    """Return a request as bytes, with its length prefix."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    encoded: bytes = request.encode(framed=True, header=True)
    return encoded


def decode_response(request: Any, payload: bytes | memoryview) -> Any:
    """Return the response to a request that `encode_request` encoded.

    Args:
        request: The request; it contains the version and the correlation id.
        payload: The response without its length prefix.

    Raises:
        ValueError: It is the response to another request, or it does not match the schema.
    """
    cls = request.header.get_response_class()
    # A response header has a few bytes today; 256 bytes leave room for tagged fields that later brokers may add.
    head = io.BytesIO(bytes(payload[:256]))
    try:
        header = cls.parse_header(head)
    except struct.error as problem:
        raise ValueError(f"the header is truncated: {problem}") from None
    if header.correlation_id != request.header.correlation_id:
        raise ValueError(
            f"the response has correlation id {header.correlation_id}, the request {request.header.correlation_id}"
        )
    version, body = request.header.request_api_version, memoryview(payload)[head.tell() :]
    if cls.API_KEY == ApiVersionsRequest.API_KEY and bytes(body[:2]) != b"\x00\x00":
        # A broker that does not know the version answers with an error in version 0 (KIP-511).
        version = 0
    return response_decoder.decode(cls, version, body)
