"""Check the options of a query: unknown or misspelt names, options that exclude each other; set up the log, warn."""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from kafka_source.client_config import HIDDEN, Settings
from kafka_source.client_config.java_settings import JAVA, KNOWN, Role, is_known
from kafka_source.client_config.librdkafka import is_librdkafkas
from kafka_source.errors import OptionError
from kafka_source.model.identity import MOVED_FROM
from kafka_source.options.catalog import OPTIONS, REFUSED, ReadOptions, SinkOptions
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import KAFKA_PREFIX, NotTakenError, Option, Where, declared_in
from kafka_source.options.kinds import (
    DECODED_FORMATS,
    EndingWord,
    PartitionValues,
    StartingValues,
    StartingWord,
)
from kafka_source.options.value_rules import check_decoding, check_encoding
from kafka_source.options.values import REGISTRY_PREFIX, ValueOptions
from kafka_source.runtime.logs import set_up_logging

log = logging.getLogger(__name__)

_ALSO_WITHOUT_PREFIX = ("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms")

# Spark uses these itself, and passes them on all the same; some of them only for tables (`TableCatalog`).
_SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "path",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "_asyncprogresstrackingoverridesinksupportcheck",
        "provider",
        "location",
        "owner",
        "comment",
        "external",
        "is_managed_location",
        "collation",
        "serialization.format",
    }
)

# Options of Spark's file sources too: a dict for several sources may have them with other values.
_OF_OTHER_SOURCES = ("mode", "columnnameofcorruptrecord")

# At this similarity (difflib's ratio) a name is a misspelt one and not another one: `startingOffset` is, and
# `maxFilesPerTrigger`, an option of Spark's file sources, is not.
_NEAR = 0.88

# In a short name one swap of letters makes more of a difference: `tpoic`.
_SHORT, _NEAR_IF_SHORT = 7, 0.8

# Settings of Kafka that decide what is read, committed or written; those for TLS and logins count too.
_DECISIVE = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "partition.assignment.strategy",
        "transactional.id",
    }
)

_MEANT = "If you mean it, set the option strict to false: it is then ignored, with a warning."

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

# Where one of these is given, Spark does not look at the option at all.
_OUTRANKED_BY = {
    f"{end}{less}": tuple(f"{end}{more}" for more in ranks)
    for end in ("starting", "ending")
    for less, ranks in (("offsets", ("timestamp", "offsetsbytimestamp")), ("offsetsbytimestamp", ("timestamp",)))
}

_OptionsT = TypeVar("_OptionsT", bound=CommonOptions)


@dataclass(frozen=True, slots=True)
class Checked(Generic[_OptionsT]):
    """The options of a query, checked.

    Attributes:
        options: Their values.
        warnings: About options that have no effect where they are given, or that are not known.
    """

    options: _OptionsT
    warnings: tuple[str, ...] = ()


class _OtherQueryError(OptionError):
    """An option that is wrong in this kind of query, and may be right in the other one: a batch, or a stream."""

    def plain(self) -> OptionError:
        """Return the error that users see."""
        return OptionError(self.option, self.got, self.takes, problem=self.problem, spark=self.spark)


def check_read(given: Mapping[str, str], where: Where) -> Checked[ReadOptions]:
    """Check the options of a read and parse their values.

    Options that nobody knows are ignored with a warning, as Spark ignores them, unless their names look like misspelt
    names of options or settings, or are settings without their prefix (`strict`).

    Args:
        given: The options as Spark passes them.
        where: BATCH or STREAM.

    Raises:
        OptionError: An option is misspelt, refused, missing, has a value that it does not take, or contradicts another;
            names the option, its value and what it takes. Where Spark's own source has words for it, they come first.
    """
    try:
        return _check_read(given, where)
    except _OtherQueryError as problem:
        raise problem.plain() from None


