"""An exactly-once batch of thousands of tasks: its repair, and how many requests the driver needs for it."""

import pickle
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest

from kafka_source.commits.handoff import BatchOfRun
from kafka_source.error_codes import ErrorCode
from kafka_source.kafka_client import Connection, cached_client
from kafka_source.kafka_client.messages import Request
from kafka_source.runtime.failpoints import install
from kafka_source.sink.exactly_once import CommitMessage, begin_batch, commit_batch
from kafka_source.sink.target import ExactlyOnce
from kafka_source.sink.two_phase.prepare import Prepared, SinkTask, prepare
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic
from tests.support.two_phase import Sink, as_records, take_over

_R = TypeVar("_R")

# Of the sink's clients: an earlier test's members in this process may go on with their heartbeats.
CLIENT_ID = {"client.id": "counted"}
# Spark's default of spark.driver.maxResultSize.
MAX_RESULT_SIZE = 1 << 30


class _DiesError(Exception):
    pass


def die(failpoint: str) -> None:
    if failpoint == "sink-decided":
        raise _DiesError


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests of each kind of the driver that were answered."""
    counted: Counter[str] = Counter()
    send = Connection.send

    async def count_and_send(
        self: Connection, request: Request[_R], timeout: float, max_version: int | None = None
    ) -> _R:
        answer = await send(self, request, timeout, max_version)
        # How often a request is sent again, to a busy broker or while markers are written, is a matter of time.
        is_again = getattr(answer, "error_code", 0) == ErrorCode.CONCURRENT_TRANSACTIONS
        if self._client_id.startswith(CLIENT_ID["client.id"]) and not is_again:
            counted[request.name] += 1
        return answer

    monkeypatch.setattr(Connection, "send", count_and_send)
    return counted


@pytest.mark.parametrize("tasks", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_one_lost_transaction_of_many_tasks_is_repaired(
    kafka: EmbeddedKafka, topic: Topic, sent: Counter[str], tasks: int
) -> None:
    """R7, L10: the messages have room in Spark's result, and no coordinator is looked up for each task."""
    sink = Sink(kafka.bootstrap_servers, topic("many-tasks"), replays=True, settings=CLIENT_ID)
    settings, target = sink.settings, ExactlyOnce(sink.prefix, write_id="q", replays=True)

    def run_driver(step: Callable[[], object]) -> None:
        """Run a step of the driver as Spark does: in a process that knows no coordinator yet."""
        # A client forgets its coordinators when it is closed, and connects again when it is used.
        cached_client(settings).close()
        sent.clear()
        step()
        assert sent["FindCoordinatorRequest"] < 100 + tasks // 50, sent
        assert sent["EndTxnRequest"] <= tasks + 10, sent

    def write() -> list[CommitMessage]:
        """Run the tasks of the batch; what they return to the driver."""
        epoch = begin_batch(settings, target)
        results = bytearray()
        messages = []
        for number in range(tasks):
            rows = [as_records([str(number).encode()], sink.topic)]
            done = prepare(settings, SinkTask(sink.prefix, "q", 0, number), epoch, rows)
            message = pickle.dumps(CommitMessage(done.records, BatchOfRun("q", "", 0), epoch.in_message, done))
            results += message
            messages.append(pickle.loads(message))
        assert len(results) < MAX_RESULT_SIZE // 10
        return messages

    messages = write()
    install(die)
    try:
        with pytest.raises(_DiesError):
            commit_batch(settings, target, messages)
    finally:
        install(None)
    take_over(kafka.bootstrap_servers, f"{sink.prefix}-{tasks // 2}-0")
    run_driver(lambda: begin_batch(settings, target))
    replayed = write()
    assert [number for number, one in enumerate(replayed) if wrote(one.prepared)] == [tasks // 2]
    run_driver(lambda: commit_batch(settings, target, replayed))
    assert sink.visible(tasks) == sorted(str(number).encode() for number in range(tasks))
    assert sink.open() == []


def test_the_requests_of_a_restart_are_bounded(kafka: EmbeddedKafka, topic: Topic, sent: Counter[str]) -> None:
    """All 400 tasks of a batch have prepared when their driver dies."""
    sink = Sink(kafka.bootstrap_servers, topic("many-open"), settings=CLIENT_ID)
    epoch, tasks = sink.begin(), 400
    for number in range(tasks):
        sink.task(epoch, 0, number)
    restarts = []
    for _ in range(2):
        cached_client(sink.settings).close()
        sent.clear()
        sink.begin()
        restarts.append(sent.copy())
    assert sink.open() == []
    assert 2 * tasks < restarts[0].total() < 2 * tasks + 20, restarts
    assert restarts[1].total() < 20, restarts


def wrote(prepared: Prepared | None) -> bool:
    return prepared is not None and prepared.transaction is not None
