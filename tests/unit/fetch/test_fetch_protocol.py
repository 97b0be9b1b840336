"""Our fixed layouts of Fetch against kafka-python's schemas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from kafka_source.fetch import protocol
from kafka_source.kafka_client import encode_request
from kafka_source.kafka_client.messages.records import FetchRequest

TOPIC_NAMES = st.text("abcdefghijklmnopqrstuvwxyz-._0123456789", min_size=1, max_size=249)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
WANTED = st.builds(protocol.Wanted, TOPIC_NAMES, INT32, INT64, st.integers(-1, 2**31 - 1), INT32)


@given(st.lists(WANTED, max_size=5), INT32, INT32, st.booleans(), st.text(max_size=20), st.text(max_size=20))
def test_a_request_has_the_bytes_that_kafka_python_gives_it(wanted, correlation, most, committed, rack, client):
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
    ours = protocol.encode(client, correlation, wanted, max_bytes=most, read_committed=committed, rack=rack)
    assert ours == encode_request(request, correlation, client, protocol.VERSION)


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


def response_bytes(correlation, throttle, error, topics):
    topic_type = FetchResponse.FetchableTopicResponse
    partition_type = topic_type.PartitionData
    response = FetchResponse(
        throttle_time_ms=throttle,
        error_code=error,
        session_id=0,
        responses=[
            topic_type(
                topic=topic,
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
    return correlation.to_bytes(4, "big") + response.encode(version=protocol.VERSION)


@given(INT32, INT32, st.integers(0, 120), RESPONSES, st.binary(max_size=40))
def test_a_response_of_kafka_python_is_read_as_it_was_meant(correlation, throttle, error, topics, stale):
    data = response_bytes(correlation, throttle, error, topics)
    # The buffer is used again and again: what an earlier response left behind it is not looked at.
    buffer = bytearray(data + stale)
    response = protocol.parse(buffer, len(data))
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


@given(RESPONSES.filter(bool), st.data())
def test_a_response_that_ends_too_early_is_an_error(topics, data):
    whole = response_bytes(1, 0, 0, topics)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r"malformed"):
        protocol.parse(bytearray(whole[:cut]), cut)


# What a damaged stream may put where a length or a count is expected.
DAMAGE = st.sampled_from([b"\xff\xff", b"\xff\xfa", b"\x80\x00"]) | st.binary(min_size=2, max_size=4)


def check_parse(data: bytes, stale: bytes) -> None:
    """Parse ends, and its position in the buffer only grows; or the bytes are refused."""
    try:
        response = protocol.parse(bytearray(data + stale), len(data))
    except ValueError:
        return
    at = 0
    for fetched in response.partitions:
        assert at < fetched.begin <= fetched.end <= len(data)
        at = fetched.end


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(data, stale):
    check_parse(data, stale)


@given(RESPONSES.filter(bool), st.binary(max_size=40), st.data())
def test_a_damaged_response_is_parsed_or_refused(topics, stale, data):
    damaged = bytearray(response_bytes(1, 0, 0, topics))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        piece = data.draw(DAMAGE)
        damaged[at : at + len(piece)] = piece
    check_parse(bytes(damaged), stale)


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
    data = bytearray(response_bytes(1, 0, 0, [("t", [(0, 0, 9, None, -1, None)])]))
    assert [(p.aborted, p.begin == p.end) for p in protocol.parse(data, len(data)).partitions] == [((), True)]
    begin = len(data) + at
    data[begin : begin + 4] = (-2).to_bytes(4, "big", signed=True)
    with pytest.raises(ValueError, match=field):
        protocol.parse(data, len(data))
