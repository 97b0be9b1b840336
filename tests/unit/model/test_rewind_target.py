"""Targets of a rewind: which offsets they mean, and how they are written."""

import pytest

from assignors import TopicPartition
from kafka_source.errors import OptionError
from kafka_source.model.rewind_target import (
    AtOffset,
    AtOffsets,
    AtTime,
    ByDuration,
    FromGroup,
    Known,
    Shift,
    Target,
    other_group,
    parse_duration,
    parse_position,
    parse_time,
    resolve,
    timestamps,
)

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
NEW = TopicPartition("orders", 2)
KNOWN = Known(
    earliest={FIRST: 10, SECOND: 0, NEW: 0},
    latest={FIRST: 100, SECOND: 50, NEW: 7},
    committed={FIRST: 40, SECOND: 50},
    at_time={FIRST: 60, SECOND: None},
    other={FIRST: 20},
)


@pytest.mark.parametrize(
    ("target", "partitions", "offsets"),
    [
        ("earliest", (FIRST, SECOND), {FIRST: 10, SECOND: 0}),
        ("latest", (FIRST, SECOND), {FIRST: 100, SECOND: 50}),
        ("current", (FIRST, NEW), {FIRST: 40, NEW: 7}),
        (AtTime(1000), (FIRST, SECOND), {FIRST: 60, SECOND: 50}),
        (ByDuration(1000), (FIRST, SECOND), {FIRST: 60, SECOND: 50}),
        (AtOffset(30), (FIRST, SECOND), {FIRST: 30, SECOND: 30}),
        (AtOffset(70), (FIRST, SECOND), {FIRST: 70, SECOND: 50}),
        (AtOffset(3), (FIRST,), {FIRST: 10}),
        (AtOffsets({SECOND: 5}), (FIRST, SECOND), {SECOND: 5}),
        (Shift(-20), (FIRST, SECOND), {FIRST: 20, SECOND: 30}),
        (Shift(1000), (FIRST,), {FIRST: 100}),
        (FromGroup("other"), (FIRST, SECOND), {FIRST: 20}),
    ],
    ids=str,
)
def test_a_target_means_these_offsets(
    target: Target, partitions: tuple[TopicPartition, ...], offsets: dict[TopicPartition, int]
) -> None:
    moves = resolve(target, partitions, KNOWN)
    assert {move.topic_partition: move.offset for move in moves} == offsets
    assert [move.committed for move in moves] == [KNOWN.committed.get(tp) for tp in sorted(offsets)]


def test_an_offset_that_the_log_does_not_have_is_told() -> None:
    (low, high) = (resolve(AtOffset(offset), (FIRST,), KNOWN)[0] for offset in (3, 300))
    assert (low.asked, low.offset) == (3, 10)
    assert (high.asked, high.offset) == (300, 100)


def test_what_is_not_committed_cannot_be_shifted() -> None:
    with pytest.raises(OptionError, match="orders-2 has none"):
        resolve(Shift(1), (FIRST, NEW), KNOWN)


def test_what_has_to_be_looked_up() -> None:
    assert timestamps(AtTime(5), (FIRST,), now_ms=100) == {FIRST: 5}
    assert timestamps(ByDuration(30), (FIRST,), now_ms=100) == {FIRST: 70}
    assert timestamps(ByDuration(300), (FIRST,), now_ms=100) == {FIRST: 0}
    assert timestamps("earliest", (FIRST,), now_ms=100) == {}
    assert other_group(FromGroup("billing")) == "billing"
    assert other_group("latest") is None


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01.5z", 1500),
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T00:00:00.1234567+00:00", 123),
        ("1970-01-02", 86_400_000),
        ("1969-12-30T00:00:00Z", 0),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds
    assert parse_position(text) == AtTime(milliseconds)


@pytest.mark.parametrize("text", ["earliest", "latest", "current"])
def test_words(text: str) -> None:
    assert parse_position(text) == text


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2026-13-01", "12:00", str(2**63), "²"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(OptionError, match="ISO 8601"):
        parse_position(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("2h30m", 9_000_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
        ("1w", 604_800_000),
        ("P1D", 86_400_000),
        ("PT2H30M", 9_000_000),
        ("P1DT2H", 93_600_000),
        ("P2W", 1_209_600_000),
        ("p1dt1.5s", 86_401_500),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "h", "2 hours", "-2h", "2h x", "P", "PT", "P1DT"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(OptionError, match="2h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["P1M", "P2H", "P5S", "PT1D", "PT1W", "P1DT2D", "PT500MS", "P1T1H2D"])
def test_iso_8601_has_hours_minutes_and_seconds_after_a_t_only(text: str) -> None:
    """`P1M` is a month there, whose length nobody knows; Java's Duration.parse refuses it too."""
    with pytest.raises(OptionError, match="P1DT2H"):
        parse_duration(text)
