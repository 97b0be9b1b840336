"""Check the options of a query, and set up its log."""

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

from kafka_source.client_config import HIDDEN, Settings
from kafka_source.client_config.java_settings import JAVA, KNOWN, Role, is_known
from kafka_source.client_config.librdkafka import is_librdkafkas
from kafka_source.errors import OptionError
from kafka_source.model.identity import MOVED_FROM
from kafka_source.options.catalog import OPTIONS, REFUSED, ReadOptions, SinkOptions
from kafka_source.options.combinations import READS, SINKS, OtherQueryError
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import KAFKA_PREFIX, NotTakenError, Only, Option, Where, declared_in
from kafka_source.options.kinds import DECODED_FORMATS
from kafka_source.options.value_rules import DECODING, ENCODING
from kafka_source.options.values import REGISTRY_PREFIX, ValueOptions
from kafka_source.runtime.logs import set_up_logging

log = logging.getLogger(__name__)

_ALSO_WITHOUT_PREFIX = ("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms")

# Spark uses these options itself and also passes them to sources, some only for tables (`TableCatalog`).
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

# Spark's file sources also have these options. A dict of options for several sources may have their values.
_OF_OTHER_SOURCES = ("mode", "columnnameofcorruptrecord")

# A name at least this similar to a known name (difflib's ratio) counts as a misspelling, as `startingOffset` does.
# `maxFilesPerTrigger`, an option of Spark's file sources, does not count.
_NEAR = 0.88

# In a short name such as `tpoic`, one swap of letters lowers the ratio more.
_SHORT, _NEAR_IF_SHORT = 7, 0.8

# Settings of Kafka that affect reads, commits, writes or the login.
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

_MEANT = "To ignore this option with a warning, set the option strict to false."

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

# The options that make Spark ignore an option, by the ignored option.
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
        warnings: Warnings about unknown options and options without an effect in this query.
    """

    options: _OptionsT
    warnings: tuple[str, ...] = ()


def check_read(given: Mapping[str, str], where: Where) -> Checked[ReadOptions]:
    """Check the options of a read and parse their values.

    Unknown options are ignored with a warning, unless their names look like misspelt names of options or settings, or
    are settings without their prefix (`strict`).

    Raises:
        OptionError: An option is misspelt, refused, missing, has an invalid value, or contradicts another. The error
            begins with the text of Spark's own source, if there is one.
    """
    try:
        return _check_read(given, where)
    except OtherQueryError as problem:
        raise problem.plain() from None


def _check_read(given: Mapping[str, str], where: Where) -> Checked[ReadOptions]:
    checked = _check(given, where, ReadOptions)
    _check_topics(checked.options, given)
    _check_servers(
        checked.options,
        given,
        spark="Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer",
    )
    READS.check(checked.options, where, given)
    DECODING.check(checked.options, where, given)
    options = checked.options
    return _check_effects(checked, given, where, lambda only: _has_effect_in_read(options, only))


def _check_effects(
    checked: Checked[_OptionsT], given: Mapping[str, str], where: Where, has_effect: Callable[[Only], bool]
) -> Checked[_OptionsT]:
    """Refuse kafkagroup's own options that have no effect with the other options, unless `strict` is false.

    Only warn about options of Spark and Kafka, because several programs may share a configuration that has them.
    """
    warnings = list(checked.warnings)
    for name in given:
        option = _BY_NAME.get(name.lower())
        if option is None or option.only is None or not option.where & where or has_effect(option.only):
            continue
        what = f"has an effect only {option.only.value}"
        if option.is_ours and checked.options.strict:
            raise OptionError(option.name, HIDDEN, problem=f"Option {option.name} {what}: remove it. {_MEANT}")
        warnings.append(f"option {option.name} {what} and is ignored")
    return replace(checked, warnings=tuple(warnings))


def _has_effect(options: ValueOptions, only: Only) -> bool:
    if only is Only.FORMAT:
        return bool(options.decoded)
    rates = (options.quota_bytes_per_second, options.quota_records_per_second, options.quota_watch)
    return only is not Only.QUOTA or any(one is not None for one in rates)


def _has_effect_in_read(options: ReadOptions, only: Only) -> bool:
    starts_by_time = options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None
    holds = {
        Only.GROUP: options.group_id is not None,
        Only.MEMBERS: options.is_member,
        Only.CLASSIC: options.is_member and options.group_protocol == "classic",
        Only.COMMITS: options.in_group and options.commit != "none",
        Only.REDUNDANT: "redundant" in options.partition_assignment_strategy,
        Only.NO_GROUP: options.group_id is None,
        Only.TIMESTAMPS: starts_by_time,
        Only.MIN_OFFSETS: options.min_offsets_per_trigger is not None,
    }
    return holds.get(only, _has_effect(options, only))


def check_load(given: Mapping[str, str]) -> Checked[ReadOptions]:
    """Check the options of a read before Spark decides whether it is a batch or a stream.

    Raises:
        OptionError: Neither a batch nor a stream accepts the options; see `check_read`.
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
    # Prefer the problem that does not depend on the kind of query.
    first = next((one for one in problems if not isinstance(one, OtherQueryError)), problems[0])
    raise first.plain() if isinstance(first, OtherQueryError) else first


