"""Fixtures for tests of groups."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.commands import Command
from tests.support.memberships import Memberships
from tests.support.rewinding import Streams

_numbers = itertools.count(1)


@pytest.fixture
def group() -> str:
    """A name for a fresh group."""
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> Settings:
    """The settings of clients of `kafka`."""
    return Settings({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def groups(settings: Settings) -> Groups:
    """The groups of `kafka`."""
    return Groups(settings)


@pytest.fixture
def command(kafka: EmbeddedKafka) -> Command:
    """The command line on `kafka`."""
    return Command(kafka.bootstrap_servers)


@pytest.fixture
def members(settings: Settings, group: str) -> Iterator[Memberships]:
    """Makes memberships of `group` on `kafka`."""
    made = Memberships(settings, group)
    yield made
    made.close()


@pytest.fixture
def streams(kafka: EmbeddedKafka, name: str, group: str) -> Iterator[Streams]:
    """Runs streams of `group` without Spark; `name` is the topic, a fixture of the module."""
    made = Streams(kafka, name, group)
    yield made
    made.close()
