"""Every option of the format, declared once: name, type, default, units, what it does, what it refuses.

Validation (`parse`), the docs table and `kafkagroup options` all come from `OPTIONS`. Names are case-insensitive,
as in Spark. Options that begin with `kafka.` and are not named here go to the Kafka clients as they are
(`kafka_source.client_config`).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any

from kafka_source.client_config import HIDDEN
from kafka_source.client_config.java_names import KNOWN
from kafka_source.errors import OptionError
from kafka_source.model.cluster_identity import MOVED_FROM

KAFKA_PREFIX = "kafka."

# Arrow counts a column's rows and bytes in 32 bits.
_ARROW_MOST = 2**31 - 1


class Where(Flag):
    """Where an option has a meaning."""

    BATCH = auto()
    STREAM = auto()
    SINK = auto()
    READ = BATCH | STREAM
    ALL = BATCH | STREAM | SINK


class Elsewhere(Enum):
    """What happens to an option that is given where it has no meaning."""

    IGNORE = "ignored with a warning"
    REFUSE = "an error"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of option: `takes` tells a person what it takes, `parse` raises ValueError on anything else."""

    takes: str
    parse: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it is declared.

    Attributes:
        name: As users write it.
        kind: What it takes.
        doc: What it does, in one or two sentences.
        default: The parsed value where it is not given; None: none.
        default_text: The default in words, where the value does not say it.
        where: Where it has a meaning.
        elsewhere: What happens where it has none.
        units: Of the value, if any.
    """

    name: str
    kind: Kind
    doc: str
    default: Any = None
    default_text: str = ""
    where: Where = Where.READ
    elsewhere: Elsewhere = Elsewhere.IGNORE
    units: str = ""


def _integer(low: int | None = None, high: int | None = None) -> Kind:
    def parse(text: str) -> int:
        value = int(text)
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError
        return value

    bounds = [f"of at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    return Kind(" ".join(["a whole number", " and ".join(bounds)]).strip(), parse)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


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
        raise ValueError
    re.compile(text.strip())
    return text.strip()


def _names(text: str) -> tuple[str, ...]:
    # Java class names of the built-in assignors are accepted, so that a consumer's configuration can be copied.
    java = {
        "rangeassignor": "range",
        "roundrobinassignor": "roundrobin",
        "stickyassignor": "sticky",
        "cooperativestickyassignor": "cooperative-sticky",
    }
    return tuple(java.get(name.rsplit(".", 1)[-1].lower(), name) for name in _topics(text))


def _partition_list(text: str) -> dict[str, tuple[int, ...]]:
    parsed = json.loads(text) if text.strip().startswith("{") else None
    if not isinstance(parsed, dict) or not parsed:
        raise ValueError
    return {topic: tuple(sorted({_partition_number(p) for p in parts})) for topic, parts in parsed.items()}


def _partition_number(value: object) -> int:
    number = int(str(value))
    if number < 0:
        raise ValueError
    return number


def _partition_values(text: str) -> dict[str, dict[int, int]]:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError
    return {
        topic: {_partition_number(p): _whole(v) for p, v in values.items()}
        for topic, values in ((t, dict(v)) for t, v in parsed.items())
    }


def _assignor_options(text: str) -> dict[str, dict[str, Any]]:
    return {name: dict(arguments) for name, arguments in dict(json.loads(text)).items()}


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def _offsets(*words: str) -> Kind:
    def parse(text: str) -> str | dict[str, dict[int, int]]:
        if text.strip().lower() in words:
            return text.strip().lower()
        values = _partition_values(text)
        if any(v < -2 for parts in values.values() for v in parts.values()):
            raise ValueError
        return values

    return Kind(" or ".join(f'"{w}"' for w in words) + ' or JSON such as {"topic":{"0":23,"1":-2}}', parse)


def _word(*words: str) -> Kind:
    def parse(text: str) -> str:
        return {w: w for w in words}[text.strip().lower()]

    return Kind("one of " + ", ".join(words), parse)


_DURATION_UNITS_MS = {"ms": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000, "minute": 60_000}
_DURATION_UNITS_MS |= {"h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000}


def _duration(text: str) -> int:
    number, unit = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower()).groups()  # type: ignore[union-attr]
    return int(number) * (_DURATION_UNITS_MS[unit if unit in _DURATION_UNITS_MS else unit.rstrip("s")] if unit else 1)


BOOLEAN = Kind("true or false", _boolean)
TEXT = Kind("a text that is not empty", _text)
COUNT = _integer(1)
RATE = Kind("a number above 0", _positive)
MILLISECONDS = _integer(0)
PARTITION_MILLISECONDS = Kind('JSON such as {"topic":{"0":1700000000000}}', _partition_values)

OPTIONS: tuple[Option, ...] = (
    # Where to read
    Option("kafka.bootstrap.servers", TEXT, "Brokers to begin with, host:port, separated by commas.", where=Where.ALL),
    Option("subscribe", Kind("topic names separated by commas", _topics), "The topics to read."),
    Option(
        "subscribePattern",
        Kind("a regular expression", _pattern),
        "Read all topics in whose name it is found, as Spark does: `orders` means `my-orders` too, `^orders$` only "
        "itself. Kafka's internal topics are never meant.",
    ),
    Option("assign", Kind('JSON such as {"topic":[0,1]}', _partition_list), "Exactly these partitions."),
    # Where to start and end
    Option(
        "startingOffsets",
        _offsets("earliest", "latest", "committed"),
        "Where a query starts that has no checkpoint; in a group, where a partition starts that has no committed "
        "offset. In JSON -2 is earliest and -1 latest. `committed`: the group's offsets, earliest without one.",
        default_text="latest for streams, earliest for batches",
    ),
    Option(
        "startingTimestamp",
        MILLISECONDS,
        "Start at the first record of this time or later, in every partition. Goes before the other two.",
        units="ms since 1970",
    ),
    Option(
        "startingOffsetsByTimestamp",
        PARTITION_MILLISECONDS,
        "The same, each partition with its own time. Goes before startingOffsets.",
        units="ms since 1970",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        _word("error", "latest"),
        "What to do with a partition that has no record of that time or later.",
        default="error",
    ),
    Option(
        "endingOffsets",
        _offsets("latest"),
        "Where a batch ends. In JSON -1 is latest.",
        default="latest",
        where=Where.BATCH,
        elsewhere=Elsewhere.REFUSE,
    ),
    Option(
        "endingTimestamp",
        MILLISECONDS,
        "End before the first record of this time or later; without one at the latest. Goes before the other two.",
        where=Where.BATCH,
        elsewhere=Elsewhere.REFUSE,
        units="ms since 1970",
    ),
    Option(
        "endingOffsetsByTimestamp",
        PARTITION_MILLISECONDS,
        "The same, each partition with its own time. Goes before endingOffsets.",
        where=Where.BATCH,
        elsewhere=Elsewhere.REFUSE,
        units="ms since 1970",
    ),
    Option(
        "failOnDataLoss",
        BOOLEAN,
        "Whether a query fails where records it was to read are gone; if not, it warns and reads on.",
        default=True,
    ),
    Option("includeHeaders", BOOLEAN, "Whether rows have a `headers` column.", default=False, where=Where.ALL),
    # The group
    Option(
        "kafka.group.id",
        TEXT,
        "Join this consumer group: start at its committed offsets, share partitions with its other members.",
    ),
    Option(
        "group.membership",
        BOOLEAN,
        "false: `kafka.group.id` is only a label, as in Spark's built-in source.",
        default=True,
    ),
    Option(
        "kafka.group.instance.id",
        TEXT,
        "Prefix of the static members `{prefix}-{k}`. Set it for a stream that should come back from a restart "
        "without a rebalance; two applications must not share one.",
        default_text="one of our own, which leaves the group when the query ends",
    ),
    Option(
        "group.members",
        COUNT,
        "How many members (slots) the query holds in the group; each is one Spark input partition.",
        default_text="as many as there are partitions, at most 8",
    ),
    Option(
        "kafka.partition.assignment.strategy",
        Kind("assignor names separated by commas", _names),
        "The assignors this query supports, best first; the group uses the first that all its members support.",
        default=("range",),
    ),
    Option(
        "assignor.options",
        Kind('JSON such as {"weighted":{"weight":2}}', _assignor_options),
        "Arguments of these assignors, by their names.",
        default_text="those of each assignor",
    ),
    Option(
        "redundant.copies",
        COUNT,
        "With the assignor `redundant`: how many of the group's members get each partition.",
        default_text="2",
    ),
    Option(
        "redundant.emit",
        _word("primary", "all"),
        "With the assignor `redundant`: `primary`, each record once in the group, while standbys wait; `all`, each "
        "copy emits rows, with its number in the column `replica`, at positions that each query keeps for itself.",
        default="primary",
        where=Where.STREAM,
    ),
    Option(
        "group.start",
        _word("committed", "starting"),
        "`starting`: ignore the group's committed offsets at the first start and follow startingOffsets.",
        default="committed",
    ),
    Option(
        "commit",
        _word("batch", "task", "sink", "none"),
        "Who commits offsets to the group: `batch` the driver after each micro-batch, `task` each task at the end of "
        "its ranges, `sink` the exactly-once sink of the stream (its option commit.group), `none` nobody.",
        default_text="batch for streams, none for batches",
    ),
    Option(
        "commit.transactional",
        BOOLEAN,
        "Whether offsets are committed in a transaction; false for clusters that give no transactional rights.",
        default=True,
    ),
    Option(
        "group.lost",
        _word("rejoin", "stop"),
        "What a stream does whose slots the group has given up, e.g. because its driver was suspended for longer than "
        "the session: `rejoin` and go on where the group stands, or `stop` with an error. It commits nothing of what "
        "was not committed before.",
        default="rejoin",
        where=Where.STREAM,
    ),
    Option(
        "kafka.session.timeout.ms",
        COUNT,
        "How long the group waits for a member that is silent.",
        default_text="45000 for streams, 300000 for batches, whose slots wait for their task",
        units="ms",
    ),
    Option("kafka.heartbeat.interval.ms", COUNT, "Time between heartbeats.", default=3000, units="ms"),
    Option(
        "kafka.max.poll.interval.ms",
        COUNT,
        "How long a rebalance waits for a member (its rebalance timeout).",
        default_text="300000 for streams, 1800000 for batches",
        units="ms",
    ),
    Option(
        "rebalance.batch.ms",
        MILLISECONDS,
        "The leader collects changes of topics for so long before it asks for one rebalance.",
        default=2000,
        units="ms",
    ),
    Option(
        "kafka.metadata.max.age.ms",
        COUNT,
        "How often the leader looks for new topics and partitions.",
        default=10_000,
        units="ms",
    ),
    Option(
        "groupIdPrefix",
        TEXT,
        "The label (`group.id`) of the consumers that librdkafka reads with, in a query without `kafka.group.id`.",
        default="spark-kafka-source",
    ),
    # How to read
    Option(
        "engine",
        _word("auto", "native", "librdkafka"),
        "What fetches and sends records: `native` is the fast one, `auto` takes it where it is installed. In a sink "
        "`auto` leaves settings that only librdkafka has (`kafka.statistics.interval.ms`) to `librdkafka`.",
        default="auto",
        where=Where.ALL,
    ),
    Option(
        "batchRows",
        _integer(1, _ARROW_MOST),
        "Rows of an Arrow record batch, at most.",
        default=65_536,
        units="rows",
    ),
    Option(
        "batchBytes",
        _integer(1, 1 << 30),
        "Bytes of an Arrow record batch, about.",
        default=16 * 1024 * 1024,
        units="bytes",
    ),
    Option(
        "maxUnpackedBytes",
        _integer(1, _ARROW_MOST),
        "The most that one compressed batch in a topic may unpack to; the engine `native` ends with an error at more.",
        default=256 * 1024 * 1024,
        units="bytes",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        COUNT,
        "How long a task waits for records that should be there.",
        default=120_000,
        units="ms",
    ),
    Option("fetchOffset.numRetries", _integer(0), "How often fetching offsets is tried again.", default=3),
    Option("fetchOffset.retryIntervalMs", MILLISECONDS, "Time between these tries.", default=10, units="ms"),
    Option("minPartitions", COUNT, "Cut large ranges so that there are at least so many input partitions."),
    Option("maxRecordsPerPartition", COUNT, "Cut ranges with more records than this.", units="records"),
    Option(
        "minRecordsPerTask",
        COUNT,
        "Slots with fewer records than this in a micro-batch share a task with others, one after another: a task costs "
        "Spark about as long as reading 50,000 records does. 1: each slot is a task of its own, e.g. for heavy work on "
        "each record.",
        default_text="1000 in a group without minPartitions and maxRecordsPerPartition, else 1",
        where=Where.STREAM,
        units="records",
    ),
    Option(
        "maxOffsetsPerTrigger",
        COUNT,
        "Offsets of a micro-batch, at most, shared by partitions in proportion to what each has.",
        where=Where.STREAM,
        units="offsets",
    ),
    Option(
        "minOffsetsPerTrigger",
        COUNT,
        "Wait until there are so many new offsets, or until maxTriggerDelay.",
        where=Where.STREAM,
        units="offsets",
    ),
    Option(
        "maxTriggerDelay",
        Kind("a duration such as 15m or 30s", _duration),
        "How long minOffsetsPerTrigger may hold a micro-batch back.",
        default=900_000,
        default_text="15m",
        where=Where.STREAM,
    ),
    Option(
        "kafka.isolation.level",
        _word("read_uncommitted", "read_committed"),
        "`read_committed`: only records of committed transactions, up to the last stable offset.",
        default="read_uncommitted",
    ),
    # Recovery
    Option(
        "kafka.metadata.recovery.strategy",
        _word("rebootstrap", "none"),
        "What a client does that reaches none of the brokers it knows: `rebootstrap`: resolve kafka.bootstrap.servers "
        "anew and start over there (KIP-899, KIP-1102). Also taken without `kafka.`, as is the next one.",
        default="rebootstrap",
        where=Where.ALL,
    ),
    Option(
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
        MILLISECONDS,
        "It also does so when it has asked for metadata in vain for so long.",
        default=300_000,
        where=Where.ALL,
        units="ms",
    ),
    Option(
        MOVED_FROM,
        TEXT,
        "The id of the cluster whose offsets the checkpoint has, if its topics were moved to the one of "
        "kafka.bootstrap.servers with their offsets. Without it a query stops that meets another cluster.",
    ),
    # Quotas
    Option(
        "quota.bytes.per.second",
        RATE,
        "Over it the query slows down; it never fails and leaves nothing out. Of what goes over the network.",
        where=Where.ALL,
        units="bytes a second",
    ),
    Option("quota.records.per.second", RATE, "The same in records.", where=Where.ALL, units="records a second"),
    Option(
        "quota.scope",
        _word("query", "member"),
        "Whether the bounds are of the whole query, shared by its slots, or of each slot (of a sink: of each task).",
        default="query",
        where=Where.ALL,
    ),
    Option(
        "quota.windows",
        _integer(2),
        "Samples of the quota's window, the one that is being filled among them (Kafka's quota.window.num).",
        default=11,
        where=Where.ALL,
    ),
    Option("quota.window.ms", COUNT, "Length of a sample.", default=1000, where=Where.ALL, units="ms"),
    Option(
        "quota.watch",
        TEXT,
        "Where bounds are looked up while the query runs: a file or an http(s) URL with JSON such as "
        '{"bytes_per_second":1000000,"clients":{"my-client-id":{"enabled":false}}}, or `broker` for the brokers\' own '
        "quota of kafka.client.id.",
        where=Where.ALL,
    ),
    Option(
        "quota.report",
        TEXT,
        "A file on the driver that the quota's figures are kept in, for `kafkagroup quota show`.",
        where=Where.STREAM,
    ),
    # The sink
    Option("topic", TEXT, "The topic to write to; goes before a `topic` column.", where=Where.SINK),
    Option(
        "transactional",
        BOOLEAN,
        "true: exactly once, by two-phase commit; a batch becomes visible when all of its tasks are done.",
        default=False,
        where=Where.SINK,
    ),
    Option(
        "transactional.id.prefix",
        TEXT,
        "With transactional=true: names the query's transactions. The same after every restart, of no other query.",
        where=Where.SINK,
    ),
    Option(
        "transactional.lost",
        _word("stop", "replay"),
        "What happens if transactions of a decided batch ran out of time while no driver was there: `stop` with an "
        "error that names them, or write their records again from the `replay` of the batch, for queries whose tasks "
        "get the same rows each time. Row counts are compared.",
        default="stop",
        where=Where.SINK,
    ),
    Option(
        "commit.group",
        TEXT,
        "With transactional=true, in a stream: the kafka.group.id of the query's source, whose commit is `sink`. The "
        "group's offsets are committed in the same transaction as the decision about a batch.",
        where=Where.SINK,
    ),
)

REFUSED: Mapping[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are binary; cast the column",
    "kafka.value.deserializer": "values are binary; cast the column",
    "kafka.enable.auto.commit": "use commit=batch, task or none",
    "kafka.interceptor.classes": "interceptors are Java code and would break the reading",
    "kafka.key.serializer": "keys are binary or string; cast the column",
    "kafka.value.serializer": "values are binary or string; cast the column",
}
"""Options of Kafka that would break what the connector promises, and what to use instead."""

_ALSO_WITHOUT_PREFIX = ("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms")

SPARKS_OWN = frozenset({"checkpointlocation", "path"})
"""What Spark uses itself and hands over all the same."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one query, parsed; ask by the declared name.

    Attributes:
        values: Parsed values by lower-case name, only of options that were given.
        kafka: The settings for the Kafka clients, without the prefix `kafka.`, all that were given.
        warnings: What a user should hear about options that have no meaning here.
    """

    values: Mapping[str, Any]
    kafka: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The option's value, or its declared default."""
        declared = _BY_NAME[name.lower()]
        return self.values.get(name.lower(), declared.default)

    def given(self, name: str) -> bool:
        """Whether the user set this option."""
        return name.lower() in self.values

    def __repr__(self) -> str:
        # Values of client settings may be secrets.
        return f"Options({', '.join(sorted({*self.values, *(KAFKA_PREFIX + name for name in self.kafka)}))})"