def _check_values_of_streams(given: Mapping[str, str]) -> None:
    """Check the values of options that only streams have, because a batch refuses a wrong value too."""
    for name, text in given.items():
        option = _BY_NAME.get(name.lower())
        if option is not None and option.where == Where.STREAM and not option.name.startswith(KAFKA_PREFIX):
            _parse(option, text)


def check_sink(given: Mapping[str, str]) -> Checked[SinkOptions]:
    """Check the options of a write and parse their values; arguments and errors as in `check_read`."""
    checked = _check(given, Where.SINK, SinkOptions)
    _check_servers(checked.options, given)
    SINKS.check(checked.options, Where.SINK, given)
    ENCODING.check(checked.options, Where.SINK, given)
    options = checked.options
    return _check_effects(checked, given, Where.SINK, lambda only: _has_effect(options, only))


def column_options(given: Mapping[str, str]) -> ReadOptions:
    """Return a read's options that determine its columns; all other options have their defaults.

    Spark requests the schema before it decides whether the query is a batch or a stream.

    Raises:
        OptionError: One of these options has an invalid value.
    """
    names = ("includeheaders", "redundant.emit", "key.format", "value.format")
    values = {name.lower(): _parse(_BY_NAME[name.lower()], t) for name, t in given.items() if name.lower() in names}
    return _make(ReadOptions, values, {}, {})


def _check(given: Mapping[str, str], where: Where, make: type[_OptionsT]) -> Checked[_OptionsT]:
    """Check each option alone."""
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
                problem = f"Remove the option {option.name}: it is for batch reads, and a stream has no end"
                raise OtherQueryError(option.name, text, problem=problem, spark=option.not_in_streams)
            if not key.startswith(KAFKA_PREFIX):
                # `client_config.check` knows the clients on which a setting has an effect.
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
        # The setting's value may be a variable (config.providers), which only the driver and the tasks can resolve.
        setting = option.name.lower().removeprefix(KAFKA_PREFIX)
        values[option.name.lower()] = _parse(option, known[setting], known.shown(setting))
    if registry:
        # The registry's client resolves variables in values too.
        registry |= {name: text for name, text in settings.items() if name.startswith("config.providers")}
    return Checked(_make(make, values, settings, registry), tuple(warnings))


def _decodes(given: Mapping[str, str]) -> bool:
    formats = (given.get(name, "").strip().lower() for name in ("value.format", "key.format"))
    return any(one in (*DECODED_FORMATS, "string") for one in formats)


