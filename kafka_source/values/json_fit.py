"""Check whether values of a column can be valid by a JSON Schema.

Only types, properties and items are compared, not keywords about single values (`pattern`, `enum`, `not`, …). Empty
arrays, empty maps and nulls fit more schemas than other values, so they are ignored.
"""

from collections.abc import Mapping

import pyarrow as pa

from kafka_source.values.derived_schema import JSON_TYPES
from kafka_source.values.json_schema import MAX_PARTS, Documents, Json, SchemaError, list_of, string_type

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
# PySpark has these names, too, but this module works without PySpark.
_NAMES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "null": "void",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}


class UnfitError(ValueError):
    """No value of a column is valid.

    Args:
        path: The names of the fields that lead to the part at fault.
        has: The type of this part of the column.
        allows: The types that the schema allows for this part.
    """

    def __init__(self, path: tuple[str, ...], has: str, allows: str) -> None:
        self.path, self.has, self.allows = path, has, allows
        where = f"field {'.'.join(path)}: ".replace(".[]", "[]").replace(".{}", "{}") if path else ""
        super().__init__(f"{where}the column {has}, and the schema allows {allows}")


def check_fit(kind: pa.DataType, text: str, imports: Mapping[str, str]) -> None:
    """Check that a column of this type, which can be written as JSON, can have valid values.

    Args:
        kind: The type.
        text: The schema.
        imports: The schemas to which `text` refers, by the names of the references.

    Raises:
        UnfitError: No value can be valid.
        SchemaError: The text is no schema.
    """
    documents = Documents(text, imports)
    try:
        _Fit(documents).check(kind, documents.root, "", ())
    except RecursionError:
        # Parts that are nested this deeply are not checked.
        return


class _Fit:
    def __init__(self, documents: Documents) -> None:
        self._documents, self._parts = documents, 0

    def check(
        self, kind: pa.DataType, schema: Json, document: str, path: tuple[str, ...], within: tuple[str, ...] = ()
    ) -> None:
        """Check a part of the column.

        Args:
            kind: Its type.
            schema: The corresponding part of the schema.
            document: The name of the document that contains `schema`.
            path: The names of the fields that lead to this part.
            within: The references that led to this part of the schema.
        """
        self._parts += 1
        if schema is False:
            raise UnfitError(path, _has(kind), "no value there")
        if not isinstance(schema, dict) or self._parts > MAX_PARTS:
            return
        if "$ref" in schema:
            # Keywords beside a reference are ignored, as in JSON Schema before 2019-09.
            try:
                part, name, place = self._documents.find(str(schema["$ref"]), document)
            except SchemaError:
                return
            if place not in within:
                self.check(kind, part, name, path, (*within, place))
            return
        for one in list_of(schema.get("allOf")):
            self.check(kind, one, document, path, within)
        for name in ("oneOf", "anyOf"):
            branches = list_of(schema.get(name))
            faults = [fault for one in branches if (fault := self._fault(kind, one, document, path, within))]
            if faults and len(faults) == len(branches):
                # The deepest fault is in the branch for which the column is meant.
                meant = max(faults, key=lambda fault: len(fault.path))
                allows = dict.fromkeys(fault.allows for fault in faults if fault.path == meant.path)
                raise UnfitError(meant.path, meant.has, " or ".join(allows))
        self._check_own(kind, schema, document, path)

    def _fault(
        self, kind: pa.DataType, schema: Json, document: str, path: tuple[str, ...], within: tuple[str, ...]
    ) -> UnfitError | None:
        try:
            self.check(kind, schema, document, path, within)
        except UnfitError as fault:
            return fault
        return None

    def _check_own(self, kind: pa.DataType, schema: Mapping[str, Json], document: str, path: tuple[str, ...]) -> None:
        written, types = _written(kind), schema.get("type")
        allowed = [types] if isinstance(types, str) else list_of(types)
        fitting = ("integer", "number") if written == "integer" else (written,)
        # Unknown types are not checked.
        if allowed and all(one in _TYPES for one in allowed) and not any(one in fitting for one in allowed):
            raise UnfitError(path, _has(kind), " or ".join(map(str, allowed)))
        if written == "string" and kind != pa.string() and string_type(schema) not in (pa.string(), kind):
            raise UnfitError(path, _has(kind), f"a string with a {_name(string_type(schema))}")
        if written == "object":
            self._check_object(kind, schema, document, path)
        items = schema.get("items")
        if written == "array" and "prefixItems" not in schema and not isinstance(items, list):
            self.check(kind.value_type, items, document, (*path, "[]"))

    def _check_object(
        self, kind: pa.DataType, schema: Mapping[str, Json], document: str, path: tuple[str, ...]
    ) -> None:
        named = schema.get("properties")
        properties = named if isinstance(named, dict) else {}
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        if pa.types.is_map(kind):
            if not properties:
                self.check(kind.item_type, others, document, (*path, "{}"))
            return
        # A field that is always null is left out.
        fields = {field.name: field.type for field in kind if not pa.types.is_null(field.type)}
        for name, field in fields.items():
            self.check(field, properties.get(name, others), document, (*path, name))
        for required in list_of(schema.get("required")):
            if str(required) not in fields:
                raise UnfitError((*path, str(required)), "does not have it", "no value without it")


def _written(kind: pa.DataType) -> object:
    """Return the JSON type of a column's written values."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "object"
    if pa.types.is_list(kind):
        return "array"
    if pa.types.is_decimal(kind):
        return "number" if kind.scale > 0 else "integer"
    return JSON_TYPES[kind]["type"]


def _has(kind: pa.DataType) -> str:
    return f"has {_name(kind)}"


def _name(kind: pa.DataType) -> str:
    """Return Spark's name of a type, without the types of its fields or items."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    nested = ((pa.types.is_struct, "struct"), (pa.types.is_map, "map"), (pa.types.is_list, "array"))
    return next((name for is_one, name in nested if is_one(kind)), _NAMES.get(str(kind), str(kind)))
