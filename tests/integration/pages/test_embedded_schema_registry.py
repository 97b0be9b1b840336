"""The embedded schema registry: it keeps schemas, answers as Confluent's does, and is gone when it is stopped."""

import json
import urllib.request

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError, RetriableError
from kafka_source.values.registry import RegisteredSchema, registry_of
from kafkagroup.embedded import BrokerError, SchemaRegistry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "double"}]}


def test_a_schema_is_registered_and_found_by_its_id(kafkagroup_schema_registry: SchemaRegistry) -> None:
    known = kafkagroup_schema_registry.register("embedded-orders-value", ORDER)
    assert kafkagroup_schema_registry.register("embedded-orders-value", ORDER) == known
    with urllib.request.urlopen(f"{kafkagroup_schema_registry.url}/schemas/ids/{known}", timeout=10) as answer:
        assert json.loads(json.load(answer)["schema"]) == ORDER
    with pytest.raises(BrokerError, match="refuses a schema of embedded-wrong"):
        kafkagroup_schema_registry.register("embedded-wrong", {"type": "recrod"})
    with pytest.raises(BrokerError, match="already started"):
        kafkagroup_schema_registry.start()


def test_the_client_tells_its_answers_apart(kafkagroup_schema_registry: SchemaRegistry) -> None:
    """The answers of Apicurio to the requests of `tests/unit/values/test_registry_answers.py`."""
    url, subject = kafkagroup_schema_registry.url, "embedded-told-apart-value"
    known = kafkagroup_schema_registry.register(subject, ORDER)
    registry = registry_of(Settings({"url": url}))
    found = registry.by_ids([known, 1 << 30], patience=0)
    assert isinstance(found[known], RegisteredSchema)
    assert "does not have the schema with id 1073741824" in str(found[1 << 30])
    with pytest.raises(InvalidConfigurationError, match=r"does not have .* subject embedded-none: set it\."):
        registry.newest("embedded-none", "set it")
    with pytest.raises(InvalidConfigurationError, match=r"does not have the given schema .*: register it"):
        registry.id_of(subject, '"long"', "AVRO")
    body = b'{"compatibility": "BACKWARD"}'
    rule = urllib.request.Request(f"{url}/config/{subject}", body, {"Content-Type": "application/json"}, method="PUT")
    urllib.request.urlopen(rule, timeout=10).close()
    for schema, status in (('{"type": "recrod"}', 422), ('"long"', 409)):
        with pytest.raises(InvalidConfigurationError, match=rf"refuses to register .*HTTP {status}\)\. It says: "):
            registry.register(subject, schema, "AVRO")
    elsewhere = registry_of(Settings({"url": url.partition("/apis")[0]}))
    with pytest.raises(InvalidConfigurationError, match=r"check its path.*Apicurio's is below /apis/ccompat/v7"):
        elsewhere.by_id(known)
    kafkagroup_schema_registry.pause()
    try:
        with pytest.raises(RetriableError, match="no answer within 1 s"):
            registry_of(Settings({"url": url, "timeout.ms": "1"})).newest(subject, "")
    finally:
        kafkagroup_schema_registry.resume()


def test_a_registry_that_is_not_started_says_so() -> None:
    registry = SchemaRegistry()
    with pytest.raises(BrokerError, match="not started"):
        _ = registry.url
