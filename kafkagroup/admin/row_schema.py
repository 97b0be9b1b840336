"""The columns of a row type, and the Arrow and JSON schemas that follow from it.

A row is a frozen dataclass. Its columns are its fields and then its public properties, which are figures that follow
from the fields, such as a lag. So a table, a JSON document and a CSV file of a command have the same names.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import pyarrow as pa

Hint: TypeAlias = Any
"""A type hint, which has no type of its own."""


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
    # The partition as one value repeats the columns `topic` and `partition`.
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
    # With a type of its own: mypy takes the origin of a hint of unknown type for a ParamSpec.
    return get_origin(hint)


def optional(hint: Hint) -> tuple[Hint, bool]:
    """Return a hint without None, and whether it had None."""
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
    """Return the JSON schema of a row type (draft 2020-12): all columns are there, and no others."""
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
