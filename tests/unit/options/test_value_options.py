"""The options that decode values: what goes together, and what is refused at `load()`."""

import pytest

from kafka_source.errors import OptionError
from kafka_source.options import OPTIONS, check_load, check_read, check_sink
from kafka_source.options.declaration import Where
from kafka_source.options.kinds import DECODED_FORMATS
from kafka_source.options.value_rules import subjects_of

BASE = {"kafka.bootstrap.servers": "here:1", "subscribe": "orders"}
AVRO = {**BASE, "value.format": "avro", "schema.registry.url": "http://there"}
SECRET = "hunter2"


def test_the_registrys_settings_come_without_their_prefix_and_keep_their_secrets():
    options = check_load(
        {
            **AVRO,
            "schema.registry.basic.auth.user.info": f"reader:{SECRET}",
            "Schema.Registry.ssl.truststore.location": "/ca.pem",
            "kafka.config.providers": "",
        }
    ).options
    assert dict(options.registry.given) == {
        "url": "http://there",
        "basic.auth.user.info": f"reader:{SECRET}",
        "ssl.truststore.location": "/ca.pem",
        "config.providers": "",
    }
    assert SECRET not in repr(options)
    assert SECRET not in repr(options.registry)


def test_variables_in_the_registrys_settings_are_resolved_by_the_process_that_needs_them(monkeypatch):
    monkeypatch.setenv("REGISTRY_LOGIN", f"reader:{SECRET}")
    options = check_load(
        {
            **AVRO,
            "schema.registry.basic.auth.user.info": "${env:REGISTRY_LOGIN}",
            "kafka.config.providers": "env",
            "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        }
    ).options
    assert options.registry["basic.auth.user.info"] == f"reader:{SECRET}"
    assert SECRET not in str(dict(options.registry.given))


def test_without_value_format_nothing_is_decoded():
    options = check_load(BASE).options
    assert (options.value_format, dict(options.registry)) == ("binary", {})


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({"subscribe": "orders"}, ("orders-value",)),
        ({"assign": '{"orders":[0,1]}'}, ("orders-value",)),
        ({"subscribe": "orders,returns"}, ()),
        ({"subscribePattern": "orders.*"}, ()),
    ],
)
def test_the_subject_follows_from_the_topic_if_there_is_one(given, subject):
    text = {"kafka.bootstrap.servers": "here:1", **given}
    options = check_read(text, Where.STREAM).options
    assert subjects_of(options, options.of_value) == subject
    assert subjects_of(options, options.of_key) == (("orders-key",) if subject else ())
    avro = {**text, "value.format": "avro", "schema.registry.url": "http://there"}
    if not subject:
        with pytest.raises(OptionError, match=r"value\.subject"):
            check_load(avro)
    several = check_load({**avro, "value.subject": "any, other,any"}).options
    assert subjects_of(several, several.of_value) == ("any", "other")
    for source in ({"value.subject": "any"}, {"value.schema.id": "7"}, {"value.schema": '"long"'}):
        assert check_load({**avro, **source}).options.value_format == "avro"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"value.schema": '"long"', "value.format": "binary"}, "set value.format to avro or protobuf or json"),
        ({"schema.registry.url": "http://there", "value.format": "string"}, "set value.format to avro"),
        ({"value.schema.id": "seven"}, "whole number"),
        ({"value.format": "thrift"}, "one of binary, string, avro, protobuf, json"),
        ({"value.descriptor.file": "/shop.desc"}, "set value.format to protobuf"),
        ({"value.format": "protobuf", "value.descriptor.file": "d", "value.schema": "x"}, "Keep one of"),
        (
            {"value.format": "protobuf", "value.framing": "none", "value.descriptor.file": "d"},
            "Remove schema.registry.url",
        ),
        ({"value.framing": "avro"}, "one of confluent, confluent-header, apicurio, single-object, glue, none"),
        ({"value.framing": "glue", "value.schema": '"long"'}, "with value.framing=glue and value.schema no registry"),
        (
            {"value.framing": "glue", "value.format": "protobuf"},
            "confluent, confluent-header, none with value.format=protobuf",
        ),
        ({"mode": "SKIP"}, "one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"columnNameOfCorruptRecord": "Offset", "mode": "permissive"}, "a name other than key"),
        ({"deadletter.topic": "dead"}, "set mode to PERMISSIVE or DROPMALFORMED"),
        (
            {"deadletter.topic": "dead", "mode": "PERMISSIVE", "value.format": "string"},
            "value.format to avro, protobuf or json",
        ),
        ({"key.format": "string", "mode": "PERMISSIVE"}, "does not apply to the column key"),
        ({"schema.registry.ssl.trustore.location": "/ca"}, "no setting schema.registry.ssl.trustore.location"),
        ({"schema.registry.basic.auth.user": f"reader:{SECRET}"}, "no setting schema.registry.basic.auth.user"),
        ({"value.fromat": "avro"}, "Did you mean value.format"),
    ],
)
def test_what_contradicts_or_is_misspelt_is_refused(changed, said):
    with pytest.raises(OptionError) as failed:
        check_load({**AVRO, **changed})
    assert said in str(failed.value)
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_mode_is_refused_where_it_would_not_hold(mode):
    with pytest.raises(OptionError, match=r"column value, .* not UTF-8 ends the query: remove value\.format"):
        check_load({**BASE, "value.format": "string", "mode": mode})
    # Spark gives options that other sources have to all of them.
    assert check_load({**BASE, "mode": mode}).options.mode == "FAILFAST"


