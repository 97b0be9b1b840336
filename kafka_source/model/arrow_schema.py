"""The Arrow type of each column of a Kafka record, and arrays of another type (`Retyped`); `schema` has Spark's types.

`record_columns` has no Arrow types, because some of Spark's processes need only names, and Arrow's import takes 150 ms.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from kafka_source.model.record_columns import TEXT_COLUMNS, Column

_ARROW: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "replica": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}


class SupportsArrowArray(Protocol):
    """An object that exports an Arrow array (Arrow PyCapsule interface)."""

    def __arrow_c_array__(self) -> tuple[object, object]: ...


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a Python data source with these columns."""
    return pa.schema([_field(column) for column in columns])


class Retyped:
    """An Arrow array with another type of the same layout, for example with other nullability; `pa.array` takes it.

    Args:
        array: An array, or an object that exports an array.
        kind: The other type.
    """

    def __init__(self, array: SupportsArrowArray, kind: pa.DataType) -> None:
        self._array, self._kind = array, kind

    def __arrow_c_array__(self, _: object = None) -> tuple[object, object]:
        """Export the array (Arrow PyCapsule interface)."""
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _field(column: Column) -> pa.Field:
    if column.made is not None:
        return pa.field(column.name, column.made, nullable=column.nullable)
    if column.name in TEXT_COLUMNS:
        return pa.field(column.name, pa.string() if column.text else pa.binary(), nullable=column.nullable)
    return pa.field(column.name, _ARROW[column.name], nullable=column.nullable)
