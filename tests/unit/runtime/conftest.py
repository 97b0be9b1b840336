import logging
from collections.abc import Iterator

import pytest

from kafka_source.runtime.logs import FORMAT, LEVEL


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """This package's logger without handlers, as in a new process."""
    logger = logging.getLogger("kafka_source")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers, logger.level, logger.propagate = [], logging.NOTSET, True
    monkeypatch.delenv(LEVEL, raising=False)
    monkeypatch.delenv(FORMAT, raising=False)
    yield logger
    logger.handlers, _, logger.propagate = before
    logger.setLevel(before[1])
