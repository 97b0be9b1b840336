"""The commit messages of a batch's tasks: each is a task result of Spark, and the commit process reads all of them."""

import pickle
from dataclasses import replace

import pytest

from assignors.model import TopicPartition
from kafka_source.commits.handoff import BatchOfRun
from kafka_source.commits.side_groups import BEYOND_ALL_LOGS
from kafka_source.sink.exactly_once import CommitMessage
from kafka_source.sink.two_phase.committer import DriverEpoch
from kafka_source.sink.two_phase.ledger import Decision, LedgerState
from kafka_source.sink.two_phase.prepare import Prepared
from kafka_source.transactions.open_transaction import OpenTransaction

QUERY = "0b6c2a52-6a1b-4f0c-9a53-5d1d6a6f0a41"
BATCH = BatchOfRun(QUERY, QUERY, 8)
DRIVER, FINISHED = OpenTransaction("orders-driver", 1, 2), OpenTransaction("orders-finished", 2, 2)


def decision(tasks: int) -> Decision:
    transactions = tuple(OpenTransaction(f"orders-{task}-0", 1000 + task, 3, 10) for task in range(tasks))
    partitions = tuple(TopicPartition("orders", task) for task in range(tasks))
    return Decision(7, QUERY, 7, partitions[:1], transactions, partitions, done=True)


def epoch_after(tasks: int, lost: list[str]) -> DriverEpoch:
    return DriverEpoch.after(DRIVER, FINISHED, LedgerState(decision(tasks), finished=6), lost)


def every_other(tasks: int) -> list[str]:
    """What loses most: no two tasks beside each other."""
    return [f"orders-{task}-0" for task in range(0, tasks, 2)]


def messages(tasks: int, epoch: DriverEpoch) -> int:
    """The bytes of all commit messages of a batch."""
    last = decision(tasks)
    return sum(
        len(pickle.dumps(CommitMessage(10, BATCH, epoch.in_message, Prepared(10, transaction, (tp,)))))
        for transaction, tp in zip(last.transactions, last.partitions, strict=True)
    )


@pytest.mark.parametrize("lost", [[], ["orders-1-0"], every_other(10_000)])
def test_the_size_of_all_messages_grows_with_the_tasks_and_not_with_their_square(lost: list[str]) -> None:
    """Also after a decision that has lost transactions. All messages share `spark.driver.maxResultSize`, 1 GiB."""
    assert messages(10_000, epoch_after(10_000, lost)) / 10_000 < 1.05 * messages(50, epoch_after(50, [])) / 50
    assert messages(10_000, epoch_after(10_000, lost)) < 10_000_000


def test_what_a_task_has_to_know_stays_small_also_if_records_are_lost() -> None:
    without = len(pickle.dumps(epoch_after(10_000, [])))
    assert len(pickle.dumps(epoch_after(10_000, ["orders-9999-0"]))) < without + 1_300
    assert len(pickle.dumps(epoch_after(10_000, every_other(10_000)))) < without + 1_300


def test_tasks_know_which_batch_was_decided_last() -> None:
    epoch = epoch_after(3, [])
    assert epoch.number > 7
    assert epoch.covers(QUERY, 7)
    assert epoch.covers(QUERY, 6)
    assert not epoch.covers(QUERY, 8)
    assert not epoch.covers("another query", 7)


def test_tasks_know_whether_their_records_are_lost() -> None:
    epoch = epoch_after(12, ["orders-1-0", "orders-11-3"])
    assert [task for task in range(12) if epoch.has_lost(task)] == [1, 11]
    assert epoch.lost_count == 2
    assert not any(epoch_after(12, []).has_lost(task) for task in range(12))


def test_numbers_go_on_where_only_the_finished_group_is_left() -> None:
    """The ledger's group may be deleted, or expire, and the group of finished numbers stay."""
    first = LedgerState(None, finished=0).next_number
    assert first > BEYOND_ALL_LOGS
    assert LedgerState(None, finished=first).next_number == first + 1
    later = replace(decision(3), number=first + 7)
    assert LedgerState(later, finished=0).next_number == first + 8


def test_a_ledger_with_small_numbers_is_continued_beyond_all_logs() -> None:
    assert LedgerState(decision(3), finished=7).next_number == LedgerState(None, finished=0).next_number