def _check_read(given: Mapping[str, str], where: Where) -> Checked[ReadOptions]:
    checked = _check(given, where, ReadOptions)
    _check_topics(checked.options, given)
    _check_servers(
        checked.options,
        given,
        spark="Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer",
    )
    _check_positions(checked.options, where)
    _check_group(checked.options, where)
    _check_protocol(checked.options, where, given)
    check_decoding(checked.options, given)
    return checked


def check_load(given: Mapping[str, str]) -> Checked[ReadOptions]:
    """Check the options of a read of which Spark does not say yet whether it is a batch or a stream.

    Raises:
        OptionError: The options are right in neither; see `check_read`.
    """
    problems: list[OptionError] = []
    for where in (Where.BATCH, Where.STREAM):
        try:
            checked = _check_read(given, where)
        except OptionError as problem:
            problems.append(problem)
        else:
            _check_values_of_streams(given)
            return checked
    # Of two problems, the one that does not depend on the kind of query is the one to tell.
    told = next((one for one in problems if not isinstance(one, _OtherQueryError)), problems[0])
    raise told.plain() if isinstance(told, _OtherQueryError) else told


def _check_values_of_streams(given: Mapping[str, str]) -> None:
    """Check the values of options that have an effect in streams only: no kind of query takes a wrong one."""
    for name, text in given.items():
        option = _BY_NAME.get(name.lower())
        if option is not None and option.where == Where.STREAM and not option.name.startswith(KAFKA_PREFIX):
            _parse(option, text)


def check_sink(given: Mapping[str, str]) -> Checked[SinkOptions]:
    """Check the options of a write and parse their values; arguments and errors as in `check_read`."""
    checked = _check(given, Where.SINK, SinkOptions)
    _check_servers(checked.options, given)
    _check_transactional(checked.options)
    check_encoding(checked.options, given)
    return checked


def column_options(given: Mapping[str, str]) -> ReadOptions:
    """Return a read's options that decide about its columns; all others have their defaults.

    Spark asks for the schema before it says whether the query is a batch or a stream.

    Raises:
        OptionError: One of them has a value that it does not take.
    """
    names = ("includeheaders", "redundant.emit", "key.format", "value.format")
    values = {name.lower(): _parse(_BY_NAME[name.lower()], t) for name, t in given.items() if name.lower() in names}
    return _make(ReadOptions, values, {}, {})


def _check(given: Mapping[str, str], where: Where, make: type[_OptionsT]) -> Checked[_OptionsT]:
    """Check each option on its own."""
    values: dict[str, object] = {}
    settings: dict[str, str] = {}
    registry: dict[str, str] = {}
    of_kafka: list[Option] = []
    warnings: list[str] = []
    given_lower = {name.lower(): text for name, text in given.items()}
    strict = _parse(_BY_NAME["strict"], given_lower.get("strict", "true")) is True
    for name, text in given.items():
        key = name.lower()
        if key in _ALSO_WITHOUT_PREFIX:
            key = KAFKA_PREFIX + key
            if given_lower.get(key, text) != text:
                raise OptionError(name, text, f"the same value as {key}, which is given too: {given_lower[key]}")
        refused = REFUSED.get(key)
        if refused is not None and refused.where & where:
            problem = f"Remove the option {name}: {refused.instead}"
            raise OptionError(name, text, problem=problem, spark=refused.spark)
        if key == MOVED_FROM:
            # The Kafka clients compare the cluster id whenever they connect.
            settings[key] = text
        if key.startswith(KAFKA_PREFIX):
            settings[key.removeprefix(KAFKA_PREFIX)] = text
        if key.startswith(REGISTRY_PREFIX):
            registry[key.removeprefix(REGISTRY_PREFIX)] = text
        option = _BY_NAME.get(key)
        if option is None:
            unknown = None if key in _SPARKS_OWN else _unknown(name, where, given_lower)
            if unknown is not None and unknown.is_mistake and strict:
                raise OptionError(name, HIDDEN, problem=f"{unknown.text} {_MEANT}")
            if unknown is not None:
                warnings.append(unknown.text)
            continue
        if not option.where & where:
            if where is Where.STREAM and option.not_in_streams:
                problem = f"Remove the option {option.name}: a stream has no end; it is for batch reads"
                raise _OtherQueryError(option.name, text, problem=problem, spark=option.not_in_streams)
            if not key.startswith(KAFKA_PREFIX):
                # A setting has an effect on the clients that have it, which `client_config.check` knows.
                warnings.append(f"option {option.name} has no effect here and is ignored")
            continue
        if key in _OF_OTHER_SOURCES and not _decodes(given_lower):
            warnings.append(
                f"option {option.name} has no effect without value.format=avro, protobuf or json and is ignored"
            )
            continue
        if key.startswith(KAFKA_PREFIX):
            of_kafka.append(option)
        else:
            try:
                values[key] = _parse(option, text)
            except OptionError:
                winner = next((one for one in _OUTRANKED_BY.get(key, ()) if one in given_lower), None)
                if winner is None:
                    raise
                warnings.append(f"option {option.name} has no effect beside {_BY_NAME[winner].name} and is ignored")
    known = Settings(settings)
    for option in of_kafka:
        # Its value may be a variable, which only the driver and the tasks can resolve (config.providers).
        setting = option.name.lower().removeprefix(KAFKA_PREFIX)
        values[option.name.lower()] = _parse(option, known[setting], known.shown(setting))
    if registry:
        # Variables in values are resolved there too.
        registry |= {name: text for name, text in settings.items() if name.startswith("config.providers")}
    return Checked(_make(make, values, settings, registry), tuple(warnings))


