"""What a client says of itself before its first request."""

import re

from kafka_source.kafka_client import Endpoint
from kafka_source.kafka_client.handshake import handshake
from kafka_source.kafka_client.messages.cluster import ApiVersionsRequest
from kafka_source.version import __version__

# What brokers accept (`ApiVersionsRequest.isValid`, KIP-511); with any other text they refuse the connection.
ACCEPTED = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"


def test_brokers_are_told_the_name_and_version_of_this_project() -> None:
    request, _ = next(handshake(Endpoint("broker", 9092), None))
    assert isinstance(request, ApiVersionsRequest)
    assert (request.client_software_name, request.client_software_version) == ("kafkagroup", __version__)
    assert re.fullmatch(ACCEPTED, request.client_software_version)
