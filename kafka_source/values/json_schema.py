"""The column type for values of a JSON Schema, as Spark would infer the type from values of all branches.

A JSON Schema defines the valid values, not their bytes. If no single type of Spark fits a value, the value is a string
with its JSON text. All values may be null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

import pyarrow as pa

Json = object
"""A part of a schema, as JSON has it."""

# A short schema can have countless parts, if each definition refers twice to the next definition.
MAX_PARTS = 20_000
# Arrow's C++ library imports no type that is nested more deeply.
_MAX_DEPTH = 64

_ROOT = "#"
_NULL = pa.null()
_SCALARS: Mapping[str, pa.DataType] = {
    "null": _NULL,
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS: Mapping[str, pa.DataType] = {"date": pa.date32(), "date-time": pa.timestamp("us", tz="UTC")}


class SchemaError(ValueError):
    """A schema has no type."""


@dataclass(frozen=True, slots=True)
class _Object:
    """An object.

    Attributes:
        fields: Its fields, in their order.
        others: The type of unnamed fields, used if the schema names no field; null: no unnamed fields.
    """

    fields: Mapping[str, _Node] = field(default_factory=dict)
    others: _Node = None


@dataclass(frozen=True, slots=True)
class _Array:
    """An array, with the kind of its items."""

    items: _Node = None


_Node: TypeAlias = pa.DataType | _Object | _Array | None
"""The kind of a part of a value; None: any."""


def json_schema_type(text: str, imports: Mapping[str, str] | None = None) -> pa.DataType:
    """Return the column type for values of a JSON Schema.

    Args:
        text: The schema.
        imports: The schemas to which `text` refers, by the names of the references.

    Raises:
        SchemaError: The text is no JSON Schema, has no type, refers to a missing schema, or is too large.
    """
    try:
        documents = Documents(text, imports or {})
        node = _Reader(documents).node(documents.root, "", (_ROOT,))
        if node is None:
            raise SchemaError("it says nothing about the type of a value")
        return _arrow(node, 0)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None


class Documents:
    """A schema and the schemas to which it refers.

    Args:
        text: The schema, whose name in this object is empty.
        imports: The other schemas, by the names of the references.

    Attributes:
        root: The schema as JSON has it.

    Raises:
        SchemaError: A text is no JSON.
    """

    def __init__(self, text: str, imports: Mapping[str, str]) -> None:
        try:
            self._documents = {name: json.loads(schema) for name, schema in {**imports, "": text}.items()}
        except json.JSONDecodeError:
            raise SchemaError("it is no JSON") from None
        except RecursionError:
            raise SchemaError("it is nested too deeply") from None
        self.root: Json = self._documents[""]
        # A reference may also name another schema by that schema's id.
        self._by_id = {_id_of(document): name for name, document in self._documents.items() if _id_of(document)}

    def find(self, reference: str, document: str) -> tuple[Json, str, str]:
        """Return the part to which a document's reference leads, the name of the part's document, and the part's path.

        Raises:
            SchemaError: The part does not exist, or the reference has no path.
        """
        target, fragment = urldefrag(reference)
        name, fragment = self._document(target, document), unquote(fragment)
        part = self._documents[name]
        for step in fragment.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, dict) and key in part:
                part = part[key]
            elif isinstance(part, list) and key.isdecimal() and int(key) < len(part):
                part = part[int(key)]
            else:
                raise SchemaError(f"it refers to {reference}, which does not exist")
        if fragment and not fragment.startswith("/"):
            raise SchemaError(
                f"it refers to {reference}: only references by a path, such as #/$defs/Line, are followed"
            )
        return part, name, f"{name}#{fragment}"

    def _document(self, target: str, document: str) -> str:
        """Return the name of the document to which a reference within another document leads."""
        if not target:
            return document
        of_base = urljoin(_id_of(self._documents[document]), target)
        for one in (target, of_base):
            if one in self._documents:
                return one
            if one in self._by_id:
                return self._by_id[one]
        raise SchemaError(f"it refers to {target}, which is none of its references in the registry")


class _Reader:
    """Reads a schema."""

    def __init__(self, documents: Documents) -> None:
        self._documents, self._parts = documents, 0

    def node(self, schema: Json, document: str, within: tuple[str, ...]) -> _Node:
        """Return the kind of values that a part of a schema allows.

        Args:
            schema: The part.
            document: The name of its document.
            within: The references that led to the part.
        """
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise SchemaError(f"it has more than {MAX_PARTS} parts")
        if not isinstance(schema, dict):
            return None
        found = [self._own(schema, document, within)]
        if "$ref" in schema:
            found.append(self._referred(str(schema["$ref"]), document, within))
        found += [self.node(one, document, within) for one in list_of(schema.get("allOf"))]
        for name in ("oneOf", "anyOf"):
            if branches := [self.node(one, document, within) for one in list_of(schema.get(name))]:
                found.append(_one_of(branches))
        return reduce(_both, found)

    def _own(self, schema: Mapping[str, Json], document: str, within: tuple[str, ...]) -> _Node:
        kinds = schema.get("type")
        if kinds is None:
            kinds = "object" if "properties" in schema else "array" if "items" in schema else None
        if kinds is None:
            values = list_of(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
            return _one_of([_of_value(value) for value in values]) if values else None
        return _one_of([self._of_kind(kind, schema, document, within) for kind in list_of(kinds) or [kinds]])

    def _of_kind(self, kind: Json, schema: Mapping[str, Json], document: str, within: tuple[str, ...]) -> _Node:
        if kind == "object":
            named = schema.get("properties")
            fields = named if isinstance(named, dict) else {}
            # An object with named fields is read without its other fields.
            patterns = [] if fields else [*_values(schema.get("patternProperties"))]
            return _Object(
                {name: self.node(one, document, within) for name, one in fields.items()},
                self._listed(patterns, schema.get("additionalProperties"), document, within),
            )
        if kind == "array":
            # Before 2020-12, `items` lists the items of a tuple.
            is_old = isinstance(schema.get("items"), list)
            items, others = ("items", "additionalItems") if is_old else ("prefixItems", "items")
            return _Array(self._listed(list_of(schema.get(items)), schema.get(others), document, within))
        if kind == "string":
            return string_type(schema)
        return _SCALARS.get(str(kind))

    def _listed(self, parts: list[Json], others: Json, document: str, within: tuple[str, ...]) -> _Node:
        """Return one kind for all parts of a value: the listed parts, and the other parts, whose schema is `others`."""
        listed = [self.node(one, document, within) for one in parts]
        if isinstance(others, dict):
            listed.append(self.node(others, document, within))
        return _one_of(listed) if listed else _NULL if others is False else None

    def _referred(self, reference: str, document: str, within: tuple[str, ...]) -> _Node:
        part, name, place = self._documents.find(reference, document)
        # A part that contains itself has no type of a bounded depth.
        return pa.string() if place in within else self.node(part, name, (*within, place))


def string_type(schema: Mapping[str, Json]) -> pa.DataType:
    """Return the type for the strings that a schema allows."""
    if schema.get("contentEncoding") == "base64":
        return pa.binary()
    return _FORMATS.get(str(schema.get("format")), pa.string())


def _id_of(document: Json) -> str:
    own = document.get("$id", document.get("id")) if isinstance(document, dict) else None
    return own.rstrip("#") if isinstance(own, str) else ""


def list_of(value: Json) -> list[Json]:
    """Return a part of a schema that should be a list; an empty list if the part is no list."""
    return value if isinstance(value, list) else []


def _values(value: Json) -> Iterable[Json]:
    return value.values() if isinstance(value, dict) else ()


def _of_value(value: Json) -> _Node:
    # A bool is an int in Python.
    types = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return _SCALARS[types[type(value)]] if type(value) in types else None


def _one_of(branches: list[_Node]) -> _Node:
    """Return the kind of values that one of these branches allows."""
    return None if None in branches else reduce(_merged, branches)


def _both(a: _Node, b: _Node) -> _Node:
    """Return the kind of the values that two kinds have in common; None allows any value."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, _Object) and isinstance(b, _Object):
        shared = {name: _both(a.fields[name], b.fields[name]) for name in a.fields if name in b.fields}
        return _Object({**a.fields, **b.fields, **shared}, _both(a.others, b.others))
    if isinstance(a, _Array) and isinstance(b, _Array):
        return _Array(_both(a.items, b.items))
    for wide, narrow in ((a, b), (b, a)):
        # A string may be the text of any value.
        if wide == pa.string() or (wide, narrow) == (pa.float64(), pa.int64()):
            return narrow
    return _merged(a, b)