def _decodes(given: Mapping[str, str]) -> bool:
    formats = (given.get(name, "").strip().lower() for name in ("value.format", "key.format"))
    return any(one in (*DECODED_FORMATS, "string") for one in formats)


def _make(
    make: type[_OptionsT], values: Mapping[str, object], settings: Mapping[str, str], registry: Mapping[str, str]
) -> _OptionsT:
    """Fill the fields with parsed values, which are by lower-case name."""
    # Which value belongs to which field is known at run time only; `option` has tied the types of both together.
    construct: Callable[..., _OptionsT] = make
    fields = {field: values[name] for field, o in declared_in(make).items() if (name := o.name.lower()) in values}
    if issubclass(make, ValueOptions):
        fields["registry"] = Settings(registry)
    return construct(settings=Settings(settings), **fields)


def _parse(option: Option, text: str, shown: str | None = None) -> object:
    """Return the value of a text; errors show `shown` in its place."""
    try:
        return option.kind.parse(text)
    except (ValueError, KeyError, TypeError) as problem:
        why = problem if isinstance(problem, NotTakenError) else NotTakenError()
        takes = f"{option.kind.takes}, {why.reason}" if why.reason else option.kind.takes
        shown = text if shown is None else shown
        raise OptionError(option.name, shown, takes, spark=why.spark or _filled(option.kind.spark, shown)) from None


def _filled(spark: str, text: str) -> str:
    return spark.format(" ".join(text.split()))


@dataclass(frozen=True, slots=True)
class _Unknown:
    """What to say about a name that is no option.

    Attributes:
        text: The sentence; it never shows the value, which may be a secret.
        is_mistake: Whether the user almost surely meant another name.
    """

    text: str
    is_mistake: bool


