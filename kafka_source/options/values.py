"""The options that reads and sinks share for values and keys: format, framing, schema and registry."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which holds no mutable default.

from dataclasses import dataclass

from kafka_source.client_config import Settings
from kafka_source.options import kinds
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import Only, Where, option, option_of_key
from kafka_source.options.kinds import DecodedColumn, SchemaRules, ValueFormat, ValueFraming

REGISTRY_PREFIX = "schema.registry."
"""Options with this prefix are settings of the schema registry's client."""


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The options of the column `key` or `value`, whose names begin with the column's name.

    Attributes:
        column: The column. The other fields are those of `ValueOptions`.
    """

    column: DecodedColumn
    format: ValueFormat
    schema: str | None
    schema_id: int | None
    subject: str | None
    message_name: str | None
    descriptor_file: str | None
    framing: ValueFraming

    @property
    def is_decoded(self) -> bool:
        """Whether tasks decode the column from bytes, or encode it."""
        return self.format in kinds.DECODED_FORMATS

    @property
    def has_own_schema(self) -> bool:
        """Whether the options contain the schema itself."""
        return self.schema is not None or self.descriptor_file is not None

    @property
    def names_schemas(self) -> bool:
        """Whether each value names its schema, which the registry has."""
        return self.is_decoded and self.framing not in kinds.FRAMINGS_WITHOUT_REGISTRY

    @property
    def follows_subject(self) -> bool:
        """Whether the column has the newest schema of a subject, and each value has its own schema id."""
        return self.names_schemas and not self.has_own_schema and self.schema_id is None

    @property
    def is_plain_json(self) -> bool:
        """Whether the column is JSON without a frame."""
        return self.format == "json" and self.framing == "none"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValueOptions(CommonOptions):
    """Options for decoding the values and keys of a read, and for encoding the values and keys of a sink.

    Attributes:
        registry: All options with the prefix `schema.registry.`, without the prefix; `rules` is `schema.rules`.
    """

    registry: Settings = Settings({})

    value_format: ValueFormat = option(
        "value.format",
        kinds.VALUE_FORMAT,
        "The column `value`: the bytes, a `string` of UTF-8, or the fields of `avro`, `protobuf` or `json` values as "
        "a struct. A struct needs the package kafkagroup-native. A read decodes each Avro value by the schema with "
        "which the value was written. A sink needs no option for bytes and strings.",
        default="binary",
        where=Where.ALL,
    )
    value_schema: str | None = option(
        "value.schema",
        kinds.TEXT,
        "The column's schema: for `avro` JSON, for `protobuf` the text of a `.proto` file, for `json` a type in the "
        "syntax of `from_json` (`id bigint, tags array<string>`) or a JSON Schema. A read resolves Avro values of "
        "other schemas to this schema. A sink writes with this schema, which for `json` with a registry must be a "
        "JSON Schema. In a sink, the registry must have the schema, unless `auto.register.schemas` registers it.",
        default_text="the newest schema of `value.subject`",
        where=Where.ALL,
    )
    value_schema_id: int | None = option(
        "value.schema.id",
        kinds.SCHEMA_ID,
        "The id of the column's schema in the registry, even if the subject has a newer schema.",
        default_text="the newest schema of `value.subject`",
        where=Where.ALL,
    )
    value_subject: str | None = option(
        "value.subject",
        kinds.TEXT,
        "The column has the newest schema of this subject. `load()` or the start of a sink's batch looks the schema "
        "up. A read of Avro takes several subjects with commas; the column is then a struct with a [member for "
        "each](guides/schema-registry.md#several-types-in-one-topic). Required for several topics, and for a sink "
        "without the option `topic`, unless another option gives the schema.",
        default_text="the topic's name with `-value`",
        where=Where.ALL,
    )
    value_message_name: str | None = option(
        "value.message.name",
        kinds.TEXT,
        "With `protobuf`: the full name of the column's message, `shop.v1.Order`.",
        default_text="the first message of the schema",
        where=Where.ALL,
    )
    value_descriptor_file: str | None = option(
        "value.descriptor.file",
        kinds.TEXT,
        "With `protobuf`: a file of the driver with the schema, as `protoc --include_imports --descriptor_set_out` "
        "writes it; the default message is the first in its last `.proto` file. A sink takes the option only with "
        "`value.framing=none`.",
        where=Where.ALL,
    )
    value_framing: ValueFraming | None = option(
        "value.framing",
        kinds.VALUE_FRAMING,
        "The bytes before the datum, message or JSON. `confluent`: a zero byte and the schema's id in 4 bytes, as "
        "Confluent, Karapace and Redpanda write them; with Protobuf the message indexes too. `none`: no bytes; all "
        "values have the column's schema. Reads know [other framings](guides/schema-registry.md#framings).",
        default_text="`confluent`; for JSON `none` in a sink without registry or a read with `value.schema`",
        where=Where.ALL,
    )
    key_format: ValueFormat = option_of_key(value_format)
    key_schema: str | None = option_of_key(value_schema)
    key_schema_id: int | None = option_of_key(value_schema_id)
    key_subject: str | None = option_of_key(value_subject)
    key_message_name: str | None = option_of_key(value_message_name)
    key_descriptor_file: str | None = option_of_key(value_descriptor_file)
    key_framing: ValueFraming | None = option_of_key(value_framing)
    schema_registry_url: str | None = option(
        "schema.registry.url",
        kinds.TEXT,
        "The URL of the schema registry, or several URLs of one registry with commas. The registry must have "
        "Confluent's API (Confluent, Karapace, Redpanda, Apicurio below `/apis/ccompat/v7`). Other settings have "
        "Confluent's names; `schema.registry.ssl.…` takes the settings of `kafka.ssl.…`.",
        where=Where.ALL,
    )
    schema_rules: SchemaRules = option(
        "schema.rules",
        kinds.SCHEMA_RULES,
        "A schema may have rules that encrypt or transform values (Confluent's data contracts). kafkagroup applies no "
        "rules. `refuse`: an error if a schema has rules. `ignore`: read or write values without the rules.",
        default="refuse",
        where=Where.ALL,
        only=Only.FORMAT,
    )
    schema_registry_timeout_ms: int = option(
        "schema.registry.timeout.ms",
        kinds.COUNT,
        "How long `load()`, a task or the start of a write waits for an unreachable or overloaded registry. Known "
        "schemas need no registry.",
        default=60_000,
        units="ms",
        where=Where.ALL,
    )
    schema_registry_basic_auth_user_info: str | None = option(
        "schema.registry.basic.auth.user.info",
        kinds.TEXT,
        "User and password for the registry, as `user:password`. Never shown.",
        where=Where.ALL,
    )
    schema_registry_basic_auth_credentials_source: str | None = option(
        "schema.registry.basic.auth.credentials.source",
        kinds.TEXT,
        "`USER_INFO` or `URL`; accepted, and not needed.",
        where=Where.ALL,
    )
    schema_registry_bearer_auth_token: str | None = option(
        "schema.registry.bearer.auth.token",
        kinds.TEXT,
        "A token for the registry instead of user and password. Never shown.",
        where=Where.ALL,
    )
    schema_registry_bearer_auth_credentials_source: str | None = option(
        "schema.registry.bearer.auth.credentials.source",
        kinds.TEXT,
        "`STATIC_TOKEN`; accepted, and not needed.",
        where=Where.ALL,
    )
    schema_registry_bearer_auth_logical_cluster: str | None = option(
        "schema.registry.bearer.auth.logical.cluster",
        kinds.TEXT,
        "The registry's logical cluster in Confluent Cloud, with a token.",
        where=Where.ALL,
    )
    schema_registry_bearer_auth_identity_pool_id: str | None = option(
        "schema.registry.bearer.auth.identity.pool.id",
        kinds.TEXT,
        "The identity pool in Confluent Cloud, with a token.",
        where=Where.ALL,
    )

    def default_framing(self, value_format: ValueFormat, schema: str | None) -> ValueFraming:
        """Return a column's framing if its options do not name a framing."""
        return "none" if value_format == "json" and self.schema_registry_url is None else "confluent"

    @property
    def of_value(self) -> ColumnOptions:
        """The options of the column `value`."""
        return ColumnOptions(
            "value",
            self.value_format,
            self.value_schema,
            self.value_schema_id,
            self.value_subject,
            self.value_message_name,
            self.value_descriptor_file,
            self.value_framing or self.default_framing(self.value_format, self.value_schema),
        )

    @property
    def of_key(self) -> ColumnOptions:
        """The options of the column `key`."""
        return ColumnOptions(
            "key",
            self.key_format,
            self.key_schema,
            self.key_schema_id,
            self.key_subject,
            self.key_message_name,
            self.key_descriptor_file,
            self.key_framing or self.default_framing(self.key_format, self.key_schema),
        )

    @property
    def decoded(self) -> tuple[ColumnOptions, ...]:
        """The options of the columns that tasks decode from bytes, or encode."""
        return tuple(one for one in (self.of_value, self.of_key) if one.is_decoded)