def test_a_stream_ends_at_a_newer_schema_only_where_it_may_get_one():
    restart = {**AVRO, "avroSchemaEvolutionMode": "Restart"}
    assert check_read(restart, Where.STREAM).options.avro_schema_evolution_mode == "restart"
    assert check_read(restart, Where.BATCH).options.avro_schema_evolution_mode == "none"
    for pinned in ({"value.schema.id": "7"}, {"value.schema": '"long"'}, {"value.framing": "glue"}):
        with pytest.raises(OptionError, match="no column has the newest schema of a subject"):
            check_read({**restart, **pinned}, Where.STREAM)


def test_the_options_of_keys_are_those_of_values():
    given = {**BASE, "key.format": "avro", "schema.registry.url": "http://there", "key.schema.id": "7"}
    options = check_load({**given, "deadletter.topic": "dead", "mode": "DROPMALFORMED"}).options
    assert options.decoded == (options.of_key,)
    assert (options.key_schema_id, options.of_key.framing) == (7, "confluent")
    both = {**given, "value.format": "json", "value.schema": "id bigint", "columnNameOfCorruptRecord": "bad"}
    options = check_load({**both, "mode": "PERMISSIVE"}).options
    assert [options.corrupt_column(one.column) for one in options.decoded] == ["bad", "bad_key"]
    declared = {option.name: option for option in OPTIONS}
    of_keys = [option for name, option in declared.items() if name.startswith("key.")]
    assert len(of_keys) == sum(name.startswith("value.") for name in declared) == 7
    assert all(option.kind is declared[option.name.replace("key", "value", 1)].kind for option in of_keys)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key.format": "string"}, r"key\.schema is for keys with a schema: set key\.format to avro or protobuf"),
        ({"key.schema.id": "7"}, r"key\.schema and key\.schema\.id: each says which schema the column key has"),
        ({"key.message.name": "m"}, r"key\.message\.name is for Protobuf keys: set key\.format to protobuf"),
        ({"key.schema": None, "subscribe": "a,b"}, r"Set key\.subject, key\.schema\.id or key\.schema"),
        ({"schema.registry.url": None}, r"where the schemas of the keys are; with key\.framing=none and key\.schema"),
        ({"key.framing": "none"}, r"Remove schema\.registry\.url: with key\.framing=none and key\.schema"),
        ({"key.format": "json"}, r"Remove schema\.registry\.url: .* need key\.framing=confluent"),
        ({"key.format": "json", "key.subject": "s"}, r"key\.schema and key\.subject: each says"),
        ({"value.format": "json", "subscribe": "a,b"}, r"Set value\.subject, value\.schema\.id or value\.schema"),
    ],
)
def test_options_of_keys_that_contradict_each_other_are_refused(changed, said):
    given = {**BASE, "key.format": "avro", "key.schema": '"long"', "schema.registry.url": "http://there", **changed}
    with pytest.raises(OptionError, match=said):
        check_load({name: text for name, text in given.items() if text is not None})


