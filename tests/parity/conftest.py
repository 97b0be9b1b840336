"""Fixtures of the differential tests; the root's `spark` has the JVM connector when one of them is collected."""

from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkagroup.embedded import EmbeddedKafka
from tests.parity.formats import Formats
from tests.support.records import Topic


@pytest.fixture
def formats(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path, opened: ExitStack) -> Formats:
    """Reads and streams of each format on `kafka`."""
    return opened.enter_context(closing(Formats(spark, kafka, topic, tmp_path)))
