"""Our layouts of Fetch, by name and by topic id, against tables of messages and kafka-python's."""

from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from kafka_source.fetch import protocol
from kafka_source.kafka_client import encode_request
from tests.support.record_messages import FetchRequest

TOPIC_NAMES = st.text("abcdefghijklmnopqrstuvwxyz-._0123456789", min_size=1, max_size=249)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
WANTED = st.builds(
    lambda topic, number, offset, epoch, size: protocol.Wanted(topic, number, offset, epoch, size, id_of(topic)),
    TOPIC_NAMES,
    INT32,
    INT64,
    st.integers(-1, 2**31 - 1),
    INT32,
)


def id_of(topic: str) -> UUID:
    return uuid5(NAMESPACE_DNS, topic)


def version(by_id: bool) -> int:
    return protocol.BY_ID if by_id else protocol.BY_NAME


def names(topics, by_id: bool) -> dict[UUID, str] | None:
    return {id_of(topic): topic for topic, _ in topics} if by_id else None


@given(
    st.lists(WANTED, max_size=5),
    INT32,
    INT32,
    st.booleans(),
    st.text(max_size=20) | st.text("r", min_size=126, max_size=130),
    st.text(max_size=20),
    st.booleans(),
)
def test_a_request_has_the_bytes_of_a_generated_message(wanted, correlation, most, committed, rack, client, by_id):
    topics: dict[str, list[protocol.Wanted]] = {}
    for each in wanted:
        topics.setdefault(each.topic, []).append(each)
    topic_type = FetchRequest.FetchTopic
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=protocol.MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=most,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[
            topic_type(
                topic=topic,
                topic_id=id_of(topic),
                partitions=[
                    topic_type.FetchPartition(
                        partition=w.partition,
                        current_leader_epoch=w.leader_epoch,
                        fetch_offset=w.offset,
                        log_start_offset=-1,
                        partition_max_bytes=w.max_bytes,
                    )
                    for w in asked
                ],
            )
            for topic, asked in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id=rack,
    )
    ours = protocol.encode(
        client, correlation, wanted, by_id=by_id, max_bytes=most, read_committed=committed, rack=rack
    )
    assert ours == encode_request(request, correlation, client, version(by_id))


FETCHED = st.builds(
    lambda partition, error, high, aborted, preferred, records: (partition, error, high, aborted, preferred, records),
    INT32,
    st.integers(0, 120),
    INT64,
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    st.integers(-1, 1000),
    st.binary(max_size=50),
)
RESPONSES = st.lists(st.tuples(TOPIC_NAMES, st.lists(FETCHED, max_size=3)), max_size=3)


def response_bytes(correlation, throttle, error, topics, by_id):
    topic_type = FetchResponse.FetchableTopicResponse
    partition_type = topic_type.PartitionData
    response = FetchResponse(
        throttle_time_ms=throttle,
        error_code=error,
        session_id=0,
        responses=[
            topic_type(
                topic=topic,
                topic_id=id_of(topic),
                partitions=[
                    partition_type(
                        partition_index=number,
                        error_code=code,
                        high_watermark=high,
                        last_stable_offset=high,
                        log_start_offset=3,
                        aborted_transactions=None
                        if aborted is None
                        else [partition_type.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
                        preferred_read_replica=preferred,
                        records=records,
                    )
                    for number, code, high, aborted, preferred, records in partitions
                ],
            )
            for topic, partitions in topics
        ],
    )
    # The header of flexible versions ends with tagged fields.
    return correlation.to_bytes(4, "big") + b"\0" * by_id + response.encode(version=version(by_id))


@given(INT32, INT32, st.integers(0, 120), RESPONSES, st.binary(max_size=40), st.booleans())
def test_a_response_of_kafka_python_is_read_as_it_was_meant(correlation, throttle, error, topics, stale, by_id):
    data = response_bytes(correlation, throttle, error, topics, by_id)
    # The buffer is used again and again: what an earlier response left behind it is not looked at.
    buffer = bytearray(data + stale)
    response = protocol.parse(buffer, len(data), names(topics, by_id))
    assert (response.correlation_id, response.throttle_ms, response.error) == (correlation, throttle, error)
    seen = [
        (p.topic, p.partition, p.error, p.high_watermark, p.log_start, p.preferred, list(p.aborted))
        for p in response.partitions
    ]
    assert seen == [
        (topic, number, code, high, 3, preferred, aborted or [])
        for topic, partitions in topics
        for number, code, high, aborted, preferred, _ in partitions
    ]
    records = [bytes(buffer[p.begin : p.end]) for p in response.partitions]
    assert records == [part[-1] for _, partitions in topics for part in partitions]


@given(RESPONSES.filter(bool), st.booleans(), st.data())
def test_a_response_that_ends_too_early_is_an_error(topics, by_id, data):
    whole = response_bytes(1, 0, 0, topics, by_id)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r"malformed"):
        protocol.parse(bytearray(whole[:cut]), cut, names(topics, by_id))


def test_a_topic_that_was_not_asked_for_is_refused():
    data = response_bytes(1, 0, 0, [("orders", [])], by_id=True)
    with pytest.raises(ValueError, match=f"malformed.*{id_of('orders')}"):
        protocol.parse(bytearray(data), len(data), {id_of("others"): "others"})


def test_tagged_fields_are_passed_over():
    data = response_bytes(1, 0, 0, [("t", [(0, 0, 9, None, -1, b"records")])], by_id=True)
    tags = b"\1\0\3abc"
    tagged = data[:4] + tags + data[5:-3] + tags * 3
    (found,) = protocol.parse(bytearray(tagged), len(tagged), {id_of("t"): "t"}).partitions
    assert tagged[found.begin : found.end] == b"records"


HEAD = b"\0" * 14
NO_PARTITIONS = b"\0\0" + b"\0\0\0\0"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\0\0\xff\xff" + NO_PARTITIONS + b"\xff\xfa" + b"\0" * 90, id="a name that leads back"),
        pytest.param(b"\xff\xff\xff\xff", id="fewer than no topics"),
        pytest.param(b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff", id="fewer than no partitions"),
    ],
)
def test_a_negative_length_or_count_is_refused(body):
    # The first one took a turn for each of its 65,535 topics, back and forth; with 2^31 of them that is 13 minutes.
    with pytest.raises(ValueError, match=r"malformed.*-"):
        protocol.parse(bytearray(HEAD + body), len(HEAD + body))


@pytest.mark.parametrize(("field", "at"), [("aborted transactions", -12), ("record set", -4)])
def test_null_is_the_only_negative_length(field, at):
    data = bytearray(response_bytes(1, 0, 0, [("t", [(0, 0, 9, None, -1, None)])], by_id=False))
    assert [(p.aborted, p.begin == p.end) for p in protocol.parse(data, len(data)).partitions] == [((), True)]
    begin = len(data) + at
    data[begin : begin + 4] = (-2).to_bytes(4, "big", signed=True)
    with pytest.raises(ValueError, match=field):
        protocol.parse(data, len(data))
