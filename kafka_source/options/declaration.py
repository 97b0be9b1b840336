"""The declaration of an option: a field of a dataclass, with its name, its kind, its default and its text.

    max_offsets_per_trigger: int | None = option("maxOffsetsPerTrigger", COUNT, "Maximum number …", where=Where.STREAM)

The field has a typed value, so mypy finds a misspelt option. `option` stores its arguments in the field's metadata, for
validation, the docs and `kafkagroup options`.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from enum import Enum, Flag, auto
from typing import Generic, TypeVar, cast, overload

KAFKA_PREFIX = "kafka."
"""Options with this prefix are settings of the Kafka clients."""

_METADATA = "option"

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Where(Flag):
    """Where an option has an effect."""

    BATCH = auto()
    STREAM = auto()
    SINK = auto()
    READ = BATCH | STREAM
    ALL = BATCH | STREAM | SINK


class Only(Enum):
    """The condition of an option's effect; the value completes the sentence "it has an effect only …"."""

    GROUP = "with kafka.group.id"
    MEMBERS = "with kafka.group.id, and without assign or group.membership=false"
    CLASSIC = "with kafka.group.id, and without assign, group.membership=false or kafka.group.protocol=consumer"
    COMMITS = "with kafka.group.id, and without commit=none or group.membership=false"
    REDUNDANT = "with kafka.partition.assignment.strategy=redundant"
    NO_GROUP = "without kafka.group.id"
    TIMESTAMPS = "with startingTimestamp or startingOffsetsByTimestamp"
    MIN_OFFSETS = "with minOffsetsPerTrigger"
    QUOTA = "with quota.bytes.per.second, quota.records.per.second or quota.watch"
    FORMAT = "with value.format or key.format avro, protobuf or json"


class NotTakenError(ValueError):
    """A value that a kind refuses, with the reason.

    Args:
        reason: The reason, for people; empty: `Kind.takes` says enough.
        spark: The error text of Spark's own source; empty: `Kind.spark`.
    """

    def __init__(self, reason: str = "", *, spark: str = "") -> None:
        super().__init__(reason)
        self.reason, self.spark = reason, spark


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T_co]):
    """The type of an option's value.

    Attributes:
        takes: The accepted values, for people; the text completes the sentence "it takes …".
        parse: Returns the value of a text, or raises ValueError (`NotTakenError` with a reason), KeyError or TypeError.
        spark: The error text of Spark's own source for a refused value, with `{}` for the value; empty: none.
    """

    takes: str
    parse: Callable[[str], _T_co]
    spark: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it is declared.

    Attributes:
        name: The name, as users write it.
        kind: The type of the option's value.
        doc: One to four sentences: its effect, the reason for its default, when to change it.
        default: The parsed value if the option is not given; None: no value.
        default_text: The default in words, if the value is not enough.
        where: The queries in which the option has an effect.
        not_in_streams: Spark's error text if a stream has the option; empty: streams ignore it with a warning.
        units: The units of the value, if any.
        only: The condition under which the option has an effect; None: no condition.
    """

    name: str
    kind: Kind[object]
    doc: str
    default: object
    default_text: str
    where: Where
    not_in_streams: str
    units: str
    only: Only | None

    @property
    def is_ours(self) -> bool:
        """Whether the name is kafkagroup's own, not of Spark's source or of Kafka's settings."""
        return "." in self.name and not self.name.startswith(KAFKA_PREFIX)


@overload
def option(
    name: str,
    kind: Kind[_T],
    doc: str,
    *,
    default: _T,
    default_text: str = ...,
    where: Where = ...,
    not_in_streams: str = ...,
    units: str = ...,
    only: Only | None = ...,
) -> _T: ...
@overload
def option(
    name: str,
    kind: Kind[_T],
    doc: str,
    *,
    default_text: str = ...,
    where: Where = ...,
    not_in_streams: str = ...,
    units: str = ...,
    only: Only | None = ...,
) -> _T | None: ...
def option(
    name: str,
    kind: Kind[object],
    doc: str,
    *,
    default: object = None,
    default_text: str = "",
    where: Where = Where.READ,
    not_in_streams: str = "",
    units: str = "",
    only: Only | None = None,
) -> object:
    """Declare a field of a dataclass as an option; the arguments are those of `Option`.

    The return type ties the field to its kind. Without a `default` the field is None if the option is not given.
    """
    declared = Option(name, kind, doc, default, default_text, where, not_in_streams, units, only)
    return field(default=default, metadata={_METADATA: declared})


def option_of_key(of_value: _T) -> _T:
    """Declare the option of the column `key` that is the counterpart of an option `value.…`.

    Args:
        of_value: The field of the option `value.…`, in the same class.
    """
    declared: Option = cast("Field[object]", of_value).metadata[_METADATA]
    made = replace(
        declared,
        name=declared.name.replace("value.", "key.", 1),
        doc=f"As `{declared.name}`, for keys.",
        default_text=declared.default_text.replace("value", "key"),
    )
    return cast("_T", field(default=made.default, metadata={_METADATA: made}))


def declared_in(options: type) -> dict[str, Option]:
    """Return the options that a dataclass declares or inherits, by the name of the field."""
    return {one.name: one.metadata[_METADATA] for one in fields(options) if _METADATA in one.metadata}
