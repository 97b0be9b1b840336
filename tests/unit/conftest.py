"""Fixtures for unit tests."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.fake_broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A fake broker without partitions yet."""
    with closing(FakeBroker()) as made:
        yield made


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()
