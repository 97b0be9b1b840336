"""The schema of a column to write: the rules of the registry's schemas, and the requests to the registry."""

import json

import pyarrow as pa
import pytest

from kafka_source.errors import InvalidConfigurationError
from kafka_source.options import sink_options
from kafka_source.values.writer_schema import WriterSchema, writer_schema
from tests.support.registry_server import Answer, RegistryServer

pytestmark = pytest.mark.requires_native

KIND = pa.struct([pa.field("ssn", pa.string(), nullable=False)])
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "ssn", "type": "string"}]}
ENCRYPT = {"name": "pii", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}
OPTIONS = [
    {},
    {"value.schema.id": "7"},
    {"value.schema": json.dumps(SCHEMA)},
    {"auto.register.schemas": "true"},
    {"value.schema": json.dumps(SCHEMA), "auto.register.schemas": "true"},
]


def written(registry: RegistryServer, **more: str) -> WriterSchema:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "value.format": "avro"}
    options = sink_options({**given, "schema.registry.url": registry.url, **more})
    return writer_schema(options, options.of_value, KIND)


def serve(registry: RegistryServer, **more: object) -> None:
    """Have schema 7 as the newest of the topic, and as the one that is found or registered."""
    registry.add(7, SCHEMA, "t-value", **more)
    found = registry.answers["/subjects/t-value/versions/latest"]
    registry.answers |= {"/subjects/t-value": found, "/subjects/t-value/versions": found}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_schema_with_rules_is_refused_wherever_it_comes_from(
    registry: RegistryServer, options: dict[str, str]
) -> None:
    serve(registry, ruleSet={"domainRules": [ENCRYPT]})
    with pytest.raises(InvalidConfigurationError, match=r"id 7 .* written.*pii .ENCRYPT.*would contain plain values"):
        written(registry, **options)
    assert written(registry, **options, **{"schema.rules": "ignore"}).id == 7


@pytest.mark.parametrize("options", OPTIONS)
def test_each_schema_is_asked_for_once_in_a_process(registry: RegistryServer, options: dict[str, str]) -> None:
    serve(registry)
    for _ in range(3):
        assert written(registry, **options).id == 7
    asked = [one for one in registry.asked if one != "/subjects/t-value/versions/latest"]
    assert len(set(asked)) == len(asked) <= 2


def test_the_id_of_a_schema_that_another_node_has_just_registered_is_waited_for(registry: RegistryServer) -> None:
    serve(registry)
    late: Answer = 404, {}, b'{"error_code":40403,"message":"Schema not found"}'
    registry.first = [registry.answers["/subjects/t-value/versions"], late]
    assert written(registry, **{"auto.register.schemas": "true"}).id == 7