SINK = {"kafka.bootstrap.servers": "here:1", "topic": "orders"}
WRITE_AVRO = {**SINK, "value.format": "avro", "schema.registry.url": "http://there"}
UNFRAMED: dict[str, str | None] = {"value.format": "protobuf", "value.framing": "none", "schema.registry.url": None}
JSON_TEXT: dict[str, str | None] = {"value.format": "json", "schema.registry.url": None}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"value.format": "binary"},
            r"registry\.url is for values with a schema: set value\.format to avro or protobuf",
        ),
        ({**JSON_TEXT, "auto.register.schemas": "true"}, r"Remove auto\.register\.schemas: no column is written"),
        ({"value.format": "json", "value.framing": "none"}, r"Remove schema\.registry\.url"),
        ({**JSON_TEXT, "value.framing": "confluent"}, r"schema\.registry\.url is missing"),
        ({**JSON_TEXT, "schema.registry.timeout.ms": "5"}, r"Remove schema\.registry\.timeout\.ms"),
        ({"schema.registry.url": None}, r"schema\.registry\.url"),
        ({"value.schema.id": "7", "auto.register.schemas": "true"}, r"value\.schema\.id and auto\.register\.schemas"),
        ({"value.framing": "none", "auto.register.schemas": "true"}, r"Remove auto\.register\.schemas"),
        ({"key.schema": '"long"'}, r"key\.schema is for keys with a schema: set key\.format to avro or protobuf or"),
        ({"key.format": "avro", "topic": None, "value.subject": "s"}, r"Set key\.subject or key\.schema\.id"),
        ({"value.framing": "apicurio"}, "confluent or none in a sink"),
    ],
)
def test_options_of_a_sink_that_contradict_each_other_are_refused(changed, said):
    given = {name: text for name, text in {**WRITE_AVRO, **changed}.items() if text is not None}
    with pytest.raises(OptionError, match=said):
        check_sink(given)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"value.schema": '"long"', "value.subject": "s", "auto.register.schemas": "true"},
        {"topic": None, "value.schema.id": "7"},
        {"topic": None, "value.schema": '"long"', "value.framing": "none", "schema.registry.url": None},
        {"value.format": "protobuf", "value.schema": "message M {}", "auto.register.schemas": "true"},
        {**UNFRAMED, "topic": None, "value.descriptor.file": "d", "value.message.name": "M"},
        {**JSON_TEXT, "topic": None, "value.framing": "none"},
        {"value.format": "json", "auto.register.schemas": "true"},
        {"key.format": "json", "key.framing": "none"},
        {
            "key.format": "protobuf",
            "key.schema": "message M {}",
            "key.framing": "none",
            "auto.register.schemas": "true",
        },
    ],
)
def test_a_sink_takes_a_schema_from_one_place(changed):
    given = {name: text for name, text in {**WRITE_AVRO, **changed}.items() if text is not None}
    assert check_sink(given).options.value_format in DECODED_FORMATS


JSON = {**BASE, "value.format": "json", "value.schema": "id bigint"}


def test_json_values_need_a_type_and_no_registry():
    given = {**JSON, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad", "deadletter.topic": "dead"}
    options = check_load({**given, "subscribe": "orders,returns"}).options
    assert (options.decoded, options.goes_on_after_bad_values) == ((options.of_value,), True)
    assert options.of_value.framing == "none"
    assert check_load({**JSON, "value.framing": "confluent"}).options.of_value.framing == "confluent"


def test_json_values_with_the_id_of_a_schema_need_a_registry_and_no_type():
    given = {**BASE, "value.format": "json", "schema.registry.url": "http://there"}
    assert check_load(given).options.of_value.framing == "confluent"
    assert check_load({**given, "value.framing": "none", "value.schema.id": "7"}).options.schema_registry_url
    # Here it is the key that asks.
    plain = {**given, "value.schema": "id bigint", "key.format": "avro"}
    assert check_load(plain).options.of_value.framing == "none"
