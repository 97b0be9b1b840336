"""Commits without a transaction name topics by id where the coordinator can, so that it refuses other incarnations."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import UnknownTopicError
from kafka_source.group.requests import commit_offsets
from kafka_source.kafka_client import Deadline, KafkaClient, topic_id_of
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from tests.support.fake_broker import TOPIC, UNKNOWN_TOPIC_ID, FakeBroker

NOBODY = SlotCredentials.without_membership("group")
ID = uuid.UUID("fbf0ffff-ffff-ffff-ffff-fffffffffbef")
ID_TEXT = base64.b64encode(ID.bytes).decode().rstrip("=")
BY_ID = 10


class Coordinator:
    """Takes commits for one topic.

    Attributes:
        asked: What each commit named its topics by.
    """

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.asked: list[list[Any]] = []
        broker.topic_id, broker.coordinator_error = ID, 0

    def take(self, newest: int) -> None:
        self.broker.answer(OffsetCommitRequest, newest, self._answer)

    def _answer(self, request: OffsetCommitRequest, _: int) -> OffsetCommitResponse:
        by_id = request.API_VERSION >= BY_ID
        self.asked.append([topic.topic_id if by_id else topic.name for topic in request.topics])
        topic_type = OffsetCommitResponse.OffsetCommitResponseTopic
        partition_type = topic_type.OffsetCommitResponsePartition
        return OffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                topic_type(
                    name=None if by_id else topic.name,
                    topic_id=topic.topic_id if by_id else None,
                    partitions=[
                        partition_type(
                            partition_index=one.partition_index,
                            error_code=UNKNOWN_TOPIC_ID if by_id and topic.topic_id != self.broker.topic_id else 0,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with closing(FakeBroker()) as broker:
        yield Coordinator(broker)


def commit(coordinator: Coordinator, *topic_ids: str | None) -> None:
    offsets = {TopicPartition(TOPIC, n): CommitOffset(7, topic_id=one) for n, one in enumerate(topic_ids)}
    with closing(KafkaClient(Settings({"bootstrap.servers": coordinator.broker.bootstrap_servers}))) as client:
        client.run(commit_offsets(client, NOBODY, offsets, Deadline(10), fail_on_unknown_topic=True))


def test_a_topic_that_was_created_again_is_refused_by_its_id(coordinator: Coordinator) -> None:
    coordinator.take(BY_ID)
    commit(coordinator, ID_TEXT, ID_TEXT)
    coordinator.broker.topic_id = uuid.uuid4()
    with pytest.raises(UnknownTopicError, match=f"for {TOPIC}-0, {TOPIC}-1"):
        commit(coordinator, ID_TEXT, ID_TEXT)
    assert coordinator.asked == [[ID], [ID]]


def test_names_are_for_older_coordinators_and_unknown_ids(coordinator: Coordinator) -> None:
    coordinator.take(BY_ID - 1)
    commit(coordinator, ID_TEXT)
    coordinator.take(BY_ID)
    commit(coordinator, None)
    commit(coordinator, "no id")
    assert coordinator.asked == [[TOPIC]] * 3


def test_an_id_is_read_in_both_alphabets_of_base64() -> None:
    other = ID_TEXT.replace("+", "-").replace("/", "_")
    assert other != ID_TEXT
    assert topic_id_of(other) == topic_id_of(ID_TEXT) == ID
    assert topic_id_of(None) is None
