"""A batch begins when its writer is pickled: once, and only in the driver's process that creates writers."""

import copy
import pickle

import pytest
from pyspark import SparkContext

from kafka_source.errors import KafkaGroupError
from kafka_source.options import sink_options
from kafka_source.sink.batch_start import BatchContext, BatchStart
from kafka_source.sink.records import SinkColumns
from kafka_source.sink.target import ExactlyOnce, Target
from kafka_source.sink.two_phase.committer import DriverEpoch
from kafka_source.transactions.open_transaction import OpenTransaction

OPTIONS = {
    "kafka.bootstrap.servers": "a:1",
    "topic": "t",
    "transactional": "true",
    "transactional.id.prefix": "orders",
    "checkpointLocation": "/c",
}
TARGET = Target(sink_options(OPTIONS), SinkColumns(0), ExactlyOnce("orders"), None, "name")


class Begins:
    """Counts begins, and gives each an epoch of its own."""

    def __init__(self, error: KafkaGroupError | None = None) -> None:
        self.count, self._error = 0, error

    def __call__(self, target: Target) -> BatchContext:
        assert target is TARGET
        self.count += 1
        if self._error is not None:
            raise self._error
        driver, finished = (OpenTransaction(f"orders-{name}", 1, self.count) for name in ("driver", "finished"))
        return BatchContext(DriverEpoch(driver, finished, 1))


@pytest.fixture(autouse=True)
def in_a_process_without_a_spark_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that ran before in this process may have left Spark running."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


def pickled(start: BatchStart) -> BatchStart:
    result = pickle.loads(pickle.dumps(start))
    assert isinstance(result, BatchStart)
    return result


def test_every_pickling_has_the_epoch_of_the_first() -> None:
    begins = Begins()
    start = BatchStart(TARGET, begins)
    first, second, third = pickled(start), pickled(start), pickled(pickled(start))
    assert begins.count == 1
    assert first.context() == second.context() == third.context() == start.context()
    assert first.epoch == start.epoch is not None


def test_a_copy_is_no_pickling() -> None:
    begins = Begins()
    start = BatchStart(TARGET, begins)
    assert copy.copy(start) is copy.deepcopy(start) is start
    assert begins.count == 0
    assert start.epoch is None


def test_the_users_program_begins_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = Begins()
    start = BatchStart(TARGET, begins)
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    there = pickled(start)
    assert begins.count == 0
    with pytest.raises(KafkaGroupError, match="has not begun"):
        there.context()
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    pickled(there)  # only the writer that Spark has created begins
    assert begins.count == 0


def test_a_writer_that_commits_begins_no_batch() -> None:
    begins = Begins()
    start = BatchStart(TARGET, begins)
    start.close()
    pickled(start)
    assert begins.count == 0


def test_an_error_is_raised_by_the_tasks() -> None:
    begins = Begins(KafkaGroupError("no broker"))
    start = BatchStart(TARGET, begins)
    for there in (pickled(start), pickled(start)):
        assert there.epoch is None
        with pytest.raises(KafkaGroupError, match="no broker"):
            there.context()
    assert begins.count == 1
