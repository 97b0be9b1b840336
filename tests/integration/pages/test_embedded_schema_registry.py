"""The embedded schema registry: it keeps schemas, answers as Confluent's does, and is gone when it is stopped."""

from __future__ import annotations

import json
import urllib.request

import pytest

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


def test_a_registry_that_is_not_started_says_so() -> None:
    registry = SchemaRegistry()
    with pytest.raises(BrokerError, match="not started"):
        _ = registry.url
