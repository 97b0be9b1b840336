"""What a dead letter is made of: the record as it was, and headers that say where and why."""

import pyarrow as pa

from kafka_source.produce.dead_letters import dead_letters
from kafka_source.produce.records import HEADERS

ERRORS = [
    ("__streams.errors.exception", b"kafkagroup.UnreadableRecordError"),
    ("__streams.errors.message", b"its schema id is 7; field age: the value ends in it"),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"3"),
    ("__streams.errors.offset", b"41"),
]


def of(headers, key=b"\xff\x00", value=b"\x00bad"):
    records = pa.record_batch(
        {
            "value": pa.array([value], pa.binary()),
            "key": pa.array([key]),
            "topic": ["orders"],
            "partition": pa.array([3], pa.int32()),
            "offset": pa.array([41], pa.int64()),
            "headers": pa.array([headers], HEADERS),
            # What a query asks for besides is no part of it.
            "timestampType": pa.array([0], pa.int32()),
        }
    )
    return dead_letters("dead", records, [ERRORS[1][1].decode()])


def headers_of(letters):
    (headers,) = letters.headers.to_pylist()
    return [(header["key"], header["value"]) for header in headers]


def test_a_record_without_headers_gets_those_of_kafka_streams():
    letters = of(None)
    assert (letters.topics, letters.partitions) == ("dead", None)
    assert (letters.keys.to_pylist(), letters.values.to_pylist()) == ([b"\xff\x00"], [b"\x00bad"])
    assert headers_of(letters) == ERRORS


def test_its_own_headers_stay_in_their_order_before_them_also_those_of_an_earlier_dead_letter():
    own = [("trace", b"\x01"), ("empty", None), ("trace", b"\x02"), ("__streams.errors.topic", b"returns")]
    assert headers_of(of(own)) == own + ERRORS


def test_a_key_that_was_read_as_text_is_written_as_its_bytes_and_no_key_as_none():
    assert of(None, key="grüezi").keys.to_pylist() == ["grüezi".encode()]
    assert of(None, key=None).keys.to_pylist() == [None]
