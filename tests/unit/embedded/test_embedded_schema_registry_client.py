"""The requests of the embedded schema registry's class, to a registry of the test."""

from typing import cast
from urllib.parse import urlsplit

import pytest

from kafkagroup.embedded import SchemaRegistry
from kafkagroup.embedded.node import Node
from tests.support.registry_server import RegistryServer


def test_requests_to_this_machine_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request._opener", None)  # which knows the proxies of its first request
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with RegistryServer() as server:
        url = "/apis/ccompat/v7/subjects"
        server.answers |= {url: (200, {}, b"[]"), f"{url}/orders-value/versions": (200, {}, b'{"id": 7}')}
        registry = SchemaRegistry(urlsplit(server.url).port, start_timeout=0)
        registry._node = node = cast("Node", object())
        assert registry.register("orders-value", "{}") == 7
        registry._wait_until_it_answers(node)
