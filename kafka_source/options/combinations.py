"""The combinations of options that are refused: one table of rules.

A rule is a function with examples of refused options. Validation calls all rules after it has checked each option
alone. docs/options.md shows each example with its error, and a test checks all of them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_source.errors import OptionError
from kafka_source.options.catalog import ReadOptions, SinkOptions
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import Where
from kafka_source.options.kinds import EndingWord, PartitionValues, StartingValues, StartingWord

OptionsT = TypeVar("OptionsT", bound=CommonOptions)

Check = Callable[[OptionsT, Where, Mapping[str, str]], None]
"""A rule. Takes the parsed options, the kind of query, and the options as given; raises OptionError."""


class OtherQueryError(OptionError):
    """An option that only one kind of read, batch or stream, refuses; the other kind may accept the option."""

    def plain(self) -> OptionError:
        """Return the error that users see."""
        return OptionError(self.option, self.got, self.takes, problem=self.problem, spark=self.spark)


@dataclass(frozen=True, slots=True)
class Example:
    """Options that are refused together.

    Attributes:
        given: The options, without the brokers, and without the topic if no rule depends on it.
        where: The kind of query.
    """

    given: Mapping[str, str]
    where: Where

    @property
    def whole(self) -> Mapping[str, str]:
        """All options of a query that has the refused options."""
        topics = ("subscribe", "subscribePattern", "assign")
        reads_any = Where.SINK in self.where or any(name in self.given for name in topics)
        return {
            "kafka.bootstrap.servers": "broker:9092",
            **({} if reads_any else {"subscribe": "orders"}),
            **self.given,
        }


class Table(Generic[OptionsT]):
    """The rules of reads, or of sinks, in the order of their evaluation.

    Args:
        where: The kind of query in examples that do not name a kind.
    """

    def __init__(self, where: Where) -> None:
        self._where = where
        self._rules: list[tuple[Check[OptionsT], tuple[Example, ...]]] = []

    def refuses(
        self, *examples: Mapping[str, str], where: Where | None = None
    ) -> Callable[[Check[OptionsT]], Check[OptionsT]]:
        """Add a function as a rule, with examples of the options that it refuses."""

        def add(check: Check[OptionsT]) -> Check[OptionsT]:
            self._rules.append((check, tuple(Example(one, where or self._where) for one in examples)))
            return check

        return add

    def check(self, options: OptionsT, where: Where, given: Mapping[str, str]) -> None:
        """Call every rule.

        Raises:
            OptionError: The options are refused by a rule.
        """
        for rule, _ in self._rules:
            rule(options, where, given)

    @property
    def examples(self) -> tuple[Example, ...]:
        """All examples."""
        return tuple(example for _, examples in self._rules for example in examples)


READS = Table[ReadOptions](Where.STREAM)
SINKS = Table[SinkOptions](Where.SINK)

_GROUP = {"kafka.group.id": "billing"}
_CONSUMER = {**_GROUP, "kafka.group.protocol": "consumer"}
_ASSIGN = {"assign": '{"orders":[0]}'}


@READS.refuses({"subscribe": "orders", **_ASSIGN})
def _check_topics(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    named = {"assign": options.assign, "subscribe": options.subscribe, "subscribePattern": options.subscribe_pattern}
    chosen = " and ".join(name for name, value in named.items() if value is not None)
    if " and " in chosen:
        which = "Only one of the following options can be specified for Kafka source"
        raise OptionError(
            "subscribe",
            chosen,
            problem=f"Keep one of the options {chosen}",
            spark=f"{which}: subscribe, subscribepattern, assign. See the docs for more details",
        )


def _first_and_last(
    options: ReadOptions,
) -> tuple[StartingWord | StartingValues | None, EndingWord | PartitionValues | None]:
    """Return the offsets at which a read starts and ends; None: as in Spark, another option takes precedence."""
    by_time = options.starting_timestamp, options.starting_offsets_by_timestamp
    ends_by_time = options.ending_timestamp, options.ending_offsets_by_timestamp
    start = options.starting_offsets if by_time == (None, None) else None
    return start, options.ending_offsets if ends_by_time == (None, None) else None


@READS.refuses(
    {"startingOffsets": "latest"},
    {"endingOffsets": "earliest"},
    {"startingOffsets": '{"orders":"latest"}'},
    {"startingOffsets": '{"orders":{"0":-1}}'},
    {"endingOffsets": '{"orders":{"0":-2}}'},
    where=Where.BATCH,
)
def _check_ends_of_batch(options: ReadOptions, where: Where, _given: Mapping[str, str]) -> None:
    """Refuse a batch that starts at latest, or ends at earliest."""
    if where is not Where.BATCH:
        return
    start, end = _first_and_last(options)
    takes_start, takes_end = (
        "an earlier start: a batch from latest (-1) would read nothing",
        "a later end: a batch to earliest (-2)",
    )
    late, early = "be latest for batch queries on Kafka", "be earliest for batch queries on Kafka"
    if start == "latest":
        raise OtherQueryError("startingOffsets", start, takes_start, spark=f"starting offset can't {late}")
    if end == "earliest":
        raise OptionError("endingOffsets", end, f"{takes_end} would read nothing", spark=f"ending offset can't {early}")
    for topic, of_topic in start.items() if isinstance(start, dict) else ():
        if of_topic == "latest":
            spark = f"startingOffsets for {topic} can't {late}"
            raise OtherQueryError("startingOffsets", "latest", takes_start, spark=spark)
    for tp in _with_offset(start, -1):
        raise OtherQueryError("startingOffsets", "-1", takes_start, spark=f"startingOffsets for {tp} can't {late}")
    for tp in _with_offset(end, -2):
        takes = f"{takes_end} would read nothing"
        raise OptionError("endingOffsets", "-2", takes, spark=f"ending offset for {tp} can't {early}")


@READS.refuses({"startingOffsets": "committed"})
def _check_start_of_group(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    start, _ = _first_and_last(options)
    if start == "committed" and options.group_id is None:
        raise OptionError("startingOffsets", "committed", "committed only with kafka.group.id")


@READS.refuses({"minOffsetsPerTrigger": "1000", "maxOffsetsPerTrigger": "100"})
def _check_limits(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            "minOffsetsPerTrigger",
            str(low),
            f"at most maxOffsetsPerTrigger ({high})",
            spark=f"The value of minOffsetPerTrigger({low}) is higher than the maxOffsetsPerTrigger({high})",
        )


@READS.refuses(
    {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
    {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":9}}'},
    where=Where.BATCH,
)
def _check_order(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    start, end = _first_and_last(options)
    if isinstance(start, dict) and isinstance(end, dict):
        numbers = _numbers(start)
        # If a topic starts at a word, only the topics for which both options name partitions can be compared.
        ends = end if numbers.keys() == start.keys() else {topic: end[topic] for topic in end if topic in numbers}
        _compare("startingOffsets", "endingOffsets", numbers, ends, sentinels=True)
    firsts, lasts = options.starting_offsets_by_timestamp, options.ending_offsets_by_timestamp
    by_word = options.starting_timestamp is not None or options.ending_timestamp is not None
    if not by_word and firsts is not None and lasts is not None:
        _compare("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", firsts, lasts, sentinels=False)


@READS.refuses({"commit": "batch"}, {"commit": "task"}, {"commit": "sink"})
def _check_group_of_commits(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.commit in ("batch", "task", "sink") and not options.in_group:
        takes = "batch, task and sink only with kafka.group.id, whose offsets they commit"
        raise OptionError("commit", options.commit, takes)


@READS.refuses({**_GROUP, "commit": "batch"}, {**_GROUP, "commit": "sink"}, where=Where.BATCH)
def _check_commits_of_batch(options: ReadOptions, where: Where, _given: Mapping[str, str]) -> None:
    if options.commit in ("batch", "sink") and where is Where.BATCH:
        takes = "task or none in a batch read; kafkagroup.pinned commits a whole read"
        raise OtherQueryError("commit", options.commit, takes)


@READS.refuses({**_GROUP, "commit": "none"})
def _check_stream_without_commits(options: ReadOptions, where: Where, _given: Mapping[str, str]) -> None:
    if options.commit == "none" and where is Where.STREAM and options.in_group:
        takes = (
            "batch, task or sink in a stream of a group, which commits what it reads; to read without the group and "
            "commit nothing, set group.membership=false"
        )
        raise OtherQueryError("commit", options.commit, takes)


@READS.refuses({**_GROUP, **_ASSIGN, "commit": "task"}, {**_GROUP, **_ASSIGN, "commit": "sink"})
def _check_commits_with_assign(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.assign is not None and options.commit in ("task", "sink"):
        takes = "batch with assign, where no member of the group could commit"
        raise OptionError("commit", options.commit, takes)


@READS.refuses({**_GROUP, "redundant.emit": "all"})
def _check_copies(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.redundant_emit == "all" and "redundant" not in options.partition_assignment_strategy:
        raise OptionError("redundant.emit", "all", "all only with kafka.partition.assignment.strategy=redundant")


@READS.refuses({**_GROUP, "kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "6000"})
def _check_heartbeats(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    session, heartbeat = options.session_timeout_ms, options.heartbeat_interval_ms
    is_classic = options.in_group and options.group_protocol == "classic"
    if is_classic and session is not None and heartbeat >= session:
        raise OptionError(
            "kafka.session.timeout.ms",
            str(session),
            f"more than kafka.heartbeat.interval.ms ({heartbeat}). If kafka.group.id is only a label, as in Spark's "
            "own Kafka source, set group.membership=false",
        )


@READS.refuses(
    {**_GROUP, "commit": "task", "minPartitions": "8"}, {**_GROUP, "commit": "task", "maxRecordsPerPartition": "1000"}
)
def _check_cuts(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    cuts = {"minPartitions": options.min_partitions, "maxRecordsPerPartition": options.max_records_per_partition}
    for name, cut in cuts.items():
        if cut is not None and options.commit == "task":
            raise OptionError(name, str(cut), "no value with commit=task, where one task must read a whole slot")


@READS.refuses({"map.schema": "id bigint"}, {"map.columns": "value"})
def _check_function(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.map_function is None and options.map_schema is not None:
        raise OptionError("map.schema", options.map_schema, "a value only with map.function")
    if options.map_function is None and options.map_columns is not None:
        raise OptionError("map.columns", ",".join(options.map_columns), "a value only with map.function")


# Options that the consumer protocol does not have, as in Java's consumer, and their replacements.
_CLASSIC_ONLY = {
    "kafka.partition.assignment.strategy": "the brokers assign the partitions; kafka.group.remote.assignor chooses how",
    "kafka.session.timeout.ms": "an administrator sets the group's consumer.session.timeout.ms instead",
    "kafka.heartbeat.interval.ms": "an administrator sets the group's consumer.heartbeat.interval.ms instead",
}


@READS.refuses({**_GROUP, "kafka.group.remote.assignor": "range"})
def _check_remote_assignor(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.in_group and options.group_protocol == "classic" and options.group_remote_assignor is not None:
        takes = "a value only with kafka.group.protocol=consumer"
        raise OptionError("kafka.group.remote.assignor", options.group_remote_assignor, takes)


@READS.refuses(_CONSUMER, where=Where.BATCH)
@READS.refuses({**_CONSUMER, **_ASSIGN}, {**_CONSUMER, "commit": "task"})
def _check_consumer_protocol(options: ReadOptions, where: Where, _given: Mapping[str, str]) -> None:
    if not options.in_group or options.group_protocol == "classic":
        return
    if options.assign is not None:
        why = "with assign, where no member joins"
    elif where is Where.BATCH:
        why = "in a batch, whose slots wait for their tasks as members of the classic protocol"
    elif options.commit == "task":
        why = "with commit=task: if the member epoch rises, the coordinator refuses the commits of running tasks"
    else:
        return
    raise OtherQueryError("kafka.group.protocol", "consumer", f"classic {why}")


@READS.refuses(
    {**_CONSUMER, "kafka.partition.assignment.strategy": "sticky"},
    {**_CONSUMER, "kafka.session.timeout.ms": "6000"},
    {**_CONSUMER, "kafka.heartbeat.interval.ms": "1000"},
)
def _check_settings_of_classic(options: ReadOptions, _where: Where, given: Mapping[str, str]) -> None:
    if not options.in_group or options.group_protocol == "classic":
        return
    for name, text in given.items():
        if instead := _CLASSIC_ONLY.get(name.lower()):
            problem = f"Remove the option {name}: with kafka.group.protocol=consumer {instead}"
            raise OptionError(name, text, problem=problem)


@SINKS.refuses({"topic": "orders", "transactional": "true"})
def _check_prefix(options: SinkOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.transactional and options.transactional_id_prefix is None:
        takes = "a prefix of this query's transactional ids, the same after every restart"
        raise OptionError("transactional.id.prefix", None, takes)


@SINKS.refuses(
    {"topic": "orders", "transactional.id.prefix": "copy"},
    {"topic": "orders", "transactional.on.lost": "replay"},
    {"topic": "orders", "commit.group": "billing"},
)
def _check_transactional(options: SinkOptions, _where: Where, _given: Mapping[str, str]) -> None:
    only = {
        "transactional.id.prefix": options.transactional_id_prefix,
        "transactional.on.lost": options.transactional_on_lost,
        "commit.group": options.commit_group,
    }
    for name, value in only.items():
        if value is not None and not options.transactional:
            raise OptionError(name, value, "a value only with transactional=true")


def _compare(
    first: str,
    last: str,
    starts: Mapping[str, Mapping[int, int]],
    ends: Mapping[str, Mapping[int, int]],
    *,
    sentinels: bool,
) -> None:
    """Check that two options in JSON name the same partitions, and that no start is above its end.

    Args:
        first: The name of the option with the starts.
        last: The name of the option with the ends.
        starts: The starts, by topic and partition.
        ends: The ends, by topic and partition.
        sentinels: Whether negative values mean earliest and latest, which are resolved later.
    """
    from_, to = _flat(starts), _flat(ends)
    if from_.keys() != to.keys():
        others = ", ".join(sorted(from_.keys() ^ to.keys()))
        raise OptionError(
            last,
            json.dumps(ends),
            f"a value for exactly the partitions of {first} (only one of the two options names {others})",
            spark="MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
        )
    for name, start in from_.items():
        if start > to[name] and not (sentinels and min(start, to[name]) < 0):
            what = "OFFSET" if sentinels else "TIMESTAMP"
            raise OptionError(
                last,
                str(to[name]),
                f"at least the start, {start}, for {name}",
                spark=f"UNRESOLVED_START_{what}_GREATER_THAN_END_{what}",
            )


def _flat(values: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    return {f"{topic}-{partition}": value for topic, parts in values.items() for partition, value in parts.items()}


def _with_offset(offsets: str | Mapping[str, str | dict[int, int]] | None, value: int) -> Iterator[str]:
    """Yield the partitions, as `topic-0`, for which an option in JSON gives this value."""
    if offsets is not None and not isinstance(offsets, str):
        yield from (name for name, found in _flat(_numbers(offsets)).items() if found == value)


def _numbers(offsets: Mapping[str, str | dict[int, int]]) -> dict[str, dict[int, int]]:
    """Return the topics whose partitions an option names."""
    return {topic: parts for topic, parts in offsets.items() if isinstance(parts, dict)}