def parse(given: Mapping[str, str], where: Where) -> Options:
    """Check a query's options and read their values.

    Args:
        given: The options as Spark hands them over.
        where: BATCH, STREAM or SINK.

    Raises:
        OptionError: An option is unknown, refused, missing or has a value it does not take; names the option, what it
            got and what it takes.
    """
    values: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    warnings: list[str] = []
    given_lower = {name.lower(): text for name, text in given.items()}
    for name, text in given.items():
        key = name.lower()
        if key in _ALSO_WITHOUT_PREFIX:
            key = KAFKA_PREFIX + key
            if given_lower.get(key, text) != text:
                raise OptionError(name, text, f"what {key} takes, which is given too: {given_lower[key]}")
        if key in REFUSED:
            raise OptionError(name, text, f"nothing: it is not supported, {REFUSED[key]}")
        if key == MOVED_FROM:
            # The clients check it: it is they who meet another cluster.
            kafka[key] = text
        if key.startswith(KAFKA_PREFIX):
            kafka[key.removeprefix(KAFKA_PREFIX)] = text
        option = _BY_NAME.get(key)
        if option is None:
            if key.startswith(KAFKA_PREFIX):
                continue
            if key in SPARKS_OWN:
                continue
            # It may be a secret whose name is misspelt or lacks the prefix.
            raise OptionError(name, HIDDEN, f"nothing: there is no such option{_closest(key)}")
        if not option.where & where:
            if option.elsewhere is Elsewhere.REFUSE:
                raise OptionError(name, text, "nothing here: it has a meaning in batch reads only")
            warnings.append(f"option {option.name} has no meaning here and is ignored")
            continue
        values[key] = _parse_one(option, text)
    options = Options(values, kafka, tuple(warnings))
    if not options.given("kafka.bootstrap.servers"):
        raise OptionError("kafka.bootstrap.servers", None, "host:port of one or more brokers; it is required")
    if where & Where.READ:
        _check_reading(options, where)
    return options


