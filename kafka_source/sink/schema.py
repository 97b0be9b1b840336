"""Find the columns of a DataFrame that make a Kafka record, by the rules of Spark's own Kafka sink.

Error texts are Spark's where users may search for them.
"""

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
    """The position of each part of a record in a row; None if there is no such column.

    Attributes:
        value: The column `value`; a null is a tombstone.
        key: The column `key`.
        topic: The column `topic`; None if the option `topic` is set, which takes precedence.
        partition: The column `partition`; for a null the partitioner chooses.
        headers: The column `headers`.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """Find and check a DataFrame's columns. Other columns are ignored, as in Spark's own sink.

    Args:
        schema: The DataFrame's schema.
        topic: The option `topic`.

    Raises:
        InvalidConfigurationError: A column is missing or has a wrong type; names it and its allowed types.
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
    # Compare neither nullability, nor the collation of a string, nor the case of the names in a header, as Spark does.
    if actual.split(" collate ")[0].lower() not in allowed:
        raise InvalidConfigurationError(
            f"{name} attribute unsupported type {actual}. {name} must be a(n) {' or '.join(allowed)}."
        )
    return position
