"""The types of rows about groups, such as `Group` and `PartitionLag`, and rows as DataFrame, Arrow table or JSON.

The Arrow and JSON schemas follow from the row type.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from assignors.model import TopicPartition

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


Hint: TypeAlias = Any
"""A type hint; Python has no type that includes all hints."""


_EPOCH = datetime(1970, 1, 1)


def time_text(micros: int | None) -> str:
    """Return the timestamp of a record as text.

    Args:
        micros: Microseconds since 1970; None: the timestamp is too large for microseconds.
    """
    if micros is None:
        return "beyond microseconds"
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="milliseconds") + "Z"
    except OverflowError:
        # Python's calendar ends in the year 9999.
        return f"{micros // 1000} ms since 1970"


def columns(kind: Hint) -> Mapping[str, Hint]:
    """Return the type of each column of a row type, by its name, in order."""
    return _columns(kind)


@cache
def _columns(kind: Hint) -> Mapping[str, Hint]:
    if hasattr(kind, "_fields"):
        return get_type_hints(kind)
    hints = get_type_hints(kind)
    found = {each.name: hints[each.name] for each in dataclasses.fields(kind)}
    for name, value in vars(kind).items():
        if isinstance(value, property) and not name.startswith("_") and value.fget is not None:
            found[name] = get_type_hints(value.fget)["return"]
    # `topic_partition` repeats the columns `topic` and `partition`.
    found.pop("topic_partition", None)
    return found


def record(row: object) -> dict[str, Any]:
    """Return a row as a JSON object."""
    return {name: _plain(getattr(row, name)) for name in columns(type(row))}


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return record(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value


def _origin(hint: Hint) -> object:
    return get_origin(hint)


def optional(hint: Hint) -> tuple[Hint, bool]:
    """Return a type hint without its None, and whether it had None."""
    if _origin(hint) in (Union, types.UnionType):
        others = [one for one in get_args(hint) if one is not type(None)]
        if len(others) == 1:
            return others[0], True
    return hint, False


def item_of(hint: Hint) -> Hint | None:
    """Return the type of the items of `tuple[X, ...]`; None for another hint."""
    return get_args(hint)[0] if _origin(hint) is tuple else None


def arrow_schema(kind: type) -> pa.Schema:
    """Return the Arrow schema of a row type."""
    import pyarrow as pa

    return pa.schema([pa.field(name, _arrow(hint)) for name, hint in columns(kind).items()])


def _arrow(hint: Hint) -> pa.DataType:
    import pyarrow as pa

    bare, _ = optional(hint)
    if _origin(bare) is Literal:
        return pa.string()
    item = item_of(bare)
    if item is not None:
        return pa.list_(_arrow(item))
    plain = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(bare)
    if plain is not None:
        return plain
    return pa.struct([pa.field(name, _arrow(inner)) for name, inner in columns(bare).items()])


_JSON_TYPES: Mapping[Hint, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def json_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a row type (draft 2020-12), which requires all columns and allows no others."""
    return _json(kind)


def _json(hint: Hint) -> dict[str, Any]:
    bare, nullable = optional(hint)
    if nullable:
        return {"anyOf": [_json(bare), {"type": "null"}]}
    if _origin(bare) is Literal:
        return {"enum": list(get_args(bare))}
    item = item_of(bare)
    if item is not None:
        return {"type": "array", "items": _json(item)}
    if bare in _JSON_TYPES:
        return {"type": _JSON_TYPES[bare]}
    inner = {name: _json(one) for name, one in columns(bare).items()}
    return {"type": "object", "properties": inner, "required": list(inner), "additionalProperties": False}


_Row = TypeVar("_Row", covariant=True)