def one_of(given: Mapping[str, str], name: str) -> Any:
    """One option alone, for the schema, which Spark asks for before it says what it will do."""
    option = _BY_NAME[name.lower()]
    text = next((value for key, value in given.items() if key.lower() == name.lower()), None)
    return option.default if text is None else _parse_one(option, text)


def _parse_one(option: Option, text: str) -> Any:
    try:
        return option.kind.parse(text)
    except (ValueError, KeyError, TypeError, AttributeError, re.error):
        raise OptionError(option.name, text, option.kind.takes) from None


def _closest(key: str) -> str:
    meant: dict[str, str] = {}
    for name in (*(KAFKA_PREFIX + known for known in sorted(KNOWN)), *(option.name for option in OPTIONS)):
        meant |= {name.lower(): name, name.lower().removeprefix(KAFKA_PREFIX): name}
    close = difflib.get_close_matches(key, meant, n=1)
    return f"; did you mean {meant[close[0]]}?" if close else ""


def _check_reading(options: Options, where: Where) -> None:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if options.given(name)]
    if len(chosen) != 1:
        got = " and ".join(chosen) if chosen else None
        raise OptionError("subscribe", got, "exactly one of assign, subscribe, subscribePattern")
    start = options["startingOffsets"]
    if where is Where.BATCH:
        if start == "latest" or _names_offset(start, -1):
            raise OptionError("startingOffsets", "latest", "where a batch starts: latest (-1) would read nothing")
        if _names_offset(options["endingOffsets"], -2):
            raise OptionError("endingOffsets", "earliest", "where a batch ends: earliest (-2) would read nothing")
    if start == "committed" and not options.given("kafka.group.id"):
        raise OptionError("startingOffsets", "committed", "committed only with kafka.group.id")
    low, high = options["minOffsetsPerTrigger"], options["maxOffsetsPerTrigger"]
    if low is not None and high is not None and low > high:
        raise OptionError("minOffsetsPerTrigger", str(low), f"at most maxOffsetsPerTrigger ({high})")
    grouped = options.given("kafka.group.id") and options["group.membership"]
    if options["commit"] in ("batch", "task", "sink") and not grouped:
        raise OptionError(
            "commit", options["commit"], "batch, task and sink only with kafka.group.id, where offsets go"
        )
    if options["commit"] in ("batch", "sink") and where is Where.BATCH:
        raise OptionError(
            "commit", options["commit"], "task or none in a batch read; kafka_source.pinned commits a whole read"
        )
    if options["commit"] == "sink" and options["group.start"] == "starting":
        raise OptionError(
            "group.start",
            "starting",
            "committed with commit=sink, for there the group's offsets are what is in the output: rewind the group "
            "(kafkagroup rewind) or take a new one",
        )
    if options.given("assign") and grouped:
        raise OptionError(
            "assign", json.dumps(options["assign"]), "subscribe or subscribePattern in a group, which assigns itself"
        )
    if options["redundant.emit"] == "all" and "redundant" not in options["kafka.partition.assignment.strategy"]:
        raise OptionError("redundant.emit", "all", "all only with kafka.partition.assignment.strategy=redundant")
    cut = next((name for name in ("minPartitions", "maxRecordsPerPartition") if options.given(name)), None)
    if cut is not None and options["commit"] == "task":
        raise OptionError(cut, str(options[cut]), "no value with commit=task, where one task must read a slot whole")
    _check_kinds_fit(options)


