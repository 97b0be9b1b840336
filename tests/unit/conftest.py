"""Fixtures for unit tests."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.fake_broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A fake broker without partitions yet."""
    with closing(FakeBroker()) as made:
        yield made
