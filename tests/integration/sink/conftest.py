"""A fixture for tests of the exactly-once sink."""

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic
from tests.support.two_phase import Sink


@pytest.fixture
def sink(kafka: EmbeddedKafka, topic: Topic) -> Sink:
    """A sink into a fresh topic."""
    return Sink(kafka.bootstrap_servers, topic("exactly-once"))
