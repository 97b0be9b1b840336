"""Offsets of a topic mean nothing in another of the same name."""

import json
import struct
import uuid

from confluent_kafka import Uuid

from assignors.model import TopicPartition
from kafka_source.kafka_client import TopicMetadata
from kafka_source.model.identity import is_recreated
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.source.plan import plan

OLD = StreamOffset({TopicPartition("t", 0): Span(0, 7, 0), TopicPartition("u", 0): Span(0, 3, 0)}, slots=1)


def of(offset, ids):
    return StreamOffset.from_json({**offset.to_json(), "topics": ids})


def test_only_two_known_ids_tell_topics_apart():
    assert is_recreated("a", "b")
    assert not is_recreated("a", "a")
    assert not is_recreated(None, "b")
    assert not is_recreated("a", None)


def test_both_clients_write_an_id_alike():
    # Bytes whose base64 is not the same in its two alphabets.
    topic_id = uuid.UUID("fbf0ffff-ffff-ffff-ffff-fffffffffbef")
    most, least = struct.unpack(">qq", topic_id.bytes)
    assert TopicMetadata("t", topic_id, {}).id_text == str(Uuid(most, least))
    assert TopicMetadata("t", None, {}).id_text is None


def test_ids_are_kept_in_the_checkpoint():
    offset = of(OLD, {"t": "a", "u": "b"})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert dict(offset.topics) == {"t": "a", "u": "b"}


def test_what_is_left_out_was_never_read():
    offset = of(OLD, {"t": "a", "u": "b"}).without({"t"})
    assert list(offset.partitions) == [TopicPartition("u", 0)]
    assert dict(offset.topics) == {"u": "b"}


def test_a_topic_created_anew_is_planned_from_its_start_wherever_the_old_one_ended():
    end = StreamOffset({TopicPartition("t", 0): Span(0, 9, 0)}, slots=1, topics={"t": "new"})
    assert plan(end, of(OLD, {"t": "old"})) == [(0, (Range("t", 0, 0, 9),))]
    assert plan(end, of(OLD, {"t": "new"})) == [(0, (Range("t", 0, 7, 9),))]
    assert plan(end, of(OLD, {})) == [(0, (Range("t", 0, 7, 9),))]
