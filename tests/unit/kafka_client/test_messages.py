"""Responses are decoded in time and memory that are linear in their size, whatever a peer sends."""

import struct
import time

import pytest
from kafka.protocol.metadata import ApiVersionsResponse as TheirVersions

from kafka_source.errors import InvalidConfigurationError
from kafka_source.kafka_client import ApiVersions, encode_request
from kafka_source.kafka_client.framing import HANDSHAKE_BYTES
from kafka_source.kafka_client.messages import decode_response
from kafka_source.kafka_client.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka_source.kafka_client.messages.login import SaslAuthenticateRequest, SaslAuthenticateResponse

FLEXIBLE = 3
CORRELATION = struct.pack(">i", 7)
# Throttle time, no brokers, a null cluster id, a controller and no topics, in version 4.
METADATA = CORRELATION + struct.pack(">iihii", 0, 0, -1, 1, 0)


def api_versions(payload: bytes, version: int = FLEXIBLE) -> ApiVersionsResponse:
    return decode_response(ApiVersionsRequest(), version, 7, payload)


def metadata(payload: bytes, version: int = 4) -> MetadataResponse:
    return decode_response(MetadataRequest(), version, 7, payload)


def test_a_varint_of_a_megabyte_is_refused_at_its_sixth_byte() -> None:
    payload = CORRELATION + bytes(2) + b"\xff" * (HANDSHAKE_BYTES - 6)
    began = time.process_time()
    with pytest.raises(ValueError, match="a varint has more than 5 bytes"):
        api_versions(payload)
    assert time.process_time() - began < 0.5


def test_tagged_fields_do_not_copy_the_rest_of_the_response() -> None:
    # Each of these 200,000 structures has one tagged field. Copies of the rest would be 200 GB.
    count = 200_000
    api = struct.pack(">hhh", 1, 0, 1) + b"\x01\x09\x00"
    varint = bytes((count + 1 >> shift & 0x7F) | (0x80 if shift < 14 else 0) for shift in (0, 7, 14))
    payload = CORRELATION + bytes(2) + varint + api * count + struct.pack(">i", 0) + b"\x00"
    began = time.process_time()
    assert len(api_versions(payload).api_keys) == count
    assert time.process_time() - began < 15


def test_an_array_that_announces_more_than_the_response_has_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="more elements than the message has bytes"):
        metadata(CORRELATION + struct.pack(">ii", 0, 2**31 - 1))


def test_null_is_refused_where_the_schema_has_none() -> None:
    with pytest.raises(ValueError, match="an array is null"):
        metadata(METADATA[:-4] + struct.pack(">i", -1))


def test_null_is_read_where_the_schema_has_it() -> None:
    assert metadata(METADATA).cluster_id is None


def test_null_is_not_written_where_the_schema_has_none() -> None:
    with pytest.raises(ValueError, match="topics is null"):
        encode_request(MetadataRequest(topics=None), 7, "test", 0)
    assert encode_request(MetadataRequest(topics=None), 7, "test", 1).endswith(b"\xff\xff\xff\xff")


def test_what_a_login_sends_is_in_no_text():
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"))
    assert "secret" not in repr(SaslAuthenticateResponse(auth_bytes=b"secret"))


@pytest.mark.parametrize("end", range(len(METADATA)))
def test_what_is_cut_is_refused(end: int) -> None:
    with pytest.raises(ValueError):
        metadata(METADATA[:end])


def test_a_string_that_is_longer_than_the_response_is_refused() -> None:
    payload = CORRELATION + struct.pack(">ii", 0, 1) + struct.pack(">ih", 1, 30_000) + b"host"
    with pytest.raises(ValueError, match="it ends after"):
        metadata(payload)


def test_the_response_to_another_request_is_refused() -> None:
    with pytest.raises(ValueError, match="correlation id 7, but the request had 8"):
        decode_response(MetadataRequest(), 4, 8, METADATA)


def test_an_error_is_read_in_version_0() -> None:
    # A broker that does not know version 3 of ApiVersions answers so (KIP-511).
    body = TheirVersions(error_code=35, api_keys=[]).encode(version=0)
    assert api_versions(CORRELATION + body).error_code == 35


@pytest.mark.parametrize("offered", [(0, -1), (14, 20)])
def test_a_broker_without_a_common_version_is_named_with_what_it_has(offered: tuple[int, int]) -> None:
    with pytest.raises(InvalidConfigurationError, match="of MetadataRequest, and this client uses versions 0 to 13"):
        ApiVersions({MetadataRequest.API_KEY: offered}).version_for(MetadataRequest)


def test_a_broker_without_the_version_that_is_encoded_by_hand_is_named_with_what_it_has() -> None:
    for offered in ((0, -1), (4, 10), (12, 20)):
        with pytest.raises(InvalidConfigurationError, match=r"of FetchRequest, and this client uses version 11\."):
            ApiVersions({1: offered}).check(1, "FetchRequest", 11)
    ApiVersions({1: (4, 11)}).check(1, "FetchRequest", 11)
