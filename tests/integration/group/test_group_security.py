"""Members that log in, over TLS and without; and what the logs say of it."""

from __future__ import annotations

import logging
import os

import pytest

from kafka_source.client_config import Settings
from kafka_source.kafka_client import KafkaClient
from kafka_source.kafka_client.messages.cluster import MetadataRequest
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.memberships import Memberships, attach, everything, held

PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def secured(request):
    with EmbeddedKafka(security=Security(request.param, {"alice": PASSWORD})) as kafka:
        kafka.create_topic("orders", 4)
        yield kafka


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def login(request, secured):
    return Settings(secured.java_client_config("alice", request.param))


def test_members_log_in_and_no_secret_is_logged(login, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        members = Memberships(login, f"secured-{os.urandom(4).hex()}")
        membership = members.make("orders", slots=2)
        slot = membership.join(30).slots[0]
        assert held(membership) == everything("orders", 4)
        attach(login, slot.credentials).commit(dict.fromkeys(slot.partitions, 1))
        members.close()
    said = caplog.text + "".join(capfd.readouterr()) + "".join(str(r.args) for r in caplog.records)
    assert "lead group=" in said
    assert PASSWORD not in said
    assert PASSWORD.encode().hex() not in said
    assert "SaslAuthenticate" not in said


def test_a_raw_socket_is_logged_in(login):
    client = KafkaClient(login)
    try:
        snapshot = client.run(client.metadata(["orders"]), 30)
        broker = next(iter(snapshot.brokers.values()))
        with client.open_socket(broker.endpoint) as raw:
            topics = [MetadataRequest.MetadataRequestTopic(name="orders")]
            answer = raw.exchange(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 10)
            assert [len(t.partitions) for t in answer.topics] == [4]
    finally:
        client.close()
