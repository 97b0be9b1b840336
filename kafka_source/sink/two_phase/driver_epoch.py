"""The driver's right to decide about one batch, as the driver's processes and the tasks hand it to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_source.sink.two_phase.ledger import DecidedBatch, Decision, LedgerState
from kafka_source.transactions.open_transaction import OpenTransaction


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records of the last decision that are not in Kafka, because their transactions no longer exist.

    Attributes:
        decision: The last decision.
        transactional_ids: The ids of the lost transactions. The replay of the batch has to write their records again.
    """

    decision: Decision
    transactional_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class DriverEpoch:
    """The right to decide about one batch; it ends when another driver begins a batch with the same prefix.

    It travels to every task and returns with the commit message of every task. So it names the last decision, but holds
    neither its transactions nor its partitions: with them, the messages of n tasks would hold n² transactions, 1.1 GB
    for 5,000 tasks. They are here only if some are lost, which a task has to know.

    Attributes:
        driver: The epoch of `{prefix}-driver`. The decision is written in a transaction of this epoch.
        finished: The epoch of `{prefix}-finished`. It serves the transaction that records the decision as finished.
        number: The number of the next decision, above every number in the ledger.
        last: The batch of the last decision; None if the ledger is empty.
        lost: The records of the last decision that have to be written again; None if there are none.
    """

    driver: OpenTransaction
    finished: OpenTransaction
    number: int
    last: DecidedBatch | None = None
    lost: LostRecords | None = None

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
        last, ids = ledger.last, frozenset(lost)
        return cls(
            driver,
            finished,
            ledger.next_number,
            None if last is None else last.name,
            LostRecords(last, ids) if last is not None and ids else None,
        )

    def covers(self, query: str, batch: int) -> bool:
        """Return whether a batch is decided already, so that its tasks run as a replay."""
        return self.last is not None and self.last.covers(query, batch)