def _unknown(name: str, where: Where, given: Mapping[str, str]) -> _Unknown | None:
    """Return what to say about an option that is not declared; None: it is a setting, which the clients check.

    Args:
        name: The name as the user wrote it, or as Spark passes it: in lower case.
        where: The kind of query.
        given: All options, by lower-case name.
    """
    key = name.lower()
    if key.startswith(KAFKA_PREFIX):
        setting = key.removeprefix(KAFKA_PREFIX)
        if is_known(setting):
            return None
        meant = _nearest(setting, KNOWN)
        # Most names are far from all others. Only for the few that are not, librdkafka is asked.
        if meant is None or is_librdkafkas(setting):
            return None
        return _Unknown(f"No Kafka client has the setting {name}. Did you mean {KAFKA_PREFIX}{meant}?", is_mistake=True)
    if key.startswith(REGISTRY_PREFIX):
        setting = key.removeprefix(REGISTRY_PREFIX)
        if setting in KNOWN and (setting.startswith("ssl.") or setting == "enable.ssl.certificate.verification"):
            return None
        return _Unknown(f"The client of the schema registry has no setting {name}.", is_mistake=True)
    if key in KNOWN:
        prefixed = KAFKA_PREFIX + key
        text = f"Option {key} has no effect without its prefix: write {prefixed}."
        return _Unknown(text, is_mistake=_is_decisive(key, where) and given.get(prefixed) != given[key])
    meant = _nearest(name, [option.name for option in OPTIONS])
    if meant is not None:
        return _Unknown(f"There is no option {name}. Did you mean {meant}?", is_mistake=True)
    return _Unknown(f"option {name} is not known and is ignored", is_mistake=False)


def _is_decisive(setting: str, where: Where) -> bool:
    """Return whether a setting of Kafka decides what is read, committed or written, or who the user is."""
    role = Role.PRODUCER if where is Where.SINK else Role.CONSUMER
    java = JAVA.get(setting)
    decides = setting in _DECISIVE or setting.startswith(("sasl.", "security.", "ssl."))
    return decides and (java is None or bool(java.roles & role))


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of some names of which this one looks like a misspelling."""
    bare = _without_marks(name)
    plain = {_without_marks(one): one for one in names}
    cutoff = _NEAR_IF_SHORT if len(bare) <= _SHORT else _NEAR
    near = difflib.get_close_matches(bare, plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else None


def _without_marks(name: str) -> str:
    """Return a name in lower case without dots, dashes and underscores."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


# What a table of `CREATE TABLE … USING kafkagroup OPTIONS (…)` looks like from here.
_NO_OPTION = (
    ". Spark has passed no option at all, as for a table of a catalog, whose options it does not hand to a Python "
    "source: use a temporary view"
)


def _check_servers(options: CommonOptions, given: Mapping[str, str], spark: str = "") -> None:
    if not options.bootstrap_servers:
        problem = "Set kafka.bootstrap.servers to host:port of one or more brokers, separated by commas"
        problem += "" if given else _NO_OPTION
        raise OptionError("kafka.bootstrap.servers", None, problem=problem, spark=spark)


def _check_topics(options: ReadOptions, given: Mapping[str, str]) -> None:
    named = {
        "assign": options.assign,
        "subscribe": options.subscribe,
        "subscribePattern": options.subscribe_pattern,
    }
    chosen = [name for name, value in named.items() if value is not None]
    if len(chosen) != 1:
        which = "Only one of the following options can" if chosen else "One of the following options must"
        problem = f"Keep one of the options {' and '.join(chosen)}"
        if not chosen:
            problem = "Set one of the options subscribe, subscribePattern, assign"
        if not chosen and "topic" in map(str.lower, given):
            problem += "; topic is an option of a sink"
        if not chosen and not given:
            problem += _NO_OPTION
        raise OptionError(
            "subscribe",
            " and ".join(chosen) if chosen else None,
            problem=problem,
            spark=f"{which} be specified for Kafka source: subscribe, subscribepattern, assign. See the docs for more "
            "details",
        )


