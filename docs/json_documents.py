"""The JSON that each command prints with `-o json`: the types of its rows, and the JSON schema that follows.

The page of the command line shows it (`cli_page`), and tests compare what the commands print with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_source.model.rewind_target import Move
from kafkagroup.admin.assignment_plan import PlannedMember
from kafkagroup.admin.halts import Stand
from kafkagroup.admin.peek import Record, SchemaUse
from kafkagroup.admin.rows import GroupSummary, MemberDescription, PartitionLag, json_schema
from kafkagroup.admin.topics import BrokerSummary, PartitionSummary, TopicSummary
from kafkagroup.admin.watch_rates import WatchMember, WatchPartition, WatchRow
from kafkagroup.cli.rows import (
    BrokerQuota,
    ContextRow,
    GroupOverview,
    LagOf,
    MarkerRow,
    OptionRow,
    PositionRow,
    QuotaChange,
    TransactionRow,
)

_SCHEMA = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array of rows, which are of one of these types."""

    kinds: tuple[type, ...]

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the document."""
        return {"$schema": _SCHEMA, **_array(self.kinds)}


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object with some of these arrays of rows."""

    parts: Mapping[str, tuple[type, ...]]

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the document."""
        arrays = {name: _array(kinds) for name, kinds in self.parts.items()}
        return {
            "$schema": _SCHEMA,
            "type": "object",
            "properties": arrays,
            "minProperties": 1,
            "additionalProperties": False,
        }


def _array(kinds: tuple[type, ...]) -> dict[str, Any]:
    return {"type": "array", "items": {"anyOf": [json_schema(kind) for kind in kinds]}}


_STANDS = ArrayOf((Stand,))
_MOVES = ArrayOf((Move,))
_TRANSACTIONS = ArrayOf((TransactionRow,))

DOCUMENTS: Mapping[str, ArrayOf | ObjectOf] = {
    "groups": ArrayOf((GroupSummary,)),
    "group": ObjectOf({"group": (GroupOverview,), "members": (MemberDescription,), "lag": (PartitionLag, LagOf)}),
    "watch": ArrayOf((WatchRow, WatchMember, WatchPartition)),
    "create": _MOVES,
    "rewind": _MOVES,
    "stop": _STANDS,
    "pause": _STANDS,
    "resume": _STANDS,
    "delete": ArrayOf((GroupOverview,)),
    "offsets delete": ArrayOf((PartitionLag,)),
    "offsets clone": _MOVES,
    "offsets import": _MOVES,
    "topics": ArrayOf((TopicSummary, PartitionSummary)),
    "brokers": ArrayOf((BrokerSummary,)),
    "peek": ArrayOf((Record,)),
    "schema": ArrayOf((SchemaUse,)),
    "plan": ArrayOf((PlannedMember,)),
    "transactions list": _TRANSACTIONS,
    "transactions commit": _TRANSACTIONS,
    "transactions abort": _TRANSACTIONS,
    "transactions repair": ArrayOf((MarkerRow,)),
    "quota brokers": ArrayOf((BrokerQuota, QuotaChange)),
    "checkpoint show": ArrayOf((PositionRow,)),
    "import-checkpoint": ObjectOf({"positions": (PositionRow,), "moves": (Move,)}),
    "contexts": ArrayOf((ContextRow,)),
    "options": ArrayOf((OptionRow,)),
}
"""The documents of commands that print rows, by command. Others have a document of their own, see docs/cli.md."""
