"""Rules (`combinations`) about decoded and encoded columns: formats, framings, schemas, registry, dead letters."""

from collections.abc import Collection, Mapping, Sequence

from kafka_source.client_config import HIDDEN
from kafka_source.errors import OptionError
from kafka_source.model.record_columns import COLUMN_TYPES
from kafka_source.options.catalog import ReadOptions, SinkOptions
from kafka_source.options.combinations import Table
from kafka_source.options.declaration import Where, declared_in
from kafka_source.options.kinds import DECODED_FORMATS, FRAMINGS_OF, FRAMINGS_OF_SINKS
from kafka_source.options.values import REGISTRY_PREFIX, ColumnOptions, ValueOptions

DECODING = Table[ReadOptions](Where.STREAM)
ENCODING = Table[SinkOptions](Where.SINK)

_SOURCES = ("schema", "schema.id", "subject", "descriptor.file")
_OF_PROTOBUF = ("message.name", "descriptor.file")


_URL = {"schema.registry.url": "http://registry:8081"}
_AVRO, _JSON, _PROTOBUF = ({**_URL, "value.format": one} for one in ("avro", "json", "protobuf"))
_OWN_SCHEMA = {"value.format": "avro", "value.framing": "none", "value.schema": '"long"'}
_TOPICS = {"subscribe": "orders,returns"}
_TOPIC = {"topic": "orders"}


