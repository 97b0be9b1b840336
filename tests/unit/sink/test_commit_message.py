"""The commit messages of a batch's tasks: each is a task result of Spark, and the commit process reads all of them."""

from __future__ import annotations

import pickle

from assignors.model import TopicPartition
from kafka_source.sink.commit_message import CommitMessage
from kafka_source.sink.two_phase.driver_epoch import DriverEpoch, LostRecords
from kafka_source.sink.two_phase.ledger import Decision, LedgerState
from kafka_source.sink.two_phase.prepare import Prepared
from kafka_source.source_sink_handoff import BatchOfRun
from kafka_source.transactions.open_transaction import OpenTransaction

QUERY = "0b6c2a52-6a1b-4f0c-9a53-5d1d6a6f0a41"
DRIVER, FINISHED = OpenTransaction("orders-driver", 1, 2), OpenTransaction("orders-finished", 2, 2)


def decision(tasks: int) -> Decision:
    transactions = tuple(OpenTransaction(f"orders-{task}-0", 1000 + task, 3, 10) for task in range(tasks))
    partitions = tuple(TopicPartition("orders", task) for task in range(tasks))
    return Decision(7, QUERY, 7, partitions[0], transactions, partitions, done=True)


def messages(tasks: int) -> int:
    """The bytes of all commit messages of a batch, after a batch of as many tasks."""
    last = decision(tasks)
    epoch = DriverEpoch.after(DRIVER, FINISHED, LedgerState(last, finished=7))
    return sum(
        len(pickle.dumps(CommitMessage(10, BatchOfRun(QUERY, QUERY, 8), epoch, Prepared(10, transaction, (tp,)))))
        for transaction, tp in zip(last.transactions, last.partitions, strict=True)
    )


def test_the_size_of_all_messages_grows_with_the_tasks_and_not_with_their_square() -> None:
    assert messages(5000) / 5000 < 1.05 * messages(50) / 50
    assert messages(5000) < 10_000_000


def test_tasks_know_which_batch_was_decided_last() -> None:
    epoch = DriverEpoch.after(DRIVER, FINISHED, LedgerState(decision(3), finished=7))
    assert epoch.number == 8
    assert epoch.covers(QUERY, 7)
    assert epoch.covers(QUERY, 6)
    assert not epoch.covers(QUERY, 8)
    assert not epoch.covers("another query", 7)


def test_tasks_know_a_decision_in_full_if_its_records_are_lost() -> None:
    last = decision(3)
    epoch = DriverEpoch.after(DRIVER, FINISHED, LedgerState(last, finished=6), lost=["orders-1-0"])
    assert epoch.lost == LostRecords(last, frozenset({"orders-1-0"}))


def test_numbers_go_on_where_only_the_finished_group_is_left() -> None:
    """The ledger's group may be deleted, or expire, and the group of finished numbers stay."""
    assert LedgerState(None, finished=0).next_number == 1
    assert LedgerState(None, finished=7).next_number == 8
    assert LedgerState(decision(3), finished=0).next_number == 8
