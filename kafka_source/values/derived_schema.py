"""The schema derived from a column to write: Avro, as Spark's `SchemaConverters.toAvroType` makes it, or JSON Schema.

Protobuf schemas are not derived, because their field numbers must stay the same, and a column has no field numbers.
"""

import json
import re

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError

_TOP = "topLevelRecord"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_Json = str | list[object] | dict[str, object]

_SIMPLE: dict[pa.DataType, _Json] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}


JSON_TYPES: dict[pa.DataType, dict[str, object]] = {
    pa.null(): {"type": "null"},
    pa.bool_(): {"type": "boolean"},
    **{kind: {"type": "integer"} for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: {"type": "number"} for kind in (pa.float32(), pa.float64())},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "string", "contentEncoding": "base64"},
    pa.date32(): {"type": "string", "format": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "string", "format": "date-time"},
    # A date-time has an offset from UTC.
    pa.timestamp("us"): {"type": "string"},
}


def avro_schema(kind: pa.DataType) -> str:
    """Return the Avro schema of a column of this type, as JSON.

    Args:
        kind: The type; its timestamps must be in UTC.

    Raises:
        InvalidConfigurationError: Avro has no such type, or refuses the name of a field; the error names the path.
    """
    return json.dumps(_type_of(kind, False, _TOP, "", ""))


def _type_of(kind: pa.DataType, nullable: bool, name: str, namespace: str, path: str) -> _Json:
    """Return the type of a column.

    Args:
        kind: Its Arrow type.
        nullable: Whether it may be null.
        name: The name of the field, which is also a record's name.
        namespace: The names of the records around the column.
        path: The column's place, for errors.
    """
    made = _not_null(kind, name, namespace, path)
    return [made, "null"] if nullable and made != "null" else made


def _not_null(kind: pa.DataType, name: str, namespace: str, path: str) -> _Json:
    full = f"{namespace}.{name}" if namespace else name
    if pa.types.is_struct(kind):
        fields = []
        for field in kind:
            inside = f"{path}.{field.name}" if path else field.name
            if not _NAME.fullmatch(field.name):
                raise _refused(inside, "Avro's names have letters, digits and underscores; give it another name")
            fields.append({"name": field.name, "type": _type_of(field.type, field.nullable, field.name, full, inside)})
        record: dict[str, object] = {"type": "record", "name": name}
        return record | ({"namespace": namespace} if namespace else {}) | {"fields": fields}
    if pa.types.is_list(kind):
        item = kind.value_field
        return {"type": "array", "items": _type_of(item.type, item.nullable, name, namespace, f"{path}[]")}
    if pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise _refused(path, "the keys of a map must be strings in Avro")
        item = kind.item_field
        return {"type": "map", "values": _type_of(item.type, item.nullable, name, namespace, f"{path}{{}}")}
    if pa.types.is_decimal(kind):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": full,
            "size": _bytes_of(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if kind not in _SIMPLE:
        raise _refused(path, f"there is no Avro type for {kind}")
    return _SIMPLE[kind]


def _bytes_of(precision: int) -> int:
    """Return the number of bytes that can hold any decimal with this number of digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def json_schema(kind: pa.DataType) -> str:
    """Return the JSON Schema for a column of this type, whose values are written as JSON.

    An object allows no other properties; otherwise, registries refuse a new optional property as incompatible.

    Raises:
        InvalidConfigurationError: JSON has no such type; the error names the path.
    """
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **_json_type(kind, "")})


def _json_type(kind: pa.DataType, path: str) -> dict[str, object]:
    if pa.types.is_struct(kind):
        properties = {f.name: _json_type(f.type, f"{path}.{f.name}" if path else f.name) for f in kind}
        # A null is omitted.
        required = [field.name for field in kind if not field.nullable]
        closed: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
        return closed | ({"required": required} if required else {})
    if pa.types.is_list(kind):
        return {"type": "array", "items": _or_null(kind.value_field, f"{path}[]")}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _or_null(kind.item_field, f"{path}{{}}")}
    if pa.types.is_decimal(kind):
        return {"type": "number"}
    if kind not in JSON_TYPES:
        raise _refused(path, f"there is no JSON type for {kind}")
    return JSON_TYPES[kind]


def _or_null(field: pa.Field, path: str) -> dict[str, object]:
    made = _json_type(field.type, path)
    return {"oneOf": [{"type": "null"}, made]} if field.nullable else made


def _refused(path: str, why: str) -> InvalidConfigurationError:
    place = f"Field {path} of the column" if path else "The column"
    return InvalidConfigurationError(f"{place} has no schema: {why}.")
