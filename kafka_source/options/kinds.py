"""The kinds of options, with their values and parsers: numbers, words, durations, sizes, JSON of offsets."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from kafka_source.options.declaration import Kind, NotTakenError
from kafka_source.options.java_regex import to_python

PartitionValues = dict[str, dict[int, int]]
"""A number for each partition of some topics."""

TopicWord = Literal["earliest", "latest"]
StartingValues = dict[str, TopicWord | dict[int, int]]
"""The starts of topics: a word for a whole topic, or an offset for each of its partitions."""

Engine = Literal["auto", "native", "librdkafka"]
SchemaRules = Literal["refuse", "ignore"]
Commit = Literal["batch", "task", "sink", "none"]
GroupOnLost = Literal["rejoin", "stop"]
GroupProtocol = Literal["classic", "consumer"]
GroupOnOlderCheckpoint = Literal["stop", "follow", "replay"]
Emit = Literal["primary", "all"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
RecoveryStrategy = Literal["rebootstrap", "none"]
TimestampStrategy = Literal["error", "latest"]
TransactionalOnLost = Literal["stop", "replay"]
StartingWord = Literal["earliest", "latest", "committed"]
EndingWord = Literal["earliest", "latest"]
DecodedColumn = Literal["key", "value"]
"""A column that tasks may decode from bytes."""

ValueFormat = Literal["binary", "string", "avro", "protobuf", "json"]
ValueFraming = Literal["confluent", "confluent-header", "apicurio", "single-object", "glue", "none"]
Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
SchemaEvolution = Literal["none", "restart"]

_Word = TypeVar("_Word", bound=str)

# Arrow counts the rows and bytes of a column in 32 bits.
_ARROW_MOST = 2**31 - 1

# Offsets, timestamps and numbers of records are `long` in Kafka and Spark, numbers of partitions are `int`.
_MAX_LONG = 2**63 - 1
_MAX_INT = 2**31 - 1

_EARLIEST = -2

# Users can copy the configuration of a Java consumer.
_JAVA_ASSIGNORS = {
    "rangeassignor": "range",
    "roundrobinassignor": "roundrobin",
    "stickyassignor": "sticky",
    "cooperativestickyassignor": "cooperative-sticky",
}

_BYTE_UNITS = {unit: 1 << (10 * power) for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_DURATION_UNITS_US = {"us": 1, "ms": 1000, "s": 10**6, "sec": 10**6, "second": 10**6}
_DURATION_UNITS_US |= {"m": 60 * 10**6, "min": 60 * 10**6, "minute": 60 * 10**6}
_DURATION_UNITS_US |= {"h": 3600 * 10**6, "hour": 3600 * 10**6, "d": 86_400 * 10**6, "day": 86_400 * 10**6}


def word(*words: _Word) -> Kind[_Word]:
    """Return the kind of an option whose value is one of these words, in any case."""
    known = {str(one).lower(): one for one in words}
    return Kind("one of " + ", ".join(words), lambda text: known[text.strip().lower()])


def integer(low: int | None = None, high: int | None = None, spark: str = "") -> Kind[int]:
    """Return the kind of an option whose value is a whole number within bounds, both included.

    Args:
        low: The lower bound; None: the limit of a Java `long`.
        high: The upper bound; None: the limit of a Java `long`.
        spark: The error text of Spark's own source for a refused value; see `Kind`.
    """

    def parse(text: str) -> int:
        value = _whole(int(text))
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError
        return value

    bounds = [f"of at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    return Kind(" ".join(["a whole number", " and ".join(bounds)]).strip(), parse, spark)


def offsets(words: Sequence[_Word]) -> Kind[_Word | PartitionValues]:
    """Return the kind of an option whose value is one of these words, or an offset for each partition."""
    known = {str(one): one for one in words}

    def parse(text: str) -> _Word | PartitionValues:
        named = known.get(text.strip().lower())
        if named is not None:
            return named
        return {topic: _offsets_of(values) for topic, values in _object_of(text).items()}

    takes = " or ".join(f'"{one}"' for one in words) + ' or JSON such as {"topic":{"0":23,"1":-2}}'
    return Kind(takes, parse, spark=_SPARKS_OFFSETS)


def _starting_offsets(text: str) -> StartingWord | StartingValues:
    named = {str(one): one for one in _STARTING}.get(text.strip().lower())
    if named is not None:
        return named
    words = {str(one): one for one in _OF_TOPIC}
    return {
        topic: words[value.strip().lower()] if isinstance(value, str) else _offsets_of(value)
        for topic, value in _object_of(text).items()
    }


def _offsets_of(value: object) -> dict[int, int]:
    """Return the offset of each partition of a topic; -2 and -1 mean earliest and latest."""
    offsets = _by_number(value)
    if any(offset < _EARLIEST for offset in offsets.values()):
        raise ValueError
    return offsets


def _bytes(text: str) -> int:
    """Return a number of bytes, in the notation of Spark's JavaUtils.byteStringAsBytes."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None:
        raise ValueError
    number, unit = found.groups()
    size = int(number) * _BYTE_UNITS[unit.removesuffix("b")]
    if size < 1:
        raise ValueError
    return size


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _byte_rate(text: str) -> float:
    """Return bytes per second: a number, or a size as other options take it."""
    try:
        return _positive(text)
    except ValueError:
        return float(_bytes(text))


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(t.strip() for t in text.split(",") if t.strip()))
    if not topics:
        raise ValueError
    return topics


