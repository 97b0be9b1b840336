"""Offsets that Spark gives back are parsed once, and each as `StreamOffset.from_json` parses it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.model.stream_offset import RecentOffsets, Span, StreamOffset

spans = st.builds(Span, st.integers(0, 3), st.integers(0, 3), st.integers(-1, 2))
offsets = st.builds(
    StreamOffset,
    st.dictionaries(st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 2)), spans, max_size=4),
    generation=st.integers(-1, 2),
)


def through_spark(offset: StreamOffset) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(json.dumps(offset.to_json()))
    return parsed


@given(st.lists(offsets, max_size=12), st.booleans())
def test_every_offset_is_parsed_as_without_memory(given: list[StreamOffset], planned_here: bool) -> None:
    recent = RecentOffsets()
    for offset in given:
        if planned_here:
            recent.add(offset.to_json(), offset)
        assert recent.parse(through_spark(offset)) == StreamOffset.from_json(through_spark(offset)) == offset


def test_an_offset_that_was_planned_here_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, another = (StreamOffset({TopicPartition("t", 0): Span(0, end, -1)}) for end in (1, 2))
    recent = RecentOffsets()
    recent.add(one.to_json(), one)
    recent.add(another.to_json(), another)
    monkeypatch.setattr(StreamOffset, "from_json", None)
    assert recent.parse(through_spark(one)) is one
    assert recent.parse(through_spark(another)) is another
