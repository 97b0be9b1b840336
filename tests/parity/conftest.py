"""Fixtures of the differential tests; the root's `spark` has the JVM connector when one of them is collected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkagroup.embedded import EmbeddedKafka
from tests.parity.formats import Formats
from tests.support.records import Topic


@pytest.fixture
def formats(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path) -> Iterator[Formats]:
    """Reads and streams of each format on `kafka`."""
    made = Formats(spark, kafka, topic, tmp_path)
    yield made
    made.close()
