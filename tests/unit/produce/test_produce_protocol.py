"""Our layouts of Produce, by name and by topic id, against tables of messages and kafka-python's schemas."""

from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse

from assignors.model import TopicPartition
from kafka_source.kafka_client import encode_request
from kafka_source.produce import protocol as produce_protocol
from tests.support.record_messages import ProduceRequest

TOPIC_NAMES = st.text("abcdefghijklmnopqrstuvwxyz-._0123456789", min_size=1, max_size=249)
INT32 = st.integers(0, 2**31 - 1)
TEXT = st.none() | st.text(max_size=20)
BATCHES = st.lists(st.tuples(st.builds(TopicPartition, TOPIC_NAMES, INT32), st.binary(max_size=50)), max_size=5)


def id_of(topic: str) -> UUID:
    return uuid5(NAMESPACE_DNS, topic)


BY_NAME, BY_ID = produce_protocol.BY_NAME, produce_protocol.BY_ID
VERSIONS = st.sampled_from([BY_NAME, produce_protocol.SECOND_BY_NAME, BY_ID])


def names(topics) -> dict[UUID, str]:
    return {id_of(topic): topic for topic, _ in topics}


@given(BATCHES, INT32, st.text(max_size=20), TEXT, st.sampled_from([-1, 1]), INT32, VERSIONS)
def test_a_request_has_the_bytes_of_a_generated_message(
    batches, correlation, client, transaction, acks, timeout, version
):
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for tp, data in batches:
        topics.setdefault(tp.topic, []).append((tp.partition, data))
    topic_type = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=transaction,
        acks=acks,
        timeout_ms=timeout,
        topic_data=[
            topic_type(
                name=topic,
                topic_id=id_of(topic),
                partition_data=[topic_type.PartitionProduceData(index=n, records=data) for n, data in parts],
            )
            for topic, parts in topics.items()
        ],
    )
    ours = produce_protocol.encode(
        client,
        correlation,
        batches,
        version,
        transactional_id=transaction,
        acks=acks,
        timeout_ms=timeout,
        topic_ids={topic: id_of(topic) for topic in topics},
    )
    assert ours == encode_request(request, correlation, client, version)


ANSWERS = st.tuples(INT32, st.integers(0, 120), st.lists(st.tuples(INT32, TEXT), max_size=3), TEXT)
RESPONSES = st.lists(st.tuples(TOPIC_NAMES, st.lists(ANSWERS, max_size=3)), max_size=3)


def response_bytes(correlation, throttle, topics, version) -> bytes:
    topic_type = ProduceResponse.TopicProduceResponse
    partition_type = topic_type.PartitionProduceResponse
    error_type = partition_type.BatchIndexAndErrorMessage
    response = ProduceResponse(
        throttle_time_ms=throttle,
        responses=[
            topic_type(
                name=topic,
                topic_id=id_of(topic),
                partition_responses=[
                    partition_type(
                        index=number,
                        error_code=code,
                        base_offset=7,
                        log_append_time_ms=-1,
                        log_start_offset=3,
                        record_errors=[error_type(batch_index=i, batch_index_error_message=m) for i, m in errors],
                        error_message=message,
                        # Which leader to ask instead; nothing reads it here.
                        current_leader=partition_type.LeaderIdAndEpoch(leader_id=4, leader_epoch=2),
                    )
                    for number, code, errors, message in parts
                ],
            )
            for topic, parts in topics
        ],
    )
    tags = b"" if version == BY_NAME else b"\0"
    return correlation.to_bytes(4, "big") + tags + response.encode(version=version)


@given(INT32, INT32, RESPONSES, st.binary(max_size=40), VERSIONS)
def test_a_response_of_kafka_python_is_read_as_it_was_meant(correlation, throttle, topics, stale, version):
    data = response_bytes(correlation, throttle, topics, version)
    response = produce_protocol.parse(bytearray(data + stale), len(data), version, names(topics))
    assert response.throttle_ms == throttle
    assert [(answer.tp, answer.error) for answer in response.partitions] == [
        (TopicPartition(topic, number), code) for topic, parts in topics for number, code, _, _ in parts
    ]
    messages = [(errors, message) for _, parts in topics for _, _, errors, message in parts]
    for answer, (errors, message) in zip(response.partitions, messages, strict=True):
        assert (message or "") in answer.message
        assert not errors or (errors[0][1] or "") in answer.message


@given(RESPONSES.filter(bool), VERSIONS, st.data())
def test_a_response_that_ends_too_early_is_an_error(topics, version, data):
    whole = response_bytes(1, 0, topics, version)
    # Without the tagged fields at the end, which hold nothing that is read.
    cut = data.draw(st.integers(0, len(whole) - 1 - (version != BY_NAME)))
    with pytest.raises(ValueError, match=r"malformed"):
        produce_protocol.parse(bytearray(whole[:cut]), cut, version, names(topics))


def test_a_topic_that_was_not_asked_for_is_an_error():
    data = response_bytes(1, 0, [("t", [])], BY_ID)
    with pytest.raises(ValueError, match=r"malformed"):
        produce_protocol.parse(bytearray(data), len(data), BY_ID, names([("other", [])]))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\xff\xff\xff\xff" + b"\0\0\0\0", id="fewer than no topics"),
        pytest.param(b"\0\0\0\1" + b"\xff\xff" + b"\0\0\0\0" + b"\0\0\0\0", id="a topic without a name"),
        pytest.param(b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff" + b"\0\0\0\0", id="fewer than no partitions"),
    ],
)
def test_a_negative_length_or_count_is_refused(body):
    data = b"\0\0\0\1" + body
    with pytest.raises(ValueError, match=r"malformed"):
        produce_protocol.parse(bytearray(data), len(data), BY_NAME, {})
