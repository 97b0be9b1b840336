"""Responses are decoded in time and memory that are linear in their size, whatever a peer sends."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from kafka_source.kafka_client import decode_response, encode_request
from kafka_source.kafka_client.framing import HANDSHAKE_BYTES
from kafka_source.kafka_client.messages import ApiVersionsRequest, MetadataRequest

FLEXIBLE = 3
CORRELATION = struct.pack(">i", 7)


def asked(request: Any, version: int) -> Any:
    encode_request(request, 7, "test", version)
    return request


def api_versions(version: int = FLEXIBLE) -> Any:
    return asked(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version)


def metadata(version: int) -> Any:
    return asked(MetadataRequest(topics=[]), version)


def refused(request: Any, payload: bytes) -> tuple[str, float]:
    """Return the error and the processor's seconds."""
    began = time.process_time()
    with pytest.raises(ValueError) as caught:
        decode_response(request, payload)
    return str(caught.value), time.process_time() - began


def test_a_varint_of_a_megabyte_is_refused_at_its_sixth_byte() -> None:
    # kafka-python alone takes minutes for it: each byte is a shift of a number of so many bytes.
    payload = CORRELATION + bytes(2) + b"\xff" * (HANDSHAKE_BYTES - 6)
    error, seconds = refused(api_versions(), payload)
    assert "a varint has more than five bytes" in error
    assert seconds < 0.5


def test_tagged_fields_do_not_copy_the_rest_of_the_response() -> None:
    # Each of these 200,000 structures has one tagged field. Copies of the rest would be 200 GB.
    count = 200_000
    api = struct.pack(">hhh", 1, 0, 1) + b"\x01\x09\x00"
    varint = bytes((count + 1 >> shift & 0x7F) | (0x80 if shift < 14 else 0) for shift in (0, 7, 14))
    payload = CORRELATION + bytes(2) + varint + api * count + struct.pack(">i", 0) + b"\x00"
    began = time.process_time()
    response = decode_response(api_versions(), payload)
    assert len(response.api_keys) == count
    assert time.process_time() - began < 15


def test_null_is_refused_where_the_schema_has_none() -> None:
    # Throttle time, no brokers, a null cluster id, a controller, and topics that are null.
    payload = CORRELATION + struct.pack(">iihii", 0, 0, -1, 1, -1)
    error, _ = refused(metadata(4), payload)
    assert "topics is null" in error


def test_null_is_read_where_the_schema_has_it() -> None:
    payload = CORRELATION + struct.pack(">iihii", 0, 0, -1, 1, 0)
    assert decode_response(metadata(4), payload).cluster_id is None


@pytest.mark.parametrize("end", [3, 5, 8, 12])
def test_what_is_cut_is_refused(end: int) -> None:
    payload = CORRELATION + struct.pack(">iihii", 0, 0, -1, 1, 0)
    refused(metadata(4), payload[:end])


def test_a_string_that_is_longer_than_the_response_is_refused() -> None:
    payload = CORRELATION + struct.pack(">ii", 0, 1) + struct.pack(">ih", 1, 30_000) + b"host"
    refused(metadata(4), payload)


@pytest.mark.parametrize("version", range(MetadataResponse.max_version + 1))
def test_every_version_reads_as_kafka_python_reads_it(version: int) -> None:
    topic = MetadataResponse.MetadataResponseTopic
    response = MetadataResponse(
        version=version,
        throttle_time_ms=1,
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="one", port=9092, rack="r", version=version)],
        cluster_id="c",
        controller_id=1,
        topics=[
            topic(
                error_code=0,
                name="t",
                is_internal=False,
                version=version,
                partitions=[
                    topic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=0,
                        leader_id=1,
                        leader_epoch=5,
                        replica_nodes=[1],
                        isr_nodes=[1],
                        offline_replicas=[],
                        version=version,
                    )
                ],
            )
        ],
    )
    body = response.encode(version=version)
    header = CORRELATION + (b"\x00" if MetadataResponse.flexible_version_q(version) else b"")
    decoded = decode_response(metadata(version), header + body)
    assert decoded == MetadataResponse.decode(body, version=version)
    assert decoded.topics[0].partitions[0].replica_nodes == [1]


def test_an_error_is_read_in_version_0() -> None:
    # A broker that does not know version 3 of ApiVersions answers so (KIP-511).
    body = ApiVersionsResponse(error_code=35, api_keys=[]).encode(version=0)
    assert decode_response(api_versions(), CORRELATION + body).error_code == 35
