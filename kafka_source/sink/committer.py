"""Two-phase commit: tasks leave their transactions open, the driver decides about all of them and ends them.

The order of things for a batch, and what a crash between them leaves behind:

1. Each task writes in a transaction of its own, flushes, and leaves it open. A crash: nobody sees the records; the
   replayed task initialises the same transactional id, which aborts the old transaction.
2. The driver checks that all of them are still open and writes its decision into the ledger. Before this moment the
   batch does not exist, after it nothing can take it back.
3. The driver commits each transaction. A crash: Spark replays the batch; its tasks find it decided and write nothing,
   and the driver commits what the ledger names. To commit a transaction again is answered as the first time.
4. The ledger notes that the batch is done, and transactions of this sink that nobody decided on are aborted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from assignors.model import TopicPartition
from kafka_source.errors import (
    ApplicationRecoverableError,
    InvalidConfigurationError,
    LostTransactionsError,
)
from kafka_source.failpoints import reached
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.ledger import Decision, Ledger
from kafka_source.sink.ongoing import Described, OpenTransaction, describe, end, open_of

log = logging.getLogger(__name__)


class TwoPhaseCommit:
    """The driver's part, for the batches of one sink.

    Args:
        client: Of the cluster that is written to.
        prefix: Of the sink's transactional ids; a query's own, the same after every restart.
    """

    def __init__(self, client: KafkaClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._ledger = Ledger(client, prefix)

    async def commit(
        self,
        query: str,
        batch: int,
        prepared: Sequence[OpenTransaction],
        place: TopicPartition | None,
        deadline: Deadline,
    ) -> None:
        """Make a batch visible, all of its transactions or, on an error before the decision, none.

        Args:
            query: Which query, or which single write, the batch is of.
            batch: Its number; one that was decided before is finished, not decided anew.
            prepared: The transactions that its tasks left open; none if there were no rows.
            place: A partition that was written to, for the ledger; None without rows.
            deadline: For all of it.

        Raises:
            LostTransactionsError: A transaction is no longer there, because it took too long or another query uses the
                prefix. Before the decision nothing is lost, after it the records of the named ones are.
        """
        last = await self.finish_decided(deadline)
        if prepared and place is not None and not (last is not None and last.covers(query, batch)):
            await self._check_open(batch, prepared, deadline)
            number = 1 if last is None else last.number + 1
            decision = Decision(number, query, batch, place, done=False, transactions=tuple(sorted(prepared)))
            reached("sink-prepared")
            await self._ledger.decide(decision, deadline)
            reached("sink-decided")
            await self._finish(decision, deadline)
        await self.abort_undecided(deadline)

    async def finish_decided(self, deadline: Deadline) -> Decision | None:
        """Finish what a driver that died had decided; returns the newest decision."""
        last = await self._ledger.last(deadline)
        if last is not None:
            await self._finish(last, deadline)
        return last

    async def is_decided(self, query: str, batch: int, deadline: Deadline) -> bool:
        """Whether a batch needs no more tasks: it counts already, or its write was given up."""
        last = await self._ledger.last(deadline)
        return last is not None and last.covers(query, batch)

    async def give_up(self, write: str, place: TopicPartition, deadline: Deadline) -> None:
        """Nothing of a single write shall be seen, and its tasks that still run shall not leave transactions behind.

        A task that is done is aborted here; one that is not finds the write in the ledger and aborts itself. Not for
        streams, whose batch is written again.
        """
        last = await self.finish_decided(deadline)
        number = 1 if last is None else last.number + 1
        await self._ledger.finished(Decision(number, write, 0, place, done=True), deadline)
        await self.abort_undecided(deadline)

    async def abort_undecided(self, deadline: Deadline) -> None:
        """Abort the sink's open transactions that no decision names; readers would wait for them otherwise."""
        for one in await self.undecided(deadline):
            try:
                await end(self._client, one.transaction, commit=False, deadline=deadline)
            except ApplicationRecoverableError as error:
                # Ended meanwhile, by a task that has initialised its id again or by the coordinator.
                log.debug("%s", error)

    async def undecided(self, deadline: Deadline) -> list[Described]:
        """The sink's open transactions that no decision names."""
        decision = await self._ledger.last(deadline)
        decided = set() if decision is None or decision.done else set(decision.transactions)
        return [one for one in await open_of(self._client, self._prefix, deadline) if one.transaction not in decided]

    async def decided(self, deadline: Deadline) -> Decision | None:
        """The newest decision if a driver died before all of its transactions were committed."""
        last = await self._ledger.last(deadline)
        return None if last is None or last.done else last

    async def _check_open(self, batch: int, prepared: Sequence[OpenTransaction], deadline: Deadline) -> None:
        found = await asyncio.gather(*(describe(self._client, t.transactional_id, deadline) for t in prepared))
        still = {one.transaction for one in found if one.is_open}
        lost = [t.transactional_id for t in prepared if t not in still]
        if lost:
            raise LostTransactionsError(batch=batch, transactional_ids=lost, decided=False)

    async def _finish(self, decision: Decision, deadline: Deadline) -> None:
        if decision.done:
            return
        first, *others = decision.transactions
        lost = [await self._commit_one(first, deadline)]
        reached("sink-half-committed")
        lost += await asyncio.gather(*(self._commit_one(transaction, deadline) for transaction in others))
        names = [name for name in lost if name is not None]
        if names:
            raise LostTransactionsError(batch=decision.batch, transactional_ids=names, decided=True)
        reached("sink-committed")
        await self._ledger.finished(decision, deadline)

    async def _commit_one(self, transaction: OpenTransaction, deadline: Deadline) -> str | None:
        """None, or the transactional id if its transaction is gone."""
        try:
            await end(self._client, transaction, commit=True, deadline=deadline)
        except (ApplicationRecoverableError, InvalidConfigurationError) as error:
            log.error("%s", error)
            return transaction.transactional_id
        return None
