"""pytest fixtures with a real Kafka: `pytest_plugins = ["kafka_source.embedded.pytest_plugin"]` in a conftest.py.

Nothing is started, and nothing heavy imported, before a test asks for one of the fixtures.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_source.embedded.cluster import EmbeddedKafka

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafkagroup_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """A Kafka of one node for the whole session. Do not kill it: others use it."""
    from kafka_source.embedded.cluster import EmbeddedKafka

    with EmbeddedKafka(on_progress=_sayer(request.config)) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def kafkagroup_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """A Kafka of three nodes for one module."""
    from kafka_source.embedded.cluster import EmbeddedKafka

    with EmbeddedKafka(nodes=3, on_progress=_sayer(request.config)) as kafka:
        yield kafka


@pytest.fixture
def kafkagroup_topic(kafkagroup_broker: EmbeddedKafka) -> Callable[..., str]:
    """A function that makes a fresh topic on `kafkagroup_broker` and returns its name.

    It takes a prefix for the name, and what `EmbeddedKafka.create_topic` takes after the name.
    """

    def make(prefix: str = "topic", **settings: object) -> str:
        name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
        return kafkagroup_broker.create_topic(name, **settings)  # type: ignore[arg-type]

    return make


def _sayer(config: pytest.Config) -> Callable[[str], None]:
    """Says a line past pytest's capture: the first run waits for a download, and should not seem to hang."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            sys.stderr.write(f"\nkafkagroup: {line}")
            sys.stderr.flush()

    return say