def _merged(a: _Node, b: _Node) -> _Node:
    """Return the kind of values that may be of either kind, as Spark infers it from JSON with both."""
    if a is None or b is None:
        return None
    if a == b or b == _NULL:
        return a
    if a == _NULL:
        return b
    if isinstance(a, _Object) and isinstance(b, _Object):
        if any(bool(one.fields) < bool(other.fields) and one.others != _NULL for one, other in ((a, b), (b, a))):
            # A struct cannot have fields of any name.
            return pa.string()
        shared = {name: _merged(a.fields[name], b.fields[name]) for name in a.fields if name in b.fields}
        return _Object({**a.fields, **b.fields, **shared}, _merged(a.others, b.others))
    if isinstance(a, _Array) and isinstance(b, _Array):
        return _Array(_merged(a.items, b.items))
    numbers = (pa.int64(), pa.float64())
    return pa.float64() if a in numbers and b in numbers else pa.string()


def _arrow(node: _Node, depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise SchemaError(f"its types are nested more than {_MAX_DEPTH} deep")
    if isinstance(node, _Object):
        if not node.fields:
            # Two levels deeper, because the values of a map are in the structs of its entries.
            return pa.map_(pa.string(), pa.field("value", _arrow(node.others, depth + 2)))
        return pa.struct([pa.field(name, _arrow(one, depth + 1)) for name, one in node.fields.items()])
    if isinstance(node, _Array):
        return pa.list_(pa.field("element", _arrow(node.items, depth + 1)))
    return pa.string() if node is None or node == _NULL else node