def _make(
    make: type[_OptionsT], values: Mapping[str, object], settings: Mapping[str, str], registry: Mapping[str, str]
) -> _OptionsT:
    """Fill the fields with parsed values, given by lower-case name."""
    # mypy cannot check the fields' values here; `option` has tied the type of each field to its kind.
    construct: Callable[..., _OptionsT] = make
    fields = {field: values[name] for field, o in declared_in(make).items() if (name := o.name.lower()) in values}
    if issubclass(make, ValueOptions):
        rules = {"rules": str(fields["schema_rules"])} if "schema_rules" in fields else {}
        fields["registry"] = Settings({**registry, **rules})
    return construct(settings=Settings(settings), **fields)


def _parse(option: Option, text: str, shown: str | None = None) -> object:
    """Return the value of a text; errors show `shown` instead of the text."""
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
    """The error or warning about a name that is no option.

    Attributes:
        text: The sentence; it never shows the value, which may be a secret.
        is_mistake: Whether the name is most likely a misspelling.
    """

    text: str
    is_mistake: bool


def _unknown(name: str, where: Where, given: Mapping[str, str]) -> _Unknown | None:
    """Return the message about an option that is not declared; None: the Kafka clients check this setting.

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
        # librdkafka is asked only about the few names that are similar to a known name.
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
    """Return whether a setting of Kafka affects reads, commits, writes or the login."""
    role = Role.PRODUCER if where is Where.SINK else Role.CONSUMER
    java = JAVA.get(setting)
    decides = setting in _DECISIVE or setting.startswith(("sasl.", "security.", "ssl."))
    return decides and (java is None or bool(java.roles & role))


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that a misspelt name most likely means; None: no known name is similar."""
    bare = _without_marks(name)
    plain = {_without_marks(one): one for one in names}
    cutoff = _NEAR_IF_SHORT if len(bare) <= _SHORT else _NEAR
    near = difflib.get_close_matches(bare, plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else None


def _without_marks(name: str) -> str:
    """Return a name in lower case without dots, dashes and underscores."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


# The options of a table that `CREATE TABLE … USING kafkagroup OPTIONS (…)` makes.
_NO_OPTION = (
    ". Spark has passed no option at all. It does not pass the options of a table in a catalog to a Python source: "
    "use a temporary view"
)


def _check_servers(options: CommonOptions, given: Mapping[str, str], spark: str = "") -> None:
    if not options.bootstrap_servers:
        problem = "Set kafka.bootstrap.servers to host:port of one or more brokers, separated by commas"
        problem += "" if given else _NO_OPTION
        raise OptionError("kafka.bootstrap.servers", None, problem=problem, spark=spark)


def _check_topics(options: ReadOptions, given: Mapping[str, str]) -> None:
    if options.assign is None and options.subscribe is None and options.subscribe_pattern is None:
        problem = "Set one of the options subscribe, subscribePattern, assign"
        if "topic" in map(str.lower, given):
            problem += "; topic is an option of a sink"
        raise OptionError(
            "subscribe",
            None,
            problem=problem if given else problem + _NO_OPTION,
            spark="One of the following options must be specified for Kafka source: subscribe, subscribepattern, "
            "assign. See the docs for more details",
        )


def load_options(given: Mapping[str, str]) -> ReadOptions:
    """Return a read's options, without warnings, before Spark decides whether the read is a batch or a stream.

    Raises:
        OptionError: See `check_load`.
    """
    _set_up_logging(given)
    return check_load(given).options


def read_options(given: Mapping[str, str], where: Where) -> ReadOptions:
    """Return the options of a read.

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
    """Set up logging as the options say; call this before the options are checked, because the check may log."""
    names = {name.lower(): text.strip() for name, text in given.items()}
    set_up_logging(names.get("log.level"), names.get("log.format"))


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _warn_once(warning)


@cache
def _warn_once(warning: str) -> None:
    """Log a warning once in this process, because Spark makes a writer for every micro-batch."""
    log.warning("%s", warning)
