"""Convert the arguments of `arrow` to options: settings without prefix, topics, columns, positions such as `-1h`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.arrow_function import PLACE, ArrowFunction
from kafka_source.arrow_function import Mapping as FunctionMapping
from kafka_source.errors import DataLossError, OptionError
from kafka_source.model.record_columns import COLUMN_TYPES, Column, columns_of_types
from kafka_source.model.rewind_target import MAX_LONG, parse_duration, parse_time
from kafka_source.options import KAFKA_PREFIX, ReadOptions

Topics: TypeAlias = "str | Sequence[str] | re.Pattern[str]"
"""A topic, several topics, or all topics whose name contains a match."""

Offsets: TypeAlias = "Mapping[int, int] | Mapping[str, Mapping[int, int]]"
"""An offset for each partition, or for each topic and partition."""

Position: TypeAlias = "str | datetime | Offsets"
"""`earliest`, `latest` (an end), a time (ISO 8601, ms since 1970, or `-1h` before now), `@1500`, or offsets."""

Columns: TypeAlias = "str | Iterable[str]"
"""Names of columns; `key string` and `value string` decode bytes as UTF-8."""

SettingValue: TypeAlias = "str | int | float | bool"

DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

_NOT_READ = "replica"
# The flags that change which topic names match. re.UNICODE and re.LOCALE do not, because topic names are ASCII.
_FLAGS = {re.ASCII: "a", re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
# The prefix of settings, but not a part of a longer name such as org.apache.kafka.
_PREFIX = re.compile(r"(?<![\w.])kafka\.(?=[a-z])")
_WORDS = {
    "set the option failOnDataLoss to false": "give fail_on_data_loss=False",
    "failOnDataLoss=false": "fail_on_data_loss=False",
    "use commit=batch or task": "leave it out: only commit() commits",
}
_POSITIONS = re.compile(r"\b(start|end)ing(?:Offsets|Timestamp)\b")


def settings_of(given: Mapping[str, SettingValue]) -> dict[str, str]:
    """Return settings of Kafka's clients as options of the connector, which have the prefix `kafka.`.

    Raises:
        OptionError: A name has the prefix already, or a value is missing.
    """
    options = {}
    for name, value in given.items():
        if name.lower().startswith(KAFKA_PREFIX):
            bare = name[len(KAFKA_PREFIX) :]
            problem = (
                f"Write {bare} without the prefix {KAFKA_PREFIX}: only the options of Spark's format have the prefix"
            )
            raise OptionError(name, None, problem=problem)
        options[KAFKA_PREFIX + name] = text_of(name, value)
    return options


def text_of(name: str, value: SettingValue) -> str:
    """Return the value of a setting as Kafka's clients write it.

    Raises:
        OptionError: There is no value.
    """
    if value is None:
        raise OptionError(name, None, "a value; leave the setting out to use its default")
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def without_prefix() -> Iterator[None]:
    """Let errors of the options name settings and arguments as the caller has written them."""
    try:
        yield
    except OptionError as error:
        texts = (error.option, error.takes, error.problem)
        plain = [_in_words_of_caller(_PREFIX.sub("", text)) for text in texts]
        raise OptionError(plain[0], error.got, plain[1], problem=plain[2]) from None
    except DataLossError as error:
        # The error's class, code and category stay.
        error.args = (_in_words_of_caller(str(error)),)
        raise


def _in_words_of_caller(text: str) -> str:
    text = _POSITIONS.sub(r"\1", text)
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text


def topics_of(topics: Topics) -> dict[str, str]:
    """Return the option that selects these topics.

    Raises:
        OptionError: There are no topics, or the pattern is of bytes or has re.VERBOSE.
    """
    if isinstance(topics, re.Pattern):
        return {"subscribePattern": _with_flags(topics)}
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise OptionError("topics", None, "a topic, a list of topics, or a pattern made by re.compile")
    return {"subscribe": ",".join(names)}


def _with_flags(pattern: re.Pattern[str]) -> str:
    """Return a pattern with its flags as text."""
    # The connector reads the text as a Java pattern, without Python's rules for blanks and comments.
    if pattern.flags & re.VERBOSE or not isinstance(pattern.pattern, str):
        raise OptionError("topics", pattern, "a pattern of str without re.VERBOSE")
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{letters}){pattern.pattern}" if letters else pattern.pattern


def columns_named(columns: Columns) -> tuple[Column, ...]:
    """Return the columns of these names, in the order of the names.

    Raises:
        OptionError: A record has no such column, a type is wrong, a column is named twice, or no column is named.
    """
    named = columns.split(",") if isinstance(columns, str) else list(columns)
    wanted = [one.split() for one in named]
    takes = ", ".join(name for name in COLUMN_TYPES if name != _NOT_READ)
    for one, words in zip(named, wanted, strict=True):
        if not 1 <= len(words) <= 2 or words[0] not in COLUMN_TYPES or words[0] == _NOT_READ:
            raise OptionError("columns", one, f"names of: {takes}; with a type as in `value string`")
    if not wanted or len({words[0] for words in wanted}) < len(wanted):
        raise OptionError("columns", ", ".join(named), f"each of these at most once: {takes}")
    return columns_of_types(
        (words[0], words[-1] if len(words) == 2 else COLUMN_TYPES[words[0]], True) for words in wanted
    )


def mapping_of(
    function: ArrowFunction | None, schema: pa.Schema | None, columns: Sequence[Column], options: ReadOptions
) -> FunctionMapping | None:
    """Return the mapping of records to rows; None: the rows are the records.

    Args:
        function: The function; None: no function.
        schema: The columns of the function's rows.
        columns: The columns of the function's batches.
        options: The options of the read.

    Raises:
        OptionError: Only one of `function` and `schema` is given.
    """
    if function is None and schema is None:
        return None
    if function is None or schema is None:
        missing = "function" if function is None else "schema"
        raise OptionError(missing, None, "a function of record batches, and a pyarrow.Schema of its rows")
    names = tuple(column.name for column in columns)
    return FunctionMapping(
        lambda: function, names, schema, batch_rows=options.batch_rows, batch_bytes=options.batch_bytes
    )


def with_place(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with topic, partition and offset added."""
    names = {column.name for column in columns}
    return (*columns, *(Column(name) for name in PLACE if name not in names))


