"""Offsets are committed and fetched by topic ids where the coordinator can, so that it refuses other incarnations."""

import base64
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import UnknownTopicError
from kafka_source.group.requests import commit_offsets, fetch_all_committed, fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient, topic_id_of
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from tests.support.fake_broker import TOPIC, UNKNOWN_TOPIC_ID, FakeBroker, Partition

NOBODY = SlotCredentials.without_membership("group")
ID = uuid.UUID("fbf0ffff-ffff-ffff-ffff-fffffffffbef")
ID_TEXT = base64.b64encode(ID.bytes).decode().rstrip("=")
BY_GROUP, BY_ID = 8, 10


class Coordinator:
    """Takes commits for one topic, and has the offset 7 for each of its partitions.

    Attributes:
        asked: What each commit, or fetch, named its topics by.
    """

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.asked: list[list[Any]] = []
        broker.topic_id, broker.coordinator_error = ID, 0

    def take(self, newest: int) -> None:
        self.broker.answer(OffsetCommitRequest, newest, self._answer)
        self.broker.answer(OffsetFetchRequest, newest, self._fetched)

    def _fetched(self, request: OffsetFetchRequest, _: int) -> OffsetFetchResponse:
        by_id, by_group = request.API_VERSION >= BY_ID, request.API_VERSION >= BY_GROUP
        wanted = request.groups[0].topics if by_group else request.topics
        self.asked.append([topic.topic_id if by_id else topic.name for topic in wanted or ()])
        group_type = OffsetFetchResponse.OffsetFetchResponseGroup
        topic_type: Any = (
            group_type.OffsetFetchResponseTopics if by_group else OffsetFetchResponse.OffsetFetchResponseTopic
        )
        partition_type = (
            topic_type.OffsetFetchResponsePartitions if by_group else topic_type.OffsetFetchResponsePartition
        )
        topics = [
            topic_type(
                **({"topic_id": topic.topic_id} if by_id else {"name": topic.name}),
                partitions=[
                    partition_type(
                        partition_index=number,
                        committed_offset=7,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=UNKNOWN_TOPIC_ID if by_id and topic.topic_id != self.broker.topic_id else 0,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in wanted or ()
        ]
        if not by_group:
            return OffsetFetchResponse(throttle_time_ms=0, topics=topics, error_code=0)
        return OffsetFetchResponse(
            throttle_time_ms=0, groups=[group_type(group_id="group", topics=topics, error_code=0)]
        )

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


def test_offsets_are_fetched_by_the_present_id_of_a_topic(coordinator: Coordinator) -> None:
    coordinator.take(BY_ID)
    coordinator.broker.partitions = {0: Partition()}
    partition, new_id = TopicPartition(TOPIC, 0), uuid.uuid4()
    with closing(KafkaClient(Settings({"bootstrap.servers": coordinator.broker.bootstrap_servers}))) as client:

        def fetched() -> dict[TopicPartition, int | None]:
            return client.run(fetch_committed(client, "group", [partition], Deadline(10)))

        # Nothing is looked up only to have an id.
        assert fetched() == {partition: 7}
        client.run(client.metadata([TOPIC]))
        assert fetched() == {partition: 7}
        coordinator.broker.topic_id = new_id
        assert fetched() == {partition: 7}
        # Whoever asks for all offsets does not know the topics.
        client.run(fetch_all_committed(client, "group", Deadline(10)))
        for newest in (BY_ID - 1, BY_GROUP - 1):
            coordinator.take(newest)
            with closing(KafkaClient(Settings({"bootstrap.servers": coordinator.broker.bootstrap_servers}))) as older:
                assert older.run(fetch_committed(older, "group", [partition], Deadline(10))) == {partition: 7}
    assert coordinator.asked == [[TOPIC], [ID], [ID], [new_id], [], [TOPIC], [TOPIC]]


def test_an_id_is_read_in_both_alphabets_of_base64() -> None:
    other = ID_TEXT.replace("+", "-").replace("/", "_")
    assert other != ID_TEXT
    assert topic_id_of(other) == topic_id_of(ID_TEXT) == ID
    assert topic_id_of(None) is None
