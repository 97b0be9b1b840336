"""Messages of librdkafka as the columns of an Arrow record batch."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from kafka_source.errors import UnreadableRecordError
from kafka_source.fetch.engine import conform
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.record_columns import Column


class Rows:
    """The messages of the next record batch.

    Args:
        columns: The columns of the batch, in order.
    """

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._schema = arrow_schema(columns)
        self.bytes = 0
        self.since = time.monotonic()
        self._messages: list[Message] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message) -> None:
        """Add a message, whose value counts to `bytes`."""
        self._messages.append(message)
        self.bytes += len(message)

    def drain(self) -> pa.RecordBatch:
        """Return the record batch and begin the next.

        Raises:
            UnreadableRecordError: A column is asked for as text, and a message has none; or a message has a timestamp
                that Spark's type does not take.
            InvalidConfigurationError: See `conform`.
        """
        messages, self._messages, self.bytes = self._messages, [], 0
        self.since = time.monotonic()
        arrays = [_array(column, field, messages) for column, field in zip(self._columns, self._schema, strict=True)]
        nullable = pa.schema([field.with_nullable(True) for field in self._schema])
        return conform(pa.RecordBatch.from_arrays(arrays, schema=nullable), self._schema)


def _array(column: Column, field: pa.Field, messages: list[Message]) -> pa.Array:
    match column.name:
        case "key":
            return _bytes(column, messages, [m.key() for m in messages])
        case "value":
            return _bytes(column, messages, [m.value() for m in messages])
        case "topic":
            return pa.array([m.topic() for m in messages], field.type)
        case "partition":
            return pa.array([m.partition() for m in messages], field.type)
        case "offset":
            return pa.array([m.offset() for m in messages], field.type)
        case "timestamp":
            return _times(messages).cast(field.type)
        case "timestampType":
            # librdkafka says 0 for none, 1 for create time, 2 for log-append time; Spark says -1, 0 and 1.
            return pa.array([m.timestamp()[0] - 1 for m in messages], field.type)
        case "headers":
            return pa.array([_headers(m) for m in messages], field.type)
    raise AssertionError(column.name)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return None if headers is None else [{"key": key, "value": value} for key, value in list(headers)]


def _times(messages: list[Message]) -> pa.Array:
    """Return the timestamps in microseconds."""
    times = [m.timestamp()[1] * 1000 for m in messages]
    try:
        return pa.array(times, pa.int64())
    except OverflowError:
        message = next(m for m, at in zip(messages, times, strict=True) if not -(1 << 63) <= at < 1 << 63)
    raise _unreadable(message, "the timestamp is too large for microseconds; do not request the column timestamp")


def _bytes(column: Column, messages: list[Message], values: list[Any]) -> pa.Array:
    array = pa.array(values, pa.binary())
    if not column.text:
        return array
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    for message, value in zip(messages, values, strict=True):
        try:
            value is None or value.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"the {column.name} is no UTF-8 text ({error.reason}); ask for `{column.name} binary`"
            raise _unreadable(message, reason) from None
    raise AssertionError("Arrow refused text that Python takes")


def _unreadable(message: Message, reason: str) -> UnreadableRecordError:
    return UnreadableRecordError(
        topic=message.topic() or "", partition=message.partition() or 0, offset=message.offset() or 0, reason=reason
    )
