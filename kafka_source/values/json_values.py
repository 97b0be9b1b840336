"""Values of Arrow as JSON, for `peek` and exports."""

import base64
import json
import math
from datetime import date, time

import pyarrow as pa


def json_values(column: pa.Array) -> list[object]:
    """Return the values of a column as `json_value` does; most columns need no Arrow scalar for each value."""
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        return list(map(json_value, column))
    return list(map(_leaf, column.to_pylist()))


def json_value(value: pa.Scalar) -> object:
    """Return a value as JSON: bytes in base64, times in ISO 8601, other values that JSON lacks as text.

    Times beyond Python's calendar are numbers. NaN and infinities are the text that Spark and Protobuf use for them.
    """
    if value.is_valid:
        if isinstance(value, pa.StructScalar):
            return {field.name: json_value(value[index]) for index, field in enumerate(value.type)}
        if isinstance(value, pa.MapScalar):
            return {entry["key"].as_py(): json_value(entry["value"]) for entry in value.values}
        if isinstance(value, pa.ListScalar):
            return [json_value(item) for item in value.values]
    try:
        return _leaf(value.as_py())
    except OverflowError:
        number: int = value.value
        return number


def _leaf(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    return value.isoformat() if isinstance(value, date | time) else str(value)