class Rows(tuple[_Row, ...]):
    """An immutable sequence of frozen dataclasses of one type, `kind`, so that an empty sequence has columns too."""

    kind: type[_Row]

    def __new__(cls, kind: type[_Row], rows: Iterable[_Row] = ()) -> Rows[_Row]:  # noqa: D102 - see the class
        made = super().__new__(cls, rows)
        made.kind = kind
        return made

    def __getnewargs__(self) -> tuple[type[_Row], tuple[_Row, ...]]:
        return self.kind, tuple(self)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values, by the names of their columns."""
        return [record(row) for row in self]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; nested values are structs and lists."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.records(), schema=arrow_schema(self.kind))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame of pandas, which must be installed; numbers that can be missing are Int64."""
        import pandas as pd
        import pyarrow as pa

        return self.to_arrow().to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in the list of a cluster's groups.

    Attributes:
        group: The group id.
        type: classic or consumer (KIP-848), share (KIP-932) or streams (KIP-1071); unknown before Kafka 3.7.
        protocol: The protocol type of a classic group: consumer, connect or an application's own; empty before the
            first member.
        state: Kafka's group state, such as Stable or Empty.
        members: The number of members; None: not requested, or no consumer group.
        lag: The sum of the group's lag. None: not requested, no consumer group, or a rebalancing group without commits.
        uncommitted: The number of the group's partitions without a committed offset; None as for `lag`.
        halt: The author and the time of a pause or stop of the group's queries; None: no pause or stop.
    """

    group: str
    type: str
    protocol: str
    state: str
    members: int | None = None
    lag: int | None = None
    uncommitted: int | None = None
    halt: str | None = None


@dataclass(frozen=True, slots=True)
class UserData:
    """Decoded user data that a member sends to the leader's assignor, or that the leader sends to a member.

    Attributes:
        size: The number of bytes.
        weight: The capacity of a member under `weighted`.
        generation: The generation of `partitions`; None: the data have no generation.
        partitions: The member's previous partitions, as it reports them.
        text: The data as text, for example the reason why the leader could not assign.
    """

    size: int
    weight: int | None = None
    generation: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    text: str | None = None

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        known = [("weight", self.weight), ("generation", self.generation), ("had", len(self.partitions) or None)]
        return " ".join(f"{name}={value}" for name, value in known if value is not None) or f"{self.size} bytes"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, as its coordinator describes it.

    Attributes:
        member_id: The member id that the coordinator assigned.
        instance_id: `group.instance.id`; None for a dynamic member.
        client_id: `client.id`.
        host: The address from which the member connects.
        partitions: The member's assignment, sorted.
        topics: The topics that the member subscribes to, sorted; empty while a classic group rebalances.
        rack: `client.rack`; None if it is not set or the group rebalances.
        user_data: The subscription's user data; None: no user data.
        assigned_data: The assignment's user data; None: no user data.
        epoch: The member epoch (KIP-848); None in a classic group, whose brokers do not return the generation.
        revoking: Partitions that the brokers have revoked, but that the member has not released yet (KIP-848). Brokers
            before 4.3 return none (KAFKA-20431).
        awaiting: Partitions that the brokers assign to the member, but that it does not own yet (KIP-848): another
            member must release them first, or the member's next heartbeat is due.
        rate: Offsets a second that the member commits, between two samples; None: not requested, or unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...] = ()
    rack: str | None = None
    user_data: UserData | None = None
    assigned_data: UserData | None = None
    epoch: int | None = None
    revoking: tuple[TopicPartition, ...] = ()
    awaiting: tuple[TopicPartition, ...] = ()
    rate: float | None = None

    @property
    def name(self) -> str:
        """Return the instance id, or the member id of a dynamic member."""
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class Group:
    """A group, as its coordinator describes it.

    Attributes:
        group: The group id.
        state: Kafka's group state: Stable, Empty, PreparingRebalance or CompletingRebalance; in the consumer protocol
            (KIP-848) also Assigning or Reconciling.
        assignor: The name of the group's assignor; empty without an assignor.
        members: The members, sorted by name.
        coordinator: The coordinator's host:port.
        type: classic or consumer.
        epoch: The group epoch (KIP-848); None in a classic group.
    """

    group: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: str
    type: str = "classic"
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in one partition.

    Attributes:
        topic: The topic.
        partition: The partition number.
        committed: The committed offset; None: no committed offset.
        end: The end offset of the log (the high watermark); None if the partition has no leader.
        member: The name of the member that owns the partition; None: no member.
        start: The first offset of the log; 0 if the partition has no leader.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: str | None
    start: int = 0

    @property
    def lag(self) -> int | None:
        """Return the number of offsets between the committed and the end offset; None if either is unknown."""
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)

    @property
    def behind(self) -> int | None:
        """Return the lag, or the number of offsets in the log if no offset is committed; None without a leader."""
        return (
            None if self.end is None else max(0, self.end - (self.start if self.committed is None else self.committed))
        )
