"""Checks the options that users write, and makes typed ones of them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_source.client_config import HIDDEN, Settings
from kafka_source.client_config.java_names import KNOWN
from kafka_source.errors import OptionError
from kafka_source.model.cluster_identity import MOVED_FROM
from kafka_source.options.catalog import OPTIONS, REFUSED, CommonOptions, ReadOptions, SinkOptions
from kafka_source.options.declaration import KAFKA_PREFIX, Elsewhere, Option, Where, declared_in

_ALSO_WITHOUT_PREFIX = ("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms")

# Spark uses these itself and passes them on all the same.
_SPARKS_OWN = frozenset({"checkpointlocation", "path"})

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_BY_FORMER_NAME = {option.formerly.lower(): option for option in OPTIONS if option.formerly}

_OptionsT = TypeVar("_OptionsT", bound=CommonOptions)


@dataclass(frozen=True, slots=True)
class Checked(Generic[_OptionsT]):
    """The options of a query, checked.

    Attributes:
        options: Their values.
        warnings: About options that have no effect where they are given.
    """

    options: _OptionsT
    warnings: tuple[str, ...] = ()


def check_read(given: Mapping[str, str], where: Where) -> Checked[ReadOptions]:
    """Check the options of a read and parse their values.

    Args:
        given: The options as Spark passes them.
        where: BATCH or STREAM.

    Raises:
        OptionError: An option is unknown, refused, missing, has a value that it does not take, or contradicts another;
            names the option, its value and what it takes.
    """
    checked = _check(given, where, ReadOptions)
    _check_topics(checked.options)
    _check_positions(checked.options, where)
    _check_group(checked.options, where)
    return checked


def check_sink(given: Mapping[str, str]) -> Checked[SinkOptions]:
    """Check the options of a write and parse their values; arguments and errors as in `check_read`."""
    checked = _check(given, Where.SINK, SinkOptions)
    _check_transactional(checked.options)
    return checked


def column_options(given: Mapping[str, str]) -> ReadOptions:
    """Return a read's options that decide about its columns; all others have their defaults.

    Spark asks for the schema before it says whether the query is a batch or a stream.

    Raises:
        OptionError: One of them has a value that it does not take.
    """
    names = ("includeheaders", "redundant.emit")
    values = {name.lower(): _parse(_BY_NAME[name.lower()], t) for name, t in given.items() if name.lower() in names}
    return _make(ReadOptions, values, {})


def _check(given: Mapping[str, str], where: Where, make: type[_OptionsT]) -> Checked[_OptionsT]:
    """Check each option on its own."""
    values: dict[str, object] = {}
    settings: dict[str, str] = {}
    warnings: list[str] = []
    given_lower = {name.lower(): text for name, text in given.items()}
    for name, text in given.items():
        key = name.lower()
        if key in _ALSO_WITHOUT_PREFIX:
            key = KAFKA_PREFIX + key
            if given_lower.get(key, text) != text:
                raise OptionError(name, text, f"the same value as {key}, which is given too: {given_lower[key]}")
        if key in REFUSED:
            raise OptionError(name, text, f"nothing: it is not supported, {REFUSED[key]}")
        if key in _BY_FORMER_NAME:
            raise OptionError(name, text, f"nothing: it has a new name, {_BY_FORMER_NAME[key].name}")
        if key == MOVED_FROM:
            # The Kafka clients compare the cluster id whenever they connect.
            settings[key] = text
        if key.startswith(KAFKA_PREFIX):
            settings[key.removeprefix(KAFKA_PREFIX)] = text
        option = _BY_NAME.get(key)
        if option is None:
            if key.startswith(KAFKA_PREFIX) or key in _SPARKS_OWN:
                continue
            # The value may be a secret whose name is misspelt or lacks the prefix.
            raise OptionError(name, HIDDEN, f"nothing: there is no such option{_closest(key)}")
        if not option.where & where:
            if option.elsewhere is Elsewhere.REFUSE:
                raise OptionError(name, text, "nothing here: it has an effect in batch reads only")
            warnings.append(f"option {option.name} has no effect here and is ignored")
            continue
        values[key] = _parse(option, text)
    if "kafka.bootstrap.servers" not in values:
        raise OptionError("kafka.bootstrap.servers", None, "host:port of one or more brokers; it is required")
    return Checked(_make(make, values, settings), tuple(warnings))


def _make(make: type[_OptionsT], values: Mapping[str, object], settings: Mapping[str, str]) -> _OptionsT:
    """Fill the fields with parsed values, which are by lower-case name."""
    # Which value belongs to which field is known at run time only; `option` has tied the types of both together.
    construct: Callable[..., _OptionsT] = make
    fields = {field: values[name] for field, o in declared_in(make).items() if (name := o.name.lower()) in values}
    return construct(settings=Settings(settings), **fields)


def _parse(option: Option, text: str) -> object:
    try:
        return option.kind.parse(text)
    except (ValueError, KeyError, TypeError, re.error):
        raise OptionError(option.name, text, option.kind.takes) from None


def _closest(key: str) -> str:
    meant: dict[str, str] = {}
    for name in (*(KAFKA_PREFIX + known for known in sorted(KNOWN)), *(option.name for option in OPTIONS)):
        meant |= {name.lower(): name, name.lower().removeprefix(KAFKA_PREFIX): name}
    close = difflib.get_close_matches(key, meant, n=1)
    return f"; did you mean {meant[close[0]]}?" if close else ""


def _check_topics(options: ReadOptions) -> None:
    named = {
        "assign": options.assign,
        "subscribe": options.subscribe,
        "subscribePattern": options.subscribe_pattern,
    }
    chosen = [name for name, value in named.items() if value is not None]
    if len(chosen) != 1:
        got = " and ".join(chosen) if chosen else None
        raise OptionError("subscribe", got, "exactly one of assign, subscribe, subscribePattern")


def _check_positions(options: ReadOptions, where: Where) -> None:
    start, end = options.starting_offsets, options.ending_offsets
    if where is Where.BATCH:
        if start == "latest" or _names_offset(start, -1):
            raise OptionError("startingOffsets", "latest", "where a batch starts: latest (-1) would read nothing")
        if _names_offset(end, -2):
            raise OptionError("endingOffsets", "earliest", "where a batch ends: earliest (-2) would read nothing")
    if start == "committed" and options.group_id is None:
        raise OptionError("startingOffsets", "committed", "committed only with kafka.group.id")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError("minOffsetsPerTrigger", str(low), f"at most maxOffsetsPerTrigger ({high})")
    first, last = options.starting_timestamp, options.ending_timestamp
    firsts, lasts = options.starting_offsets_by_timestamp, options.ending_offsets_by_timestamp
    if isinstance(start, dict) and isinstance(end, dict) and first is None and firsts is None:
        _check_order("endingOffsets", start, end, lambda value: value >= 0)
    if first is not None and last is not None and first > last:
        raise OptionError("endingTimestamp", str(last), f"at least startingTimestamp ({first})")
    if firsts is not None and lasts is not None:
        _check_order("endingOffsetsByTimestamp", firsts, lasts, lambda value: True)


def _check_group(options: ReadOptions, where: Where) -> None:
    commit = options.commit
    if commit in ("batch", "task", "sink") and not options.in_group:
        raise OptionError("commit", commit, "batch, task and sink only with kafka.group.id, whose offsets they commit")
    if commit in ("batch", "sink") and where is Where.BATCH:
        raise OptionError("commit", commit, "task or none in a batch read; kafka_source.pinned commits a whole read")
    if commit == "sink" and options.group_start == "starting":
        raise OptionError(
            "group.start",
            "starting",
            "committed with commit=sink, which keeps the group's offsets equal to what is in the output: rewind the "
            "group (kafkagroup rewind) or use a new one",
        )
    if options.assign is not None and options.in_group:
        raise OptionError(
            "assign",
            json.dumps(options.assign),
            "no value in a group, whose leader assigns the partitions; use subscribe or subscribePattern",
        )
    if options.redundant_emit == "all" and "redundant" not in options.partition_assignment_strategy:
        raise OptionError("redundant.emit", "all", "all only with kafka.partition.assignment.strategy=redundant")
    cuts = {"minPartitions": options.min_partitions, "maxRecordsPerPartition": options.max_records_per_partition}
    for name, cut in cuts.items():
        if cut is not None and commit == "task":
            raise OptionError(name, str(cut), "no value with commit=task, where one task must read a slot whole")


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
