"""pytest fixtures with a real Kafka: `pytest_plugins = ["kafkagroup.embedded.pytest_plugin"]` in a conftest.py.

A fixture imports large libraries and starts a broker when the first test requests the fixture.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkagroup.embedded.cluster import EmbeddedKafka
    from kafkagroup.embedded.schema_registry import SchemaRegistry

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafkagroup_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """Yield a Kafka of one node for the whole session. Do not stop this Kafka, because all tests share it."""
    from kafkagroup.embedded.cluster import EmbeddedKafka

    with EmbeddedKafka(on_progress=_sayer(request.config)) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def kafkagroup_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """Yield a Kafka of three nodes for the tests of one module."""
    from kafkagroup.embedded.cluster import EmbeddedKafka

    with EmbeddedKafka(nodes=3, on_progress=_sayer(request.config)) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafkagroup_schema_registry(request: pytest.FixtureRequest) -> Iterator[SchemaRegistry]:
    """Yield a schema registry for the whole session. Do not stop this registry, because all tests share it."""
    from kafkagroup.embedded.schema_registry import SchemaRegistry

    with SchemaRegistry(on_progress=_sayer(request.config)) as registry:
        yield registry


@pytest.fixture
def kafkagroup_topic(kafkagroup_broker: EmbeddedKafka) -> Callable[..., str]:
    """Return a function that creates a new topic on `kafkagroup_broker` and returns the topic's name.

    The function takes a prefix for the name, and the keyword arguments of `EmbeddedKafka.create_topic`.
    """
    return partial(new_topic, kafkagroup_broker)


def new_topic(kafka: EmbeddedKafka, prefix: str = "topic", **settings: object) -> str:
    """Create a topic with a unique name, and return the name."""
    name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
    return kafka.create_topic(name, **settings)  # type: ignore[arg-type]


def _sayer(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that prints a line although pytest captures output.

    The lines show that the first run waits for a download.
    """
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            sys.stderr.write(f"\nkafkagroup: {line}")
            sys.stderr.flush()

    return say
