"""A cluster whose transaction coordinator is away: commits go without it, unless an option promises transactions."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError
from kafkagroup.admin import Groups
from kafkagroup.doctor import examine
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import produce
from tests.support.rewinding import Streams
from tests.support.waiting import wait_until

REMEDY = "transaction.state.log.replication.factor"


@pytest.fixture(scope="module")
def small() -> Iterator[EmbeddedKafka]:
    """One node that cannot create `__transaction_state`."""
    config = {"transaction.state.log.replication.factor": 3, "transaction.state.log.min.isr": 1}
    with EmbeddedKafka(config=config) as kafka:
        kafka.create_topic("t", partitions=1)
        produce(kafka.bootstrap_servers, "t", 20)
        yield kafka


@pytest.fixture
def small_streams(small: EmbeddedKafka, group: str) -> Iterator[Streams]:
    with closing(Streams(small, "t", group)) as made:
        yield made


def test_a_query_reads_and_commits_without_a_transaction_coordinator(
    small: EmbeddedKafka, small_streams: Streams, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups(Settings({"bootstrap.servers": small.bootstrap_servers}))
    runner = small_streams.run(coordinator_timeout_ms=4000)

    def committed() -> bool:
        runner.check()
        return groups.committed(group) == {TopicPartition("t", 0): 20}

    wait_until(committed, "a commit")
    (told,) = [text for text in caplog.messages if "without transactions" in text]
    assert "COORDINATOR_NOT_AVAILABLE" in told


def test_a_query_that_promises_transactions_ends_with_the_remedy(small_streams: Streams) -> None:
    runner = small_streams.run(coordinator_timeout_ms=4000, commit_transactional="true")
    error = small_streams.error_of(runner, 40)
    assert isinstance(error, InvalidConfigurationError)
    assert REMEDY in str(error)


def test_the_doctor_asks_for_the_transaction_coordinator(small: EmbeddedKafka, group: str) -> None:
    found = examine({"bootstrap.servers": small.bootstrap_servers}, group=group, transactional_id="copy", seconds=5)
    told = {one.name: one for one in found if "transactional id" in one.name}
    assert [one.state for one in told.values()] == ["warn", "fail"]
    assert all(REMEDY in one.happened for one in told.values())
