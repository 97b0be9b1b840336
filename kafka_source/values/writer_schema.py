"""The schema of a column to write: given, found in the registry, or registered; the check that the column fits it.

The driver looks the schema up at the start of each batch, and tasks send no request to the registry. JSON needs no
schema, because a schema restricts values and does not change their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kafkagroup_native import AvroEncoder, JsonEncoder, ProtobufEncoder

from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import InvalidConfigurationError
from kafka_source.options import SinkOptions
from kafka_source.options.kinds import DecodedColumn, ValueFormat
from kafka_source.options.values import ColumnOptions
from kafka_source.values.derived_schema import avro_schema, json_schema
from kafka_source.values.json_fit import check_fit
from kafka_source.values.json_schema import SchemaError
from kafka_source.values.reader_schema import ProtobufMessage, described
from kafka_source.values.registry import RegisteredSchema, Unusable, registry_of


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema of a column that a sink writes.

    Attributes:
        format: The format of the values.
        text: The Avro or JSON Schema as JSON, or the text of a `.proto` file; empty: JSON values without a schema.
        id: Its id in the registry, which precedes each value; None: no id.
        protobuf: The message of the schema, if the values are Protobuf.
        column: The column.
        imports: The names and texts of the schemas to which a Protobuf or JSON Schema refers.
    """

    format: ValueFormat
    text: str
    id: int | None = None
    protobuf: ProtobufMessage | None = None
    column: DecodedColumn = "value"
    imports: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if self.id is not None:
            return f"schema {self.id}"
        if self.format == "json":
            return f"{self.column}.format=json"
        is_file = self.protobuf is not None and self.protobuf.descriptors is not None
        return f"the schema of option {self.column}.{'descriptor.file' if is_file else 'schema'}"

    def encoder(self) -> AvroEncoder | ProtobufEncoder | JsonEncoder:
        """Return an encoder of the native kernel.

        Raises:
            InvalidConfigurationError: The schema is not valid.
        """
        from kafkagroup_native import AvroEncoder, JsonEncoder, ProtobufEncoder

        message = self.protobuf
        try:
            if self.format == "json":
                return JsonEncoder(schema_id=self.id)
            if message is None:
                return AvroEncoder(self.text, schema_id=self.id)
            schema = self.text if message.descriptors is None else message.descriptors
            return ProtobufEncoder(schema, schema_id=self.id, imports=dict(self.imports), message=message.name)
        except ValueError as problem:
            raise _unfit(self, str(problem)) from None

    def check(self, column: pa.DataType) -> None:
        """Check that a column of this type can be written.

        Raises:
            InvalidConfigurationError: The column cannot be written (the error has the path), or the schema is invalid.
        """
        try:
            self.encoder().check(column)
            if self.format == "json" and self.text:
                check_fit(column, self.text, dict(self.imports))
        except SchemaError as problem:
            raise _unfit(self, str(problem)) from None
        except ValueError as problem:
            raise _unfit(self, f"{problem}. Change the column, or write with another schema or format") from None


def writer_schema(options: SinkOptions, column: ColumnOptions, kind: pa.DataType) -> WriterSchema:
    """Return the schema with which a column of a batch is written.

    Args:
        options: The options of the sink.
        column: The column's options, with a format that is encoded.
        kind: The type of the column.

    Raises:
        InvalidConfigurationError: The column does not fit the schema, or the registry lacks or refuses the schema.
        AuthenticationError: The registry refuses the credentials.
        RetriableError: The registry does not answer.
    """
    check_value_kernel(f"{column.column}.format={column.format}")
    given = _given(options, column, kind)
    if given is not None:
        # Check before the registration, which cannot be undone.
        given.check(kind)
        if column.framing == "none" or options.schema_registry_url is None:
            return given
    schema = _registered(options, column, given)
    schema.check(kind)
    return replace(schema, id=None) if column.framing == "none" else schema


def _given(options: SinkOptions, column: ColumnOptions, kind: pa.DataType) -> WriterSchema | None:
    """Return the schema from the options, or derived from the column's type; None: the registry must have it."""
    text, protobuf = column.schema, None
    if column.descriptor_file is not None:
        text, protobuf = "", described(column, column.descriptor_file)
    elif column.is_plain_json:
        text = ""
    elif text is None and options.auto_register_schemas and column.framing != "none":
        text = json_schema(kind) if column.format == "json" else avro_schema(kind)
    if text is None:
        return None
    if column.format == "protobuf" and protobuf is None:
        protobuf = ProtobufMessage(column.message_name)
    return WriterSchema(column.format, text, protobuf=protobuf, column=column.column)


def _registered(options: SinkOptions, column: ColumnOptions, given: WriterSchema | None) -> WriterSchema:
    """Return the registry's schema: that of the options' id, a given schema, or the newest of the subject."""
    registry, own, subject = registry_of(options.registry), column.column, _subject(options, column)
    found: RegisteredSchema | Unusable
    if given is not None:
        find = registry.register if options.auto_register_schemas else registry.id_of
        number = find(subject, given.text, given.format.upper())
        # Another node of the registry may get a new schema late, and `by_ids` waits for it.
        found = registry.by_ids([number])[number]
    elif column.schema_id is not None:
        found = registry.by_id(column.schema_id)
    else:
        advice = f"register one, set auto.register.schemas=true, or set {own}.subject, {own}.schema.id or {own}.schema"
        found = registry.newest(subject, advice, or_known=True)
    if isinstance(found, RegisteredSchema):
        found = found.check(column.format, writes=True)
    if isinstance(found, Unusable):
        raise InvalidConfigurationError(f"The column {own} cannot be written: {found.reason}.")
    protobuf = ProtobufMessage(column.message_name) if column.format == "protobuf" else None
    return WriterSchema(column.format, found.text, found.id, protobuf, own, found.imports)


def _subject(options: SinkOptions, column: ColumnOptions) -> str:
    return column.subject or f"{options.topic}-{column.column}"


def _unfit(schema: WriterSchema, problem: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"The column {schema.column} cannot be written with {schema}: {problem}.")