def _check_kinds_fit(options: Options) -> None:
    start, end = options["startingOffsets"], options["endingOffsets"]
    by_time = options["startingTimestamp"] is not None or options["startingOffsetsByTimestamp"] is not None
    if isinstance(start, dict) and isinstance(end, dict) and not by_time:
        _check_order("endingOffsets", start, end, lambda value: value >= 0)
    first, last = options["startingTimestamp"], options["endingTimestamp"]
    if first is not None and last is not None and first > last:
        raise OptionError("endingTimestamp", str(last), f"at least startingTimestamp ({first})")
    firsts, lasts = options["startingOffsetsByTimestamp"], options["endingOffsetsByTimestamp"]
    if firsts is not None and lasts is not None:
        _check_order("endingOffsetsByTimestamp", firsts, lasts, lambda value: True)


def _check_order(
    name: str,
    starts: Mapping[str, Mapping[int, int]],
    ends: Mapping[str, Mapping[int, int]],
    counts: Callable[[int], bool],
) -> None:
    for topic, parts in starts.items():
        for partition, start in parts.items():
            end = ends.get(topic, {}).get(partition)
            if end is not None and counts(start) and counts(end) and start > end:
                raise OptionError(name, str(end), f"at least the start, {start}, for {topic}-{partition}")


def _names_offset(offsets: object, value: int) -> bool:
    return isinstance(offsets, dict) and any(v == value for parts in offsets.values() for v in parts.values())


def as_markdown() -> str:
    """The options as the table that stands in docs/options.md."""
    rows = ["| option | takes | default | where | what it does |", "| --- | --- | --- | --- | --- |"]
    words = {Where.BATCH: "batch", Where.STREAM: "stream", Where.SINK: "sink"}
    for option in OPTIONS:
        where = ", ".join(word for flag, word in words.items() if flag in option.where)
        takes = (option.kind.takes + (f" ({option.units})" if option.units else "")).replace("|", "\\|")
        rows.append(f"| `{option.name}` | {takes} | {default_words(option)} | {where} | {option.doc} |")
    rows += ["", "Refused, because they would break what the connector promises:", ""]
    rows += [f"- `{name}`: {instead}." for name, instead in REFUSED.items()]
    return "\n".join(rows) + "\n"


def default_words(option: Option) -> str:
    """An option's default as a person reads it."""
    if option.default_text:
        return option.default_text
    if option.default is None:
        return "none"
    if isinstance(option.default, bool):
        return str(option.default).lower()
    return ",".join(option.default) if isinstance(option.default, tuple) else str(option.default)