# ---- positions


def offset_everywhere(position: Position) -> int | None:
    """Return N of `@N`; None for another position."""
    found = re.fullmatch(r"@(\d+)", position.strip()) if isinstance(position, str) else None
    return int(found[1]) if found and int(found[1]) <= MAX_LONG else None


def position_options(
    name: str, position: Position, topics: Topics, now: Callable[[], float] = time.time
) -> dict[str, str]:
    """Return the connector's options for a position.

    Args:
        name: `starting` or `ending`.
        position: The position, but not `@N`, which needs the partitions.
        topics: The topics that are read.
        now: The time in seconds since 1970.

    Raises:
        OptionError: The value is no position.
    """
    if isinstance(position, str) and position in ("earliest", "latest"):
        return {f"{name}Offsets": position}
    if isinstance(position, Mapping):
        return {f"{name}Offsets": json.dumps(_by_topic(position, topics))}
    # If no record is as new as the start, read from the end of the log.
    if_none = {"startingOffsetsByTimestampStrategy": "latest"} if name == "starting" else {}
    return {f"{name}Timestamp": str(_time_ms(name, position, now)), **if_none}


def _time_ms(name: str, position: object, now: Callable[[], float]) -> int:
    if isinstance(position, datetime):
        zoned = position if position.tzinfo is not None else position.replace(tzinfo=timezone.utc)
        return max(0, round(zoned.timestamp() * 1000))
    try:
        if not isinstance(position, str):
            raise OptionError(name, position)
        text = position.strip()
        return max(0, round(now() * 1000) - parse_duration(text[1:])) if text.startswith("-") else parse_time(text)
    except OptionError:
        takes = (
            "earliest, latest, a time (ISO 8601, UTC without a zone; ms since 1970 as text; a datetime), a duration "
            "before now such as -1h, @1500 for an offset in all partitions, or a dictionary of offsets by partition"
        )
        raise OptionError({"starting": "start", "ending": "end"}[name], position, takes) from None


def _by_topic(offsets: Offsets, topics: Topics) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for key, value in offsets.items():
        if isinstance(key, str) and isinstance(value, Mapping):
            by_topic[key] = {str(partition): offset for partition, offset in value.items()}
        elif isinstance(topics, str) and isinstance(key, int) and isinstance(value, int):
            by_topic.setdefault(topics, {})[str(key)] = value
        else:
            raise OptionError(
                "offsets", dict(offsets), "{partition: offset}, or for topics {topic: {partition: offset}}"
            )
    return by_topic


def offsets_at(
    offset: int, earliest: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[str, dict[int, int]]:
    """Return each partition's nearest existing offset, by topic and partition."""
    found: dict[str, dict[int, int]] = {}
    for tp, last in latest.items():
        found.setdefault(tp.topic, {})[tp.partition] = min(max(offset, earliest[tp]), last)
    return found
