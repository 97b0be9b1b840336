"""Whose transactions are whose."""

import time
from contextlib import closing, nullcontext

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.two_phase import committer
from kafka_source.sink.two_phase.committer import DriverEpoch, PreparedBatch, TwoPhaseCommit, times_out_soon
from kafka_source.sink.two_phase.open_transactions import Described, has_prefix
from kafka_source.transactions.open_transaction import OpenTransaction


@pytest.mark.parametrize(
    ("transactional_id", "expected"),
    [
        ("orders-0-0", True),
        ("orders-12-3", True),
        ("orders-driver", False),
        ("orders-2-0-0", False),  # of the sink with the prefix orders-2
        ("0-0", False),  # of somebody else altogether
        ("more-orders-0-0", False),
        ("ordersx0-0", False),
    ],
)
def test_a_sinks_transactions_are_told_by_its_whole_prefix(transactional_id: str, expected: bool) -> None:
    assert has_prefix(transactional_id, "orders") is expected


def test_a_prefix_is_no_pattern() -> None:
    assert has_prefix("a.b-0-0", "a.b")
    assert not has_prefix("axb-0-0", "a.b")


@pytest.mark.parametrize(
    ("timeout_ms", "open_ms", "expected"),
    [
        (600_000, 594_999, False),
        (600_000, 595_001, True),  # five seconds before its end
        (600_000, 700_000, True),
        (1_000, 899, False),
        (1_000, 901, True),
        (1_000, -5_000, False),  # the brokers' clocks differ
    ],
)
def test_a_transaction_that_may_time_out_before_its_commit_is_not_decided_about(
    timeout_ms: int, open_ms: int, expected: bool
) -> None:
    one = Described(OpenTransaction("orders-0-0", 1, 0), "Ongoing", (), 1_000_000, timeout_ms)
    assert times_out_soon(one, 1_000_000 + open_ms) is expected


@pytest.mark.parametrize(("stood_still", "is_late"), [(0.0, False), (16.0, True)])
def test_the_time_that_a_driver_stands_still_in_its_decision_counts(
    monkeypatch: pytest.MonkeyPatch, stood_still: float, is_late: bool
) -> None:
    task = Described(OpenTransaction("orders-0-0", 1, 0), "Ongoing", (), 1_000_000, 20_000)
    decision = Described(OpenTransaction("orders-driver", 2, 0), "Ongoing", (), 1_003_000, 30_000)

    async def describe(*_: object) -> Described:
        return decision

    monkeypatch.setattr(committer, "describe", describe)
    epoch = DriverEpoch(decision.transaction, OpenTransaction("orders-finished", 3, 0), 1)
    batch = PreparedBatch("query", 7, {task.transaction: ()})
    began = time.monotonic() - stood_still
    expected = pytest.raises(ApplicationRecoverableError, match="orders-0-0") if is_late else nullcontext()
    with closing(KafkaClient(Settings({"bootstrap.servers": "127.0.0.1:1"}))) as client, expected:
        sink = TwoPhaseCommit(client, "orders")
        client.run(sink._check_time_left(epoch, batch, [task], Deadline(5), began))
