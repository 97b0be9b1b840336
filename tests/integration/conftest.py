"""Fixtures for tests of groups."""

import itertools
import os
from contextlib import ExitStack, closing

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
def members(settings: Settings, group: str, opened: ExitStack) -> Memberships:
    """Makes memberships of `group` on `kafka`."""
    return opened.enter_context(closing(Memberships(settings, group)))


@pytest.fixture
def streams(kafka: EmbeddedKafka, name: str, group: str, opened: ExitStack) -> Streams:
    """Runs streams of `group` without Spark; `name` is the topic, a fixture of the module."""
    return opened.enter_context(closing(Streams(kafka, name, group)))