@DECODING.refuses({"deadletter.topic": "bad"}, {**_AVRO, "mode": "PERMISSIVE", "deadletter.topic": "orders"})
def _check_dead_letters(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    topic = options.deadletter_topic
    if topic is None:
        return
    if not options.goes_on_after_bad_values:
        missing = "mode to PERMISSIVE or DROPMALFORMED" if options.decoded else "value.format to avro, protobuf or json"
        problem = (
            f"Option deadletter.topic is for bad values that do not end the query: set {missing}, or remove the option"
        )
        raise OptionError("deadletter.topic", topic, problem=problem)
    if topic in (options.subscribe or options.assign or ()):
        raise OptionError("deadletter.topic", topic, "a topic that the query does not read")


@DECODING.refuses(
    {"value.subject": "orders-value"},
    {**_AVRO, "value.message.name": "shop.v1.Order"},
    {**_AVRO, "value.schema.id": "1", "value.subject": "orders-value"},
    {**_JSON, "value.framing": "single-object"},
    {"value.format": "json"},
    {**_PROTOBUF, "value.subject": "orders-value,returns-value"},
    {**_AVRO, **_TOPICS},
)
def _check_columns(options: ReadOptions, _where: Where, given: Mapping[str, str]) -> None:
    names = {name.lower() for name in given}
    for column in (options.of_value, options.of_key):
        _refuse_unused(column, names, f"{column.column}.")
        if column.is_decoded:
            _check_reader_schema(options, column, names)


@DECODING.refuses(_URL, {"value.format": "avro"}, {**_URL, **_OWN_SCHEMA})
def _check_registry_of_read(options: ReadOptions, _where: Where, given: Mapping[str, str]) -> None:
    columns = (options.of_value, options.of_key)
    # With a given schema, the ids of JSON values are not looked up.
    asking = [one for one in columns if one.is_decoded and not one.has_own_schema]
    asking += [one for one in columns if one.names_schemas and one.format != "json"]
    _check_registry(options, asking, {name.lower() for name in given})


@DECODING.refuses({**_AVRO, "value.schema.id": "1", "avroSchemaEvolutionMode": "restart"})
def _check_evolution(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.avro_schema_evolution_mode == "restart" and not any(one.follows_subject for one in options.decoded):
        problem = (
            "Remove avroSchemaEvolutionMode: no column has the newest schema of a subject, which this option needs"
        )
        raise OptionError("avroSchemaEvolutionMode", "restart", problem=problem)


@DECODING.refuses({"value.format": "string", "mode": "PERMISSIVE"})
def _check_mode(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    """Refuse a mode other than FAILFAST with a column of strings, to which only FAILFAST applies."""
    texts = [one.column for one in (options.of_value, options.of_key) if one.format == "string"]
    if texts and options.mode != "FAILFAST":
        problem = (
            f"Option mode={options.mode} does not apply to the column {texts[0]}, where a string that is not UTF-8 "
            f"ends the query: remove {texts[0]}.format, and cast the bytes to a string"
        )
        raise OptionError("mode", options.mode, problem=problem)


@DECODING.refuses({**_JSON, "recursiveFieldMaxDepth": "2"})
def _check_recursion(options: ReadOptions, _where: Where, _given: Mapping[str, str]) -> None:
    if options.recursive_field_max_depth is not None and all(one.format == "json" for one in options.decoded):
        problem = "Remove recursiveFieldMaxDepth: it is for values and keys of Avro and Protobuf"
        raise OptionError("recursiveFieldMaxDepth", str(options.recursive_field_max_depth), problem=problem)


@DECODING.refuses(
    {**_AVRO, "columnNameOfCorruptRecord": "bad"}, {**_AVRO, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "value"}
)
def _check_corrupt_column(options: ReadOptions, _where: Where, given: Mapping[str, str]) -> None:
    if not options.decoded:
        return
    name, takes = options.column_name_of_corrupt_record, "a value only with mode=PERMISSIVE"
    if options.mode != "PERMISSIVE" and "columnnameofcorruptrecord" in {one.lower() for one in given}:
        raise OptionError("columnNameOfCorruptRecord", name, takes)
    # Names that differ only in case are equal to Spark.
    if name.lower() in map(str.lower, COLUMN_TYPES):
        raise OptionError("columnNameOfCorruptRecord", name, f"a name other than {', '.join(COLUMN_TYPES)}")


def _refuse_unused(column: ColumnOptions, names: Collection[str], prefix: str) -> None:
    """Refuse options that the column's format does not have.

    Args:
        column: The column.
        names: The options that are given, in lower case.
        prefix: The prefix of the options to check, which belong to the column or to the registry.
    """
    own = column.column
    for option in declared_in(ValueOptions).values():
        name, what = option.name.lower(), option.name.lower().removeprefix(f"{own}.")
        if name not in names or not name.startswith(prefix) or what == "format":
            continue
        if column.is_decoded and column.format != "protobuf" and what in _OF_PROTOBUF:
            problem = f"Option {option.name} is for Protobuf {own}s: set {own}.format to protobuf, or remove the option"
        elif not column.is_decoded:
            words = " or ".join(DECODED_FORMATS)
            problem = (
                f"Option {option.name} is for {own}s with a schema: set {own}.format to {words}, or remove the option"
            )
        else:
            continue
        raise OptionError(option.name, HIDDEN, problem=problem)


def _check_reader_schema(options: ReadOptions, column: ColumnOptions, names: Collection[str]) -> None:
    own = f"{column.column}."
    sources = [own + one for one in _SOURCES if own + one in names]
    if len(sources) > 1:
        problem = f"Keep one of the options {' and '.join(sources)}: each says which schema the column {own[:-1]} has"
        raise OptionError(sources[-1], None, problem=problem)
    framings = FRAMINGS_OF.get(column.format, (column.framing,))
    if column.framing not in framings:
        raise OptionError(f"{own}framing", column.framing, f"{', '.join(framings)} with {own}format={column.format}")
    if column.format == "json" and column.schema is None and options.schema_registry_url is None:
        takes = (
            f"the columns of the JSON {own[:-1]}s, as in `id bigint, tags array<string>`, or set schema.registry.url"
        )
        raise OptionError(f"{own}schema", None, f"{takes}, where a JSON Schema has them")
    if column.format != "avro" and column.subject is not None and len(subjects_of(options, column)) > 1:
        raise OptionError(f"{own}subject", column.subject, f"one subject with {own}format={column.format}")
    if not sources and not subjects_of(options, column):
        problem = f"Set {own}subject, {own}schema.id or {own}schema: several topics may have several subjects"
        raise OptionError(f"{own}subject", None, problem=problem)


@ENCODING.refuses(
    {**_TOPIC, "value.subject": "orders-value"},
    {**_TOPIC, **_AVRO, "value.framing": "glue"},
    {**_TOPIC, "value.format": "json", "value.schema.id": "1"},
    {**_TOPIC, **_AVRO, "value.schema.id": "1", "value.subject": "orders-value"},
    {**_TOPIC, **_PROTOBUF, "value.descriptor.file": "shop.desc"},
    {
        **_TOPIC,
        "value.format": "protobuf",
        "value.framing": "none",
        "value.descriptor.file": "shop.desc",
        "value.schema": 'syntax = "proto3";',
    },
    {**_TOPIC, **_PROTOBUF, "auto.register.schemas": "true"},
    _AVRO,
)
def _check_columns_of_sink(options: SinkOptions, _where: Where, given: Mapping[str, str]) -> None:
    names = {name.lower() for name in given}
    for column in (options.of_value, options.of_key):
        _refuse_unused(column, names, f"{column.column}.")
        if column.is_decoded and column.framing not in FRAMINGS_OF_SINKS:
            takes = f"{' or '.join(FRAMINGS_OF_SINKS)} in a sink"
            raise OptionError(f"{column.column}.framing", column.framing, takes)
        if column.is_plain_json:
            _check_plain_json(column, names)
        elif column.is_decoded:
            _check_writer_schema(options, column, names)


@ENCODING.refuses(
    {**_TOPIC, "auto.register.schemas": "true"}, {**_TOPIC, **_URL, **_OWN_SCHEMA}, {**_TOPIC, "value.format": "avro"}
)
def _check_registry_of_sink(options: SinkOptions, _where: Where, given: Mapping[str, str]) -> None:
    columns = [one for one in (options.of_value, options.of_key) if one.is_decoded and not one.is_plain_json]
    with_id = [one for one in columns if one.names_schemas]
    if options.auto_register_schemas and not with_id:
        problem = (
            "Remove auto.register.schemas: no column is written with a schema id. A schema id needs value.format or "
            "key.format, schema.registry.url, and a framing other than none"
        )
        raise OptionError("auto.register.schemas", "true", problem=problem)
    unframed = [one for one in columns if not one.has_own_schema]
    _check_registry(options, [*with_id, *unframed], {name.lower() for name in given})


def _check_plain_json(column: ColumnOptions, names: Collection[str]) -> None:
    own = column.column
    if found := [name for name in (f"{own}.{one}" for one in _SOURCES) if name in names]:
        how = f"set schema.registry.url without {own}.framing=none, or remove {found[0]}"
        problem = f"JSON {own}s without a schema id have no schema: {how}"
        raise OptionError(found[0], HIDDEN, problem=problem)


def _check_writer_schema(options: SinkOptions, column: ColumnOptions, names: Collection[str]) -> None:
    own, file = column.column, column.descriptor_file
    others = [one for one in (f"{own}.schema", f"{own}.subject", "auto.register.schemas") if one in names]
    if column.schema_id is not None and others:
        problem = f"Keep one of the options {own}.schema.id and {others[0]}: the id says which schema the {own}s have"
        raise OptionError(f"{own}.schema.id", str(column.schema_id), problem=problem)
    sources = [one for one in (f"{own}.schema", f"{own}.schema.id", f"{own}.subject") if one in names]
    if file is not None and column.framing != "none":
        problem = (
            f"Set {own}.schema to the text of the .proto file instead of {own}.descriptor.file, which a registry does "
            f"not take, or set {own}.framing=none"
        )
        raise OptionError(f"{own}.descriptor.file", file, problem=problem)
    if file is not None and sources:
        problem = (
            f"Keep one of the options {own}.descriptor.file and {sources[0]}: each says which schema the {own}s have"
        )
        raise OptionError(f"{own}.descriptor.file", file, problem=problem)
    if column.framing == "none" and column.has_own_schema:
        return
    if options.auto_register_schemas and column.format == "protobuf" and column.schema is None:
        problem = (
            f"Set {own}.schema to the text of a .proto file, or remove auto.register.schemas: the numbers of fields "
            "must stay the same, and a column has no field numbers"
        )
        raise OptionError(f"{own}.schema", None, problem=problem)
    has_subject = column.subject is not None or options.topic is not None
    if column.schema_id is None and options.schema_registry_url is not None and not has_subject:
        problem = f"Set {own}.subject or {own}.schema.id: without the option topic, rows may go to several topics"
        raise OptionError(f"{own}.subject", None, problem=problem)


def _check_registry(options: ValueOptions, asking: Sequence[ColumnOptions], names: Collection[str]) -> None:
    """Check that the options name the registry if and only if a column needs it.

    Args:
        options: The options.
        asking: The columns that need the registry.
        names: The options that are given, in lower case.
    """
    decoded = options.decoded
    if not decoded:
        _refuse_unused(options.of_value, names, REGISTRY_PREFIX)
    elif asking and options.schema_registry_url is None:
        own = asking[0].column
        hint = f"; with {own}.framing=none and {own}.schema no registry is used" if asking[0].has_own_schema else ""
        takes = f"the URL of the schema registry, where the schemas of the {own}s are{hint}"
        raise OptionError("schema.registry.url", None, takes)
    elif not asking:
        declared = [option.name for option in declared_in(ValueOptions).values()]
        given = [name for name in declared if name.startswith(REGISTRY_PREFIX) and name in names]
        if not given:
            return
        known = decoded[0]
        why = f"with {known.column}.framing={known.framing} and {known.column}.schema no registry is used"
        if known.format == "json" and known.has_own_schema:
            why += f". JSON {known.column}s that begin with a schema id need {known.column}.framing=confluent"
        raise OptionError(given[0], HIDDEN, problem=f"Remove {given[0]}: {why}")


def subjects_of(options: ReadOptions, column: ColumnOptions) -> tuple[str, ...]:
    """Return the subjects that a column's options name, or the subject of the only topic (TopicNameStrategy)."""
    if column.subject is not None:
        return tuple(dict.fromkeys(one.strip() for one in column.subject.split(",") if one.strip()))
    topics = options.subscribe or tuple(options.assign or ())
    return (f"{topics[0]}-{column.column}",) if len(topics) == 1 else ()
