"""The schema of a column that is read: given in the options, named by an id, or the newest of a subject.

Protobuf values have numbered fields, so the schema names the columns. JSON values have named fields, from which a JSON
Schema or a given type of Spark selects the columns.

The driver fixes the schema when it loads a query, and tasks resolve all values to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kafkagroup_native import AvroDecoder, JsonDecoder, ProtobufDecoder

from kafka_source.client_config import Settings
from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import DEFAULT_DECODED_BYTES, DecodedColumn, ValueFormat
from kafka_source.options.value_rules import subjects_of
from kafka_source.options.values import ColumnOptions
from kafka_source.values.json_schema import SchemaError, json_schema_type
from kafka_source.values.record_types import union_of
from kafka_source.values.registry import RegisteredSchema, Unusable, registry_of


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """The parts of a Protobuf schema other than its text.

    Attributes:
        name: The full name of the message; None: the schema's first message.
        imports: The names and texts of the files that the schema imports.
        descriptors: A serialized `FileDescriptorSet` instead of a text.
    """

    name: str | None = None
    imports: tuple[tuple[str, str], ...] = ()
    descriptors: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """The schema of a column: an Avro schema, to which values are resolved, a Protobuf schema, or a type for JSON.

    Attributes:
        text: The Avro or JSON Schema as JSON (for several subjects the union of their records), the text of a `.proto`
            file, or a type for JSON values, as for Spark's `from_json`.
        id: Its id in the registry; None: the schema was given in the options, or belongs to several subjects.
        json: The type of the column, if the values are JSON.
        protobuf: The message of the schema, if the values are Protobuf.
        column: The column.
        newest: The subjects whose newest schemas are used, and the schemas' ids; empty: a schema or an id was given.
        recursive_depth: The depth to which a type may contain itself; 0: the inner type is a text of JSON.
    """

    text: str
    id: int | None = None
    json: pa.DataType | None = None
    protobuf: ProtobufMessage | None = None
    column: DecodedColumn = "value"
    newest: tuple[tuple[str, int], ...] = ()
    recursive_depth: int = 0

    def __str__(self) -> str:
        if len(self.newest) > 1:
            return f"schemas {', '.join(str(number) for _, number in self.newest)}"
        if self.protobuf is not None and self.protobuf.descriptors is not None:
            return f"the schema of option {self.column}.descriptor.file"
        return f"the schema of option {self.column}.schema" if self.id is None else f"schema {self.id}"

    @property
    def format(self) -> ValueFormat:
        """The format of the values."""
        return "json" if self.json is not None else "avro" if self.protobuf is None else "protobuf"

    def decoder(
        self, *, framing: str, wanted: pa.DataType | None = None, max_decoded_bytes: int = DEFAULT_DECODED_BYTES
    ) -> AvroDecoder | ProtobufDecoder | JsonDecoder:
        """Return a decoder of the native kernel.

        Args:
            framing: The bytes before a value.
            wanted: A type whose structs name the decoded fields, at any depth; None: all.
            max_decoded_bytes: The maximum size of a decoded record.

        Raises:
            InvalidConfigurationError: The schema is not valid, or cannot be a column.
        """
        from kafkagroup_native import AvroDecoder, JsonDecoder, ProtobufDecoder

        message = self.protobuf
        try:
            if self.json is not None:
                return JsonDecoder(
                    self.json if wanted is None else wanted,
                    framing=framing,
                    # Values of a type that the options give need no registry, also if they name schemas.
                    checks_ids=self.id is not None,
                    max_decoded_bytes=max_decoded_bytes,
                )
            if message is None:
                return AvroDecoder(
                    self.text,
                    wanted=wanted,
                    framing=framing,
                    recursive_depth=self.recursive_depth,
                    max_decoded_bytes=max_decoded_bytes,
                )
            return ProtobufDecoder(
                self.text if message.descriptors is None else message.descriptors,
                imports=dict(message.imports),
                message=message.name,
                wanted=wanted,
                framing=framing,
                recursive_depth=self.recursive_depth,
                max_decoded_bytes=max_decoded_bytes,
            )
        except ValueError as problem:
            raise InvalidConfigurationError(f"The column {self.column} cannot have {self}: {problem}.") from None

    def column_type(self, wanted: pa.DataType | None = None) -> pa.DataType:
        """Return the type of a column with the wanted fields; for `wanted` and errors see `decoder`."""
        if self.json is not None:
            return self.json
        return pa.field(self.decoder(framing="none", wanted=wanted)).type


def reader_schema(options: ReadOptions, column: ColumnOptions) -> ReaderSchema:
    """Return the current schema of a column; not for JSON values whose schema is given.

    Raises:
        InvalidConfigurationError: The kernel or the schema is missing, or a descriptor file cannot be read.
        AuthenticationError: The registry refuses the credentials.
        RetriableError: The registry does not answer.
    """
    return replace(_schema_of(options, column), recursive_depth=options.recursive_field_max_depth or 0)


def _schema_of(options: ReadOptions, column: ColumnOptions) -> ReaderSchema:
    name = column.column
    check_value_kernel(f"{name}.format={column.format}")
    message = ProtobufMessage(column.message_name) if column.format == "protobuf" else None
    if column.descriptor_file is not None:
        return ReaderSchema("", protobuf=described(column, column.descriptor_file), column=name)
    if column.schema is not None:
        return ReaderSchema(column.schema, protobuf=message, column=name)
    if column.schema_id is not None:
        return registered(options.registry, column.schema_id, column.message_name, name, value_format=column.format)
    subjects = subjects_of(options, column)
    if not subjects:
        raise OptionError(f"{name}.subject", None, f"the subject of the {name}s")
    advice = f"set {name}.subject, {name}.schema.id or {name}.schema"
    registry = registry_of(options.registry)
    readers = {
        subject: _usable(registry.newest(subject, advice), column.message_name, name, column.format)
        for subject in subjects
    }
    newest = tuple((subject, reader.id) for subject, reader in readers.items() if reader.id is not None)
    if len(readers) == 1:
        return replace(readers[subjects[0]], newest=newest)
    try:
        text = union_of({subject: reader.text for subject, reader in readers.items()})
    except ValueError as problem:
        raise InvalidConfigurationError(f"The column {name} cannot be of several subjects: {problem}.") from None
    return ReaderSchema(text, column=name, newest=newest)


def registered(
    registry: Settings,
    schema_id: int,
    message: str | None = None,
    column: DecodedColumn = "value",
    *,
    value_format: ValueFormat | None = None,
) -> ReaderSchema:
    """Return the schema with this id; raise the errors of `reader_schema`.

    Args:
        registry: The settings of the registry's client, without their prefix.
        schema_id: The id.
        message: The full name of the message of a Protobuf schema; None: its first message.
        column: The column that has the schema.
        value_format: The format that the schema must have; None: any.
    """
    return _usable(registry_of(registry).by_id(schema_id), message, column, value_format)


def _usable(
    found: RegisteredSchema | Unusable, message: str | None, column: DecodedColumn, value_format: ValueFormat | None
) -> ReaderSchema:
    if isinstance(found, RegisteredSchema):
        found = found.check(value_format or ("protobuf" if message is not None else found.kind))
    kind: pa.DataType | None = None
    if isinstance(found, RegisteredSchema) and found.kind == "JSON":
        try:
            kind = json_schema_type(found.text, dict(found.imports))
        except SchemaError as problem:
            found = Unusable(f"the JSON Schema with id {found.id} has no column type, because {problem}")
    if isinstance(found, Unusable):
        raise InvalidConfigurationError(f"The schema of the column {column} cannot be used: {found.reason}.")
    protobuf = ProtobufMessage(message, found.imports) if found.kind == "PROTOBUF" else None
    return ReaderSchema(found.text, found.id, kind, protobuf, column)


def described(column: ColumnOptions, path: str) -> ProtobufMessage:
    """Return the message that a column's descriptor file describes.

    Raises:
        InvalidConfigurationError: The file cannot be read.
    """
    try:
        return ProtobufMessage(column.message_name, descriptors=Path(path).read_bytes())
    except OSError as problem:
        option = f"{column.column}.descriptor.file"
        raise InvalidConfigurationError(
            f"The file of option {option}, {path}, cannot be read on the driver: {problem.strerror}."
        ) from None
