"""The driver's right to decide about one batch, as the driver's processes and the tasks hand it to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafka_source.sink.two_phase.ledger import DecidedBatch, LedgerState
from kafka_source.transactions.open_transaction import OpenTransaction


@dataclass(frozen=True, slots=True)
class DriverEpoch:
    """The right to decide about one batch; it ends when another driver begins a batch with the same prefix.

    It travels to every task and returns with the commit message of every task. So it holds neither the transactions nor
    the partitions of the last decision: the messages of n tasks would hold n² of them, 4.4 GB for 10,000 tasks. The
    driver reads them from the ledger.

    Attributes:
        driver: The epoch of `{prefix}-driver`. The decision is written in a transaction of this epoch.
        finished: The epoch of `{prefix}-finished`. It serves the transaction that records the decision as finished.
        number: The number of the next decision, above every number in the ledger.
        last: The batch of the last decision; None if the ledger is empty.
        lost: The tasks of the last decision whose records have to be written again, because their transactions no
            longer exist. Bit n stands for task n; 0 if no records are lost. For the tasks only.
    """

    driver: OpenTransaction
    finished: OpenTransaction
    number: int
    last: DecidedBatch | None = None
    lost: int = 0

    @classmethod
    def after(
        cls, driver: OpenTransaction, finished: OpenTransaction, ledger: LedgerState, lost: Iterable[str] = ()
    ) -> DriverEpoch:
        """Return the epoch of a driver that has read the ledger and has completed its last decision.

        Args:
            driver: See the attribute.
            finished: See the attribute.
            ledger: The content of the ledger.
            lost: Transactional ids of the last decision whose transactions no longer exist.
        """
        tasks = {task_number(name) for name in lost}
        last = None if ledger.last is None else ledger.last.name
        return cls(driver, finished, ledger.next_number, last, sum(1 << task for task in tasks))

    def covers(self, query: str, batch: int) -> bool:
        """Return whether a batch is decided already, so that its tasks run as a replay."""
        return self.last is not None and self.last.covers(query, batch)

    @property
    def in_message(self) -> DriverEpoch:
        """The epoch as it returns to the driver, which finds out again what is lost."""
        return replace(self, lost=0)

    def has_lost(self, task: int) -> bool:
        """Return whether the records of a task of the last decision have to be written again."""
        return bool(self.lost >> task & 1)

    @property
    def lost_count(self) -> int:
        """The number of tasks whose records have to be written again."""
        return self.lost.bit_count()


def task_number(transactional_id: str) -> int:
    """Return the task's number in a transactional id `{prefix}-{task}-{attempt}`."""
    return int(transactional_id.rsplit("-", 2)[1])