def _check_positions(options: ReadOptions, where: Where) -> None:
    first, last = options.starting_timestamp, options.ending_timestamp
    firsts, lasts = options.starting_offsets_by_timestamp, options.ending_offsets_by_timestamp
    # As in Spark, only the option that takes precedence is looked at.
    start = options.starting_offsets if first is None and firsts is None else None
    end = options.ending_offsets if last is None and lasts is None else None
    if where is Where.BATCH:
        _check_ends_of_batch(start, end)
    if start == "committed" and options.group_id is None:
        raise OptionError("startingOffsets", "committed", "committed only with kafka.group.id")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            "minOffsetsPerTrigger",
            str(low),
            f"at most maxOffsetsPerTrigger ({high})",
            spark=f"The value of minOffsetPerTrigger({low}) is higher than the maxOffsetsPerTrigger({high})",
        )
    if isinstance(start, dict) and isinstance(end, dict):
        numbers = _numbers(start)
        # Beside a topic with a word, only the topics that both name by their partitions can be compared.
        ends = end if numbers.keys() == start.keys() else {topic: end[topic] for topic in end if topic in numbers}
        _check_order("startingOffsets", "endingOffsets", numbers, ends, sentinels=True)
    if first is None and last is None and firsts is not None and lasts is not None:
        _check_order("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", firsts, lasts, sentinels=False)


def _check_ends_of_batch(start: StartingWord | StartingValues | None, end: EndingWord | PartitionValues | None) -> None:
    """Refuse a batch that starts at latest, or ends at earliest."""
    takes_start, takes_end = "where a batch starts: latest (-1) would read nothing", "where a batch ends: earliest (-2)"
    late, early = "be latest for batch queries on Kafka", "be earliest for batch queries on Kafka"
    if start == "latest":
        raise _OtherQueryError("startingOffsets", start, takes_start, spark=f"starting offset can't {late}")
    if end == "earliest":
        raise OptionError("endingOffsets", end, f"{takes_end} would read nothing", spark=f"ending offset can't {early}")
    for topic, of_topic in start.items() if isinstance(start, dict) else ():
        if of_topic == "latest":
            spark = f"startingOffsets for {topic} can't {late}"
            raise _OtherQueryError("startingOffsets", "latest", takes_start, spark=spark)
    for tp in _with_offset(start, -1):
        raise _OtherQueryError("startingOffsets", "-1", takes_start, spark=f"startingOffsets for {tp} can't {late}")
    for tp in _with_offset(end, -2):
        takes = f"{takes_end} would read nothing"
        raise OptionError("endingOffsets", "-2", takes, spark=f"ending offset for {tp} can't {early}")


def _check_group(options: ReadOptions, where: Where) -> None:
    commit = options.commit
    if commit in ("batch", "task", "sink") and not options.in_group:
        raise OptionError("commit", commit, "batch, task and sink only with kafka.group.id, whose offsets they commit")
    if commit == "none" and where is Where.STREAM and options.in_group:
        takes = (
            "batch, task or sink in a stream of a group, which commits what it reads; to read without the group and "
            "commit nothing, set group.membership=false"
        )
        raise _OtherQueryError("commit", commit, takes)
    if commit in ("batch", "sink") and where is Where.BATCH:
        takes = "task or none in a batch read; kafkagroup.pinned commits a whole read"
        raise _OtherQueryError("commit", commit, takes)
    if options.assign is not None and commit in ("task", "sink"):
        raise OptionError("commit", commit, "batch with assign, where no member of the group could commit")
    if options.redundant_emit == "all" and "redundant" not in options.partition_assignment_strategy:
        raise OptionError("redundant.emit", "all", "all only with kafka.partition.assignment.strategy=redundant")
    if options.in_group and options.group_protocol == "classic":
        _check_heartbeats(options)
    cuts = {"minPartitions": options.min_partitions, "maxRecordsPerPartition": options.max_records_per_partition}
    for name, cut in cuts.items():
        if cut is not None and commit == "task":
            raise OptionError(name, str(cut), "no value with commit=task, where one task must read a slot whole")


def _check_heartbeats(options: ReadOptions) -> None:
    session, heartbeat = options.session_timeout_ms, options.heartbeat_interval_ms
    if session is not None and heartbeat >= session:
        raise OptionError(
            "kafka.session.timeout.ms",
            str(session),
            f"more than kafka.heartbeat.interval.ms ({heartbeat}). Where kafka.group.id is only a label, as in Spark's "
            "own Kafka source, set group.membership=false",
        )


