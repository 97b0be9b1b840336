"""The columns of a DataFrame that make a Kafka record: Spark's rules and, where users may look for them, its words."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from kafka_source.errors import InvalidConfigurationError

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Where the parts of a record stand in a row; None: there is no such column.

    Attributes:
        value: Of every row, may be null (a tombstone).
        key: Null without one.
        topic: Only if the option `topic` is not set, which goes before it.
        partition: Where it is null the partitioner decides.
        headers: Of the record.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """Check a DataFrame's columns; those that are none of a record's are left out of it, as in Spark's own sink.

    Args:
        schema: Of the DataFrame.
        topic: The option `topic`.

    Raises:
        InvalidConfigurationError: A column is missing or has another type; names it and the types it may have.
    """
    found = {name: _position(schema, name) for name in _ALLOWED if name != "topic" or topic is None}
    if topic is None and found["topic"] is None:
        raise InvalidConfigurationError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    value = found["value"]
    if value is None:
        raise InvalidConfigurationError(
            f"Required attribute 'value' not found among the columns {', '.join(schema.fieldNames())}."
        )
    return SinkColumns(value, found["key"], found.get("topic"), found["partition"], found["headers"])


def _position(schema: StructType, name: str) -> int | None:
    position = next((i for i, field in enumerate(schema.fields) if field.name == name), None)
    if position is None:
        return None
    actual = schema.fields[position].dataType.simpleString()
    allowed = [kind.simpleString() for kind in _ALLOWED[name]]
    # Nullability is not part of the comparison, nor is the collation of a string.
    if actual.split(" collate ")[0] not in allowed:
        raise InvalidConfigurationError(
            f"{name} attribute unsupported type {actual}. {name} must be a(n) {' or '.join(allowed)}."
        )
    return position
