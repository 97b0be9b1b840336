"""The schema with which a sink writes its values: given, known to the registry by its id or subject, or registered.

It is looked up in the driver, at the start of each batch. The tasks do not ask the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kafkagroup_native import AvroEncoder

from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import InvalidConfigurationError
from kafka_source.options import SinkOptions
from kafka_source.values.derived_schema import derived_schema
from kafka_source.values.registry import Unusable, registry_of


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The Avro schema of the values that a sink writes.

    Attributes:
        text: The schema as JSON.
        id: Its id in the registry, which precedes each value; None: nothing does.
    """

    text: str
    id: int | None = None

    def __str__(self) -> str:
        return "the schema of option value.schema" if self.id is None else f"schema {self.id}"

    def encoder(self) -> AvroEncoder:
        """Return an encoder of the kernel.

        Raises:
            InvalidConfigurationError: The schema is not valid.
        """
        from kafkagroup_native import AvroEncoder

        try:
            return AvroEncoder(self.text, schema_id=self.id)
        except ValueError as problem:
            raise _unfit(str(self), problem) from None


def writer_schema(options: SinkOptions, column: pa.DataType) -> WriterSchema:
    """Return the schema of the values of a batch.

    Args:
        options: The options of the sink, with `value.format=avro`.
        column: The type of the column `value`.

    Raises:
        InvalidConfigurationError: The column does not fit the schema; the registry does not have it, or refuses it.
        AuthenticationError: The registry refuses the credentials.
        RetriableError: The registry does not answer.
    """
    check_value_kernel()
    text = options.value_schema
    if text is None and options.auto_register_schemas:
        text = derived_schema(column)
    if text is not None:
        # Before it is registered, which cannot be undone.
        _check(WriterSchema(text), column, "the schema of option value.schema" if options.value_schema else "it")
        return WriterSchema(text, _id_of(options, text))
    found = _known(options)
    _check(found, column, str(found))
    return found if options.value_framing == "confluent" else WriterSchema(found.text)


def _id_of(options: SinkOptions, text: str) -> int | None:
    """Return the id of the schema of `value.schema`, or of the column."""
    if options.value_framing == "none":
        return None
    registry, subject = registry_of(options.registry), _subject(options)
    return registry.register(subject, text) if options.auto_register_schemas else registry.id_of(subject, text)


def _known(options: SinkOptions) -> WriterSchema:
    """Return the schema that the registry has."""
    registry, number = registry_of(options.registry), options.value_schema_id
    if number is None:
        advice = "register one, set auto.register.schemas=true, or set value.subject, value.schema.id or value.schema"
        newest = registry.newest(_subject(options), advice, or_known=True)
        found = newest.check_kind("avro")
    else:
        by_id = registry.by_id(number)
        found = by_id if isinstance(by_id, Unusable) else by_id.check_kind("avro")
    if isinstance(found, Unusable):
        raise InvalidConfigurationError(f"The column value cannot be written: {found.reason}.")
    return WriterSchema(found.text, found.id)


def _subject(options: SinkOptions) -> str:
    return options.value_subject or f"{options.topic}-value"


def _check(schema: WriterSchema, column: pa.DataType, name: str) -> None:
    try:
        schema.encoder().check(column)
    except ValueError as problem:
        raise _unfit(name, problem) from None


def _unfit(name: str, problem: ValueError) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"The column value cannot be written with {name}: {problem}.")
