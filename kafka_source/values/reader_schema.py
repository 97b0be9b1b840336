"""The schema of the column `value`: given in the options, pinned by its id, or the newest of a subject.

JSON values name no schema, so theirs is always given, as a type of Spark.

It is fixed when a query is loaded, in the driver. The tasks resolve all values to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kafkagroup_native import AvroDecoder

from kafka_source.client_config import Settings
from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import ReadOptions
from kafka_source.options.validation import subject_of_topic
from kafka_source.values.registry import Unusable, registry_of


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """The schema that the column has: an Avro schema, to which values are resolved, or the type of JSON values.

    Attributes:
        text: The Avro schema as JSON, or the type of JSON values as Spark's `from_json` takes it.
        id: Its id in the registry; None: it was given in the options.
        json: The type of the column, if the values are JSON; None: they are Avro.
    """

    text: str
    id: int | None = None
    json: pa.DataType | None = None

    def __str__(self) -> str:
        return "the schema of option value.schema" if self.id is None else f"schema {self.id}"

    def decoder(self, *, framing: str, fields: Sequence[str] | None = None) -> AvroDecoder:
        """Return a decoder of the kernel for Avro values.

        Raises:
            InvalidConfigurationError: The schema is not valid, or cannot be a column.
        """
        from kafkagroup_native import AvroDecoder

        try:
            return AvroDecoder(self.text, fields=fields, framing=framing)
        except ValueError as problem:
            raise InvalidConfigurationError(f"The column value cannot have {self}: {problem}.") from None

    def column_type(self, fields: Sequence[str] | None = None) -> pa.DataType:
        """Return the type of a column with these fields of the record, or with all; raises as `decoder`."""
        if self.json is not None:
            return self.json
        decoder = self.decoder(framing="none", fields=fields)
        return pa.array(decoder.decode(pa.array([], pa.binary()))).type


def reader_schema(options: ReadOptions) -> ReaderSchema:
    """Return the Avro schema of the column `value`, as it is now.

    Raises:
        InvalidConfigurationError: The kernel is not installed, or the registry does not have the schema.
        AuthenticationError: The registry refuses the credentials.
        RetriableError: The registry does not answer.
    """
    check_value_kernel()
    if options.value_schema is not None:
        return ReaderSchema(options.value_schema)
    if options.value_schema_id is not None:
        return registered(options.registry, options.value_schema_id)
    subject = options.value_subject or subject_of_topic(options)
    if subject is None:
        raise OptionError("value.subject", None, "the subject of the values")
    newest = registry_of(options.registry).newest(subject)
    return ReaderSchema(newest.text, newest.id)


def registered(registry: Settings, schema_id: int) -> ReaderSchema:
    """Return the schema with this id; raises as `reader_schema`."""
    found = registry_of(registry).by_id(schema_id)
    if isinstance(found, Unusable):
        raise InvalidConfigurationError(f"The schema of the column value cannot be used: {found.reason}.")
    return ReaderSchema(found, schema_id)