# What has no place in the consumer protocol, as in Java's consumer, and where it is set instead.
_CLASSIC_ONLY = {
    "kafka.partition.assignment.strategy": "the brokers assign the partitions; kafka.group.remote.assignor chooses how",
    "kafka.session.timeout.ms": "the group's setting consumer.session.timeout.ms decides, which an administrator sets",
    "kafka.heartbeat.interval.ms": (
        "the group's setting consumer.heartbeat.interval.ms decides, which an administrator sets"
    ),
}


def _check_protocol(options: ReadOptions, where: Where, given: Mapping[str, str]) -> None:
    """Refuse what members of the consumer protocol do not have (KIP-848)."""
    if not options.in_group:
        return
    names = {name.lower(): name for name in given}
    if options.group_protocol == "classic":
        if options.group_remote_assignor is not None:
            name = names["kafka.group.remote.assignor"]
            raise OptionError(name, options.group_remote_assignor, "a value only with kafka.group.protocol=consumer")
        return
    if options.assign is not None:
        why = "with assign, where no member joins"
    elif where is Where.BATCH:
        why = "in a batch, whose slots wait for their tasks as members of the classic protocol"
    elif options.commit == "task":
        why = "with commit=task: an epoch that rises in the middle of a micro-batch would refuse its tasks' commits"
    else:
        for classic, instead in _CLASSIC_ONLY.items():
            if classic in names:
                problem = f"Remove the option {names[classic]}: with kafka.group.protocol=consumer {instead}"
                raise OptionError(names[classic], given[names[classic]], problem=problem)
        return
    raise _OtherQueryError("kafka.group.protocol", "consumer", f"classic {why}")


def _check_order(
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
        starts: Its values, by topic and partition.
        ends: The values of the other one.
        sentinels: Whether negative values mean earliest and latest, which are resolved later.
    """
    from_, to = _flat(starts), _flat(ends)
    if from_.keys() != to.keys():
        others = ", ".join(sorted(from_.keys() ^ to.keys()))
        raise OptionError(
            last,
            json.dumps(ends),
            f"a value for exactly the partitions of {first}, and not for others (only one of the two names {others})",
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


def _check_transactional(options: SinkOptions) -> None:
    if options.transactional:
        if options.transactional_id_prefix is None:
            raise OptionError(
                "transactional.id.prefix",
                None,
                "a prefix of this query's transactional ids, the same after every restart",
            )
        return
    only = {
        "transactional.id.prefix": options.transactional_id_prefix,
        "transactional.on.lost": options.transactional_on_lost,
        "commit.group": options.commit_group,
    }
    for name, value in only.items():
        if value is not None:
            raise OptionError(name, value, "a value only with transactional=true")


def load_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read that is being loaded: Spark says later whether it is a batch or a stream.

    The warnings are left to `read_options`, which knows that.

    Raises:
        OptionError: See `check_load`.
    """
    _set_up_logging(given)
    return check_load(given).options


def read_options(given: Mapping[str, str], where: Where) -> ReadOptions:
    """Return the options of a read.

    Args:
        given: The options as Spark passes them.
        where: BATCH or STREAM.

    Raises:
        OptionError: See `check_read`.
    """
    _set_up_logging(given)
    checked = check_read(given, where)
    _warn(checked.warnings)
    return checked.options


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write.

    Raises:
        OptionError: See `check_sink`.
    """
    _set_up_logging(given)
    checked = check_sink(given)
    _warn(checked.warnings)
    return checked.options


def _set_up_logging(given: Mapping[str, str]) -> None:
    """Log as the query asks for it, before its options are checked: an error may come with its frames."""
    names = {name.lower(): text.strip() for name, text in given.items()}
    set_up_logging(names.get("log.level"), names.get("log.format"))


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _warn_once(warning)


@cache
def _warn_once(warning: str) -> None:
    """Log a warning, in this process for the first time only: Spark makes a writer for every micro-batch."""
    log.warning("%s", warning)
