"""Fixtures for tests of groups."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from kafka_source.client_config import Settings
from kafka_source.embedded import EmbeddedKafka
from tests.groups import Memberships

_numbers = itertools.count(1)


@pytest.fixture
def group() -> str:
    """A name for a fresh group."""
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def members(kafka: EmbeddedKafka, group: str) -> Iterator[Memberships]:
    """Makes memberships of `group` on `kafka`."""
    made = Memberships(Settings({"bootstrap.servers": kafka.bootstrap_servers}), group)
    yield made
    made.close()