def _pattern(text: str) -> str:
    if not text.strip():
        spark = f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'"
        raise NotTakenError(spark=spark)
    try:
        return to_python(text.strip())
    except (ValueError, re.error, OverflowError, RecursionError) as problem:
        raise NotTakenError(f"but not {problem}" if isinstance(problem, ValueError) else str(problem)) from None


def _assignors(text: str) -> tuple[str, ...]:
    return tuple(_JAVA_ASSIGNORS.get(name.rsplit(".", 1)[-1].lower(), name) for name in _topics(text))


def _duration(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None:
        raise ValueError
    number, unit = found.groups()
    unit = unit or "ms"
    return int(number) * _DURATION_UNITS_US[unit if unit in _DURATION_UNITS_US else unit.rstrip("s")] // 1000


def _positive_duration(text: str) -> int:
    milliseconds = _duration(text)
    if milliseconds < 1:
        raise ValueError
    return milliseconds


def _object_of(text: str) -> dict[str, object]:
    try:
        return _object(json.loads(text))
    except json.JSONDecodeError:
        # str() of a Python dict is not JSON.
        raise NotTakenError("which json.dumps makes of a dict" if text.lstrip().startswith("{") else "") from None


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError
    return value


def _partition_list(text: str) -> dict[str, tuple[int, ...]]:
    named = _object_of(text)
    if not all(isinstance(numbers, list) for numbers in named.values()):
        raise ValueError
    return {
        topic: tuple(sorted({_partition_number(one) for one in numbers}))
        for topic, numbers in named.items()
        if isinstance(numbers, list)
    }


def _names_or_none(text: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text.strip() else None


def _partition_number(value: object) -> int:
    number = int(str(value))
    if not 0 <= number <= _MAX_INT:
        raise ValueError
    return number


def _partition_values(text: str) -> PartitionValues:
    return {topic: _by_number(values) for topic, values in _object_of(text).items()}


def _by_number(values: object) -> dict[int, int]:
    return {_partition_number(number): _whole(value) for number, value in _object(values).items()}


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    if not -_MAX_LONG - 1 <= value <= _MAX_LONG:
        raise NotTakenError(f"and {value} is not a number of 64 bits")
    return value


def _assignor_options(text: str) -> dict[str, dict[str, object]]:
    return {name: dict(_object(arguments)) for name, arguments in _object_of(text).items()}


_STARTING: tuple[StartingWord, ...] = ("earliest", "latest", "committed")
_ENDING: tuple[EndingWord, ...] = ("earliest", "latest")
_OF_TOPIC: tuple[TopicWord, ...] = ("earliest", "latest")
_SPARKS_OFFSETS = 'Expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {}'

BOOLEAN = Kind("true or false", _boolean)
TEXT = Kind("a non-empty string", _text)
TEXT_OR_NONE: Kind[str | None] = Kind("text; an empty text is ignored", lambda text: text.strip() or None)
MAP_COLUMNS = Kind("comma-separated names of columns; an empty text is ignored", _names_or_none)
COUNT = integer(1)
RETRIES = integer(0)
MILLISECONDS = integer(0)
OFFSETS = integer(0)
TIMESTAMP = integer(0, spark="Expected a single long value, got {}")
MIN_PARTITIONS = integer(1, _MAX_INT, spark="minPartitions must be positive")
MAX_RECORDS_PER_PARTITION = integer(1, spark="maxrecordsperpartition must be positive")
BYTES = Kind("a number of bytes of at least 1, such as 100000 or 512m", _bytes)
DURATION = Kind("a duration such as 15m or 30s", _duration)
POSITIVE_DURATION = Kind("a duration above 0 such as 10s or 500ms", _positive_duration)
RATE = Kind("a number above 0", _positive)
BYTE_RATE = Kind("a number above 0, such as 1000000 or 10m", _byte_rate)
ARROW_ROWS = integer(1, _ARROW_MOST)
ARROW_BYTES = integer(1, 1 << 30)
# As in native/src/values/budget.rs.
DECODED_BYTES = integer(1, (1 << 30) - 1)
DEFAULT_DECODED_BYTES = 64 << 20
RECURSION = integer(1, 15)
SAMPLES = integer(2)
TOPICS = Kind(
    "comma-separated topic names",
    _topics,
    spark="No topics to subscribe to as specified value for option 'subscribe' is '{}'",
)
TOPIC_PATTERN = Kind("a regular expression of Java or Python", _pattern)
PARTITIONS = Kind(
    'JSON such as {"topic":[0,1]}',
    _partition_list,
    spark="No topicpartitions to assign as specified value for option 'assign' is '{}'",
)
TIMESTAMPS = Kind(
    'JSON such as {"topic":{"0":1700000000000}}',
    _partition_values,
    spark='Expected e.g. {{"topicA": {{"0": 123456789, "1": 123456789}}, '
    '"topicB": {{"0": 123456789, "1": 123456789}}}}, got {}',
)
ASSIGNORS = Kind("comma-separated names of assignors", _assignors)
ASSIGNOR_OPTIONS = Kind('JSON such as {"weighted":{"weight":2}}', _assignor_options)
STARTING_OFFSETS = Kind(
    " or ".join(f'"{one}"' for one in _STARTING) + ' or JSON such as {"topic":{"0":23,"1":-2},"new-topic":"latest"}',
    _starting_offsets,
    spark=_SPARKS_OFFSETS,
)
ENDING_OFFSETS = offsets(_ENDING)
ENGINE: Kind[Engine] = word("auto", "native", "librdkafka")
COMMIT: Kind[Commit] = word("batch", "task", "sink", "none")
GROUP_ON_LOST: Kind[GroupOnLost] = word("rejoin", "stop")
GROUP_ON_OLDER_CHECKPOINT: Kind[GroupOnOlderCheckpoint] = word("stop", "follow", "replay")
GROUP_PROTOCOL: Kind[GroupProtocol] = word("classic", "consumer")
EMIT: Kind[Emit] = word("primary", "all")
ISOLATION_LEVEL: Kind[IsolationLevel] = word("read_uncommitted", "read_committed")
LOG_LEVEL: Kind[LogLevel] = word("debug", "info", "warning", "error")
LOG_FORMAT: Kind[LogFormat] = word("text", "json")
RECOVERY_STRATEGY: Kind[RecoveryStrategy] = word("rebootstrap", "none")
TIMESTAMP_STRATEGY: Kind[TimestampStrategy] = word("error", "latest")
SCHEMA_RULES: Kind[SchemaRules] = word("refuse", "ignore")
TRANSACTIONAL_ON_LOST: Kind[TransactionalOnLost] = word("stop", "replay")
DECODED_FORMATS = ("avro", "protobuf", "json")
"""The formats whose values become columns, with a schema that a registry may have."""

VALUE_FORMAT: Kind[ValueFormat] = word("binary", "string", "avro", "protobuf", "json")
VALUE_FRAMING: Kind[ValueFraming] = word("confluent", "confluent-header", "apicurio", "single-object", "glue", "none")
FRAMINGS_OF_SINKS: tuple[ValueFraming, ...] = ("confluent", "none")
FRAMINGS_OF: Mapping[ValueFormat, tuple[ValueFraming, ...]] = {
    "protobuf": ("confluent", "confluent-header", "none"),
    "json": ("confluent", "confluent-header", "apicurio", "glue", "none"),
}
"""The framings of reads; Avro has all of them."""

FRAMINGS_WITHOUT_REGISTRY: tuple[ValueFraming, ...] = ("single-object", "glue", "none")
"""Framings without a schema id of the registry: all values have the schema of the column."""
MODE: Kind[Mode] = word("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
SCHEMA_EVOLUTION: Kind[SchemaEvolution] = word("none", "restart")
SCHEMA_ID = integer(0, _MAX_INT)
