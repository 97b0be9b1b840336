"""Settings without prefix, positions and columns of `kafkagroup.arrow` become the connector's options."""

import re
from datetime import datetime, timedelta, timezone

import pytest

from assignors.model import TopicPartition
from kafka_source.errors import OptionError
from kafka_source.model.record_columns import Column
from kafkagroup import arrow
from kafkagroup.arrow import settings as arrow_settings
from kafkagroup.arrow.settings import (
    columns_named,
    offset_everywhere,
    offsets_at,
    position_options,
    settings_of,
    topics_of,
)


def test_settings_get_the_prefix_of_the_connector() -> None:
    given = settings_of({"bootstrap.servers": "a:1", "check.crcs": True, "fetch.max.wait.ms": 5})
    assert given == {"kafka.bootstrap.servers": "a:1", "kafka.check.crcs": "true", "kafka.fetch.max.wait.ms": "5"}


def test_a_setting_with_prefix_is_refused_and_the_error_says_how_to_write_it() -> None:
    with pytest.raises(OptionError, match=r"Write bootstrap\.servers without the prefix kafka\."):
        settings_of({"kafka.bootstrap.servers": "a:1"})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, r"^Set bootstrap\.servers to host:port"),
        ({"bootstrap.servers": "a:1", "bootstrap.server": "b:1"}, r"Did you mean bootstrap\.servers\?"),
        ({"bootstrap.servers": "a:1", "enable.auto.commit": "true"}, r"leave it out: only commit\(\) commits"),
        ({"bootstrap.servers": "a:1", "isolation.level": "dirty"}, r"Option isolation\.level got 'dirty'"),
    ],
)
def test_errors_name_settings_without_the_prefix(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as problem:
        arrow.read("orders", settings)
    assert "kafka." not in str(problem.value)


def test_topics_are_names_or_a_pattern() -> None:
    assert topics_of("orders") == {"subscribe": "orders"}
    assert topics_of(["orders", "returns"]) == {"subscribe": "orders,returns"}
    assert topics_of(re.compile("^orders-")) == {"subscribePattern": "^orders-"}
    with pytest.raises(OptionError, match="topics is missing"):
        topics_of([])


def test_a_pattern_keeps_its_flags() -> None:
    pattern = topics_of(re.compile("^Orders-", re.IGNORECASE))["subscribePattern"]
    assert re.search(pattern, "orders-eu")
    assert re.search(topics_of(re.compile("(?i)(?s)^Orders-"))["subscribePattern"], "orders-eu")


@pytest.mark.parametrize("pattern", [re.compile(b"^orders-"), re.compile("orders  # all", re.VERBOSE)])
def test_a_pattern_that_topics_cannot_be_found_by_is_refused(pattern: re.Pattern[str]) -> None:
    with pytest.raises(OptionError, match=r"^Option topics got re\.compile.*without"):
        topics_of(pattern)


UTC = timezone.utc


@pytest.mark.parametrize(
    ("position", "options"),
    [
        ("earliest", {"startingOffsets": "earliest"}),
        ("latest", {"startingOffsets": "latest"}),
        ("-1h", {"startingTimestamp": "6400000"}),
        ("1970-01-01T00:00:01", {"startingTimestamp": "1000"}),
        ("1500", {"startingTimestamp": "1500"}),
        (datetime(1970, 1, 1, 0, 0, 2), {"startingTimestamp": "2000"}),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), {"startingTimestamp": "0"}),
        ("-1000d", {"startingTimestamp": "0"}),
        (datetime(1969, 12, 30), {"startingTimestamp": "0"}),
        ({0: 5, 1: 7}, {"startingOffsets": '{"orders": {"0": 5, "1": 7}}'}),
        ({"orders": {0: 5}}, {"startingOffsets": '{"orders": {"0": 5}}'}),
    ],
)
def test_positions(position: arrow_settings.Position, options: dict[str, str]) -> None:
    if "startingTimestamp" in options:
        options = options | {"startingOffsetsByTimestampStrategy": "latest"}
    assert position_options("starting", position, "orders", now=lambda: 10_000) == options


@pytest.mark.parametrize("position", ["yesterday", "-1", 1500, None, {"orders": 3}])
def test_what_is_no_position_is_refused(position: arrow_settings.Position) -> None:
    with pytest.raises(OptionError, match=r"start|offsets"):
        position_options("starting", position, "orders")


def test_an_offset_everywhere_is_the_nearest_one_that_a_partition_has() -> None:
    assert offset_everywhere("@1500") == 1500
    assert offset_everywhere("1500") is None
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    assert offsets_at(50, {one: 0, two: 60}, {one: 40, two: 90}) == {"t": {0: 40, 1: 60}}


def test_columns() -> None:
    text = (Column("key"), Column("value", text=True))
    assert columns_named("key, value string") == text
    assert columns_named(["key", "value string"]) == text


@pytest.mark.parametrize("columns", ["", "payload", "replica", "offset string", "key, key string", []])
def test_columns_that_a_record_does_not_have_are_refused(columns: arrow_settings.Columns) -> None:
    with pytest.raises(OptionError, match="key"):
        columns_named(columns)
