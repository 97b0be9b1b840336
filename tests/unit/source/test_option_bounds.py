"""Where the options let partitions start and end, before a cluster is asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST
from kafka_source.errors import OptionError
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.source.option_bounds import AtTime, Bound, ending_bounds, starting_bounds, starting_words

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
C = TopicPartition("payments", 0)
ALL = [A, B, C]

numbers = st.integers(-2, 9)
times = st.integers(0, 10**13)


def options_of(where: Where = Where.BATCH, /, **more: object) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders,payments"}
    return read_options({**given, **{name: _text(value) for name, value in more.items()}}, where)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def by_partition(values: dict[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, {})[tp.partition] = value
    return found


def starts(options: ReadOptions, partitions: list[TopicPartition] = ALL) -> dict[TopicPartition, Bound]:
    return starting_bounds(options, partitions, subscribed=ALL, default="earliest")


@given(numbers, numbers, numbers)
def test_offsets_are_the_numbers_of_the_json(a: int, b: int, c: int) -> None:
    values = {A: a, B: b, C: c}
    options = options_of(Where.STREAM, startingOffsets=by_partition(values))
    assert starts(options) == values
    assert starts(options, [B]) == {B: b}
    ends = {tp: value if value != EARLIEST else 5 for tp, value in values.items()}
    options = options_of(endingOffsets=by_partition(ends))
    assert ending_bounds(options, ALL, subscribed=ALL) == ends


@given(times, times, st.booleans(), st.booleans())
def test_a_time_for_all_counts_before_times_of_partitions_and_these_before_offsets(
    for_all: int, each: int, has_all: bool, has_each: bool
) -> None:
    starting: dict[str, object] = {"startingOffsets": "earliest"}
    starting |= {"startingOffsetsByTimestamp": by_partition(dict.fromkeys(ALL, each))} if has_each else {}
    starting |= {"startingTimestamp": str(for_all)} if has_all else {}
    ending: dict[str, object] = {name.replace("starting", "ending"): value for name, value in starting.items()}
    ending["endingOffsets"] = "latest"
    wanted = for_all if has_all else each if has_each else None
    assert starts(options_of(**starting)) == dict.fromkeys(ALL, EARLIEST if wanted is None else AtTime(wanted))
    found = ending_bounds(options_of(**ending), ALL, subscribed=ALL)
    assert found == dict.fromkeys(ALL, LATEST if wanted is None else AtTime(wanted))


@pytest.mark.parametrize(("word", "bound"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_a_topic_starts_at_its_word_and_others_at_the_default(word: str, bound: int) -> None:
    options = options_of(Where.STREAM, startingOffsets={"orders": word})
    assert starts(options) == {A: bound, B: bound, C: EARLIEST}
    assert starting_words(options) == {"orders": word}


@pytest.mark.parametrize("named", [{}, {A: 1}, {A: 1, B: 1, C: 1, TopicPartition("orders", 2): 1}])
def test_json_that_does_not_name_what_is_subscribed_is_refused(named: dict[TopicPartition, int]) -> None:
    values = by_partition(named)
    for option in ("startingOffsets", "startingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=r"DOES_NOT_MATCH_ASSIGNED.*orders-"):
            starts(options_of(**{option: values}), [A])
    for option in ("endingOffsets", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=r"DOES_NOT_MATCH_ASSIGNED.*orders-"):
            ending_bounds(options_of(**{option: values}), [A], subscribed=ALL)
