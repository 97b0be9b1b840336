"""Two-phase commit: tasks leave their transactions open, the driver decides about all of them and ends them.

The order of things for a batch, and what a crash between them leaves behind:

1. The driver takes its turn: it initialises `{prefix}-driver`, after which no other driver of this prefix can decide
   anything, finishes what was decided before, and aborts what was not.
2. Each task writes in a transaction of its own, flushes, and leaves it open. A crash: nobody sees the records; the
   replayed task initialises the same transactional id, which aborts the old transaction.
3. The driver checks that all of them are still open and writes its decision into the ledger, with the offsets of the
   query's source if they are this sink's to commit, in one transaction with the epoch of its turn. Before this moment
   the batch does not exist, after it nothing can take it back.
4. The driver commits each transaction, and waits until the records can be seen. A crash: the next turn commits what
   the ledger names, and the replay writes nothing. To commit a transaction again is answered as the first time.
5. The ledger notes that the batch is done: until then every turn begins with step 4. Transactions of this sink that
   nobody decided on are aborted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from assignors.model import TopicPartition
from kafka_source.errors import FencedError, KafkaGroupError, LostTransactionsError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.runtime.failpoints import failpoint
from kafka_source.sink.two_phase.ledger import Decision, Ledger
from kafka_source.sink.two_phase.open_transactions import Described, describe, describe_all, open_of
from kafka_source.sink.two_phase.visibility import wait_until_visible
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafka_source.transactions.open_transaction import OpenTransaction, end, initialise, is_gone

log = logging.getLogger(__name__)

# The decision itself is a matter of milliseconds; while it is open, readers of the groups' offsets wait.
_DECISION_TIMEOUT_MS = 30_000
_VISIBLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to decide about one batch, until another driver takes its turn.

    Attributes:
        driver: The epoch of `{prefix}-driver` in which the decision is to be written.
        notes: That of `{prefix}-finished`, in which it is to be noted that nothing is left to do for the decision.
        last: The newest decision.
        lost: Transactional ids of the last decision whose transactions are gone: their records have to come from the
            replay of that batch.
    """

    driver: OpenTransaction
    notes: OpenTransaction
    last: Decision | None = None
    lost: frozenset[str] = frozenset()

    def covers(self, query: str, batch: int) -> bool:
        """Whether a batch is decided already: what tasks write of it now is a replay."""
        return self.last is not None and self.last.covers(query, batch)


@dataclass(frozen=True, slots=True)
class Batch:
    """What the tasks of a batch have done.

    Attributes:
        query: Which query, or which single write, it is of.
        number: Its number in the query.
        prepared: The open transactions, and the partitions that each has written to; none if there were no rows.
        sources: Offsets of groups that are to be committed with it.
    """

    query: str
    number: int
    prepared: Mapping[OpenTransaction, tuple[TopicPartition, ...]]
    sources: tuple[GroupOffsets, ...] = ()

    @property
    def places(self) -> tuple[TopicPartition, ...]:
        """The partitions that were written to."""
        return tuple(sorted({tp for partitions in self.prepared.values() for tp in partitions}))


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

    async def begin(self, deadline: Deadline, *, replays: bool = False) -> Turn:
        """Take the turn before the tasks of a batch begin: nothing of an earlier batch is left undone after it.

        Args:
            deadline: For all of it.
            replays: Whether records of decided transactions that are gone may come from the replay of their batch.

        Raises:
            LostTransactionsError: A decided transaction is gone, and its records with it.
            NotVisibleError: The last batch is committed, but a broker has lost what makes it visible.
        """
        # What is open by now is of an earlier batch, so it may be looked for meanwhile.
        driver, notes, left = await asyncio.gather(
            self._take("driver", deadline),
            self._take("finished", deadline),
            open_of(self._client, self._prefix, deadline),
        )
        turn = Turn(driver, notes, await self._ledger.last(deadline))
        if turn.last is not None and not turn.last.done:
            turn = await self._finish_last(turn, turn.last, deadline, replays=replays)
        if not turn.lost:
            decided = () if turn.last is None else turn.last.transactions
            await self._abort([one for one in left if one.transaction not in decided], turn, deadline)
        return turn

    async def commit(self, turn: Turn, batch: Batch, deadline: Deadline) -> None:
        """Make a batch visible, all of its transactions or, on an error before the decision, none.

        Raises:
            LostTransactionsError: A transaction is no longer there, because it took too long or another query uses the
                prefix. Before the decision nothing is lost, after it the records of the named ones are.
            FencedError: Another driver has taken its turn, or a member of the source's group has been replaced: nothing
                is decided.
            NotVisibleError: The batch is committed, but a broker has lost what makes it visible.
        """
        covered = turn.covers(batch.query, batch.number)
        decision = self._repaired(turn, batch) if covered else self._decision(turn, batch)
        if decision is not None:
            await self._check_open(turn, batch, deadline)
            failpoint("sink-prepared")
            # The ledger comes last: what a source's group refuses is not decided.
            sources = () if covered else batch.sources
            await commit_in(self._client, turn.driver, [*sources, *self._ledger.entries(decision)], deadline)
            failpoint("sink-decided")
            await self._finish(turn, decision, batch, deadline)
        else:
            await self._sweep(turn, deadline)

    async def accept_loss(self, turn: Turn, deadline: Deadline) -> None:
        """Go on without the records of decided transactions that are gone."""
        if turn.lost and turn.last is not None:
            await self._ledger.finished(turn.notes, turn.last, deadline)

    async def give_up(self, turn: Turn, write: str, place: TopicPartition | None, deadline: Deadline) -> None:
        """Nothing of a single write shall be seen, and its tasks that still run shall not leave transactions behind.

        A task that is done is aborted here; one that is not finds the write in the ledger and aborts itself. Not for
        streams, whose batch is written again.

        Args:
            turn: The driver's.
            write: Which write.
            place: A partition to keep the note at; None: one that this sink has written to is looked for.
            deadline: For all of it.
        """
        if not await self._is_still(turn, deadline):
            return
        place = place or await self._any_place(turn, deadline)
        turn = await self.begin(deadline)
        if place is None:
            # Nothing is open, nor was anything ever written: what a task opens now the next turn aborts.
            return
        decision = Decision(1 if turn.last is None else turn.last.number + 1, write, 0, place)
        await commit_in(self._client, turn.driver, self._ledger.entries(decision), deadline)
        await self._ledger.finished(turn.notes, decision, deadline)
        await self.abort_undecided(deadline, turn)

    async def _any_place(self, turn: Turn, deadline: Deadline) -> TopicPartition | None:
        known = {tp for one in await self.undecided(deadline) for tp in one.partitions}
        return min(known, default=None if turn.last is None else turn.last.place)

    async def is_decided(self, query: str, batch: int, deadline: Deadline) -> bool:
        """Whether a batch needs no more tasks: it counts already, or its write was given up."""
        last = await self._ledger.last(deadline)
        return last is not None and last.covers(query, batch)

    async def decided(self, deadline: Deadline) -> Decision | None:
        """The newest decision if a driver died before all of its transactions were committed."""
        last = await self._ledger.last(deadline)
        return None if last is None or last.done else last

    async def undecided(self, deadline: Deadline) -> list[Described]:
        """The sink's open transactions that no decision names."""
        decision = await self.decided(deadline)
        decided = set() if decision is None else set(decision.transactions)
        return [one for one in await open_of(self._client, self._prefix, deadline) if one.transaction not in decided]

    async def abort_undecided(self, deadline: Deadline, turn: Turn | None = None) -> None:
        """Abort the sink's open transactions that no decision names; readers would wait for them otherwise.

        Args:
            deadline: For all of it.
            turn: The caller's: if another driver has begun a batch since, nothing is done, for they may be its. None:
                it is taken, so that a driver that is at work after all cannot decide about half of its batch.
        """
        if turn is None:
            turn = Turn(*await asyncio.gather(self._take("driver", deadline), self._take("finished", deadline)))
        await self._abort(await self.undecided(deadline), turn, deadline)

    async def _abort(self, found: list[Described], turn: Turn, deadline: Deadline) -> None:
        # In this order: what is open of another driver began after its turn.
        if not found or not await self._is_still(turn, deadline):
            return
        await asyncio.gather(*(self._abort_one(one, deadline) for one in found))

    async def _abort_one(self, one: Described, deadline: Deadline) -> None:
        of = one.transaction
        try:
            await end(self._client, of, commit=False, deadline=deadline)
            # Ending it leaves the epoch as it is: a task that still runs would go on in a new transaction with the same
            # epoch, which has only the later part of its records.
            await initialise(self._client, of.transactional_id, one.timeout_ms, deadline, ended=of)
        except KafkaGroupError as error:
            # Ended meanwhile, by a task that has initialised its id again or by the coordinator.
            if not is_gone(error):
                raise

    async def _finish_last(self, turn: Turn, last: Decision, deadline: Deadline, *, replays: bool) -> Turn:
        """Commit what an earlier driver has decided; the turn after that."""
        lost = await self._commit_all(last, deadline)
        if lost and not replays:
            raise LostTransactionsError(batch=last.batch, transactional_ids=sorted(lost), decided=True)
        if lost:
            return replace(turn, lost=frozenset(lost))
        await self._ledger.finished(turn.notes, last, deadline, after=self._visible(last, deadline))
        # An epoch is for one transaction.
        return replace(turn, notes=await self._take("finished", deadline), last=replace(last, done=True))

    async def _take(self, name: str, deadline: Deadline) -> OpenTransaction:
        """A transactional id of the driver's, taken from whoever had it."""
        return await initialise(self._client, f"{self._prefix}-{name}", _DECISION_TIMEOUT_MS, deadline)

    async def _is_still(self, turn: Turn, deadline: Deadline) -> bool:
        """Whether no other driver has begun a batch since."""
        now = await describe(self._client, turn.driver.transactional_id, deadline)
        return now.transaction == turn.driver

    def _decision(self, turn: Turn, batch: Batch) -> Decision | None:
        """What is to be decided; None: there is nothing to write down."""
        if turn.lost and turn.last is not None:
            # Only a replay of that batch has its records, and this is another one.
            raise LostTransactionsError(batch=turn.last.batch, transactional_ids=sorted(turn.lost), decided=True)
        written = batch.places
        read = {tp for source in batch.sources for tp in source.offsets}
        if not written and not read:
            return None
        number = 1 if turn.last is None else turn.last.number + 1
        place = min({*written, *read})
        return Decision(number, batch.query, batch.number, place, tuple(sorted(batch.prepared)), written)

    def _repaired(self, turn: Turn, batch: Batch) -> Decision | None:
        """The last decision with what was lost of it replaced by what the replay wrote; None: nothing was lost."""
        if not turn.lost or turn.last is None:
            return None
        again = {_task(t): t for t in batch.prepared}
        transactions = tuple(again.get(_task(t), t) for t in turn.last.transactions)
        wanting = sorted(
            old.transactional_id
            for old, new in zip(turn.last.transactions, transactions, strict=True)
            if old.transactional_id in turn.lost and (new is old or new.records != old.records)
        )
        if wanting:
            raise LostTransactionsError(batch=batch.number, transactional_ids=wanting, decided=True)
        places = tuple(sorted({*turn.last.places, *batch.places}))
        return replace(turn.last, number=turn.last.number + 1, transactions=transactions, places=places)

    async def _check_open(self, turn: Turn, batch: Batch, deadline: Deadline) -> None:
        found = await describe_all(self._client, [t.transactional_id for t in batch.prepared], deadline)
        still = {one.transaction for one in found if one.is_open}
        lost = [t.transactional_id for t in batch.prepared if t not in still]
        if lost and not await self._is_still(turn, deadline):
            raise FencedError(
                f"Another driver with the transactional.id.prefix {self._prefix} has begun a batch since this one "
                f"began batch {batch.number}. Nothing of this batch is visible. Let one query alone use the prefix."
            )
        if lost:
            raise LostTransactionsError(batch=batch.number, transactional_ids=lost, decided=False)

    async def _finish(self, turn: Turn, decision: Decision, batch: Batch, deadline: Deadline) -> None:
        lost = await self._commit_all(decision, deadline)
        if lost:
            raise LostTransactionsError(batch=decision.batch, transactional_ids=sorted(lost), decided=True)
        failpoint("sink-committed")
        await asyncio.gather(
            self._ledger.finished(turn.notes, decision, deadline, after=self._visible(decision, deadline)),
            self._fence_earlier_attempts(batch, deadline),
            self._sweep(turn, deadline),
        )

    async def _visible(self, decision: Decision, deadline: Deadline) -> None:
        within = Deadline(min(_VISIBLE_SECONDS, deadline.left))
        await wait_until_visible(self._client, decision.batch, decision.transactions, decision.places, within)

    async def _sweep(self, turn: Turn, deadline: Deadline) -> None:
        """Abort what is open when all that was decided is committed."""
        await self._abort(await open_of(self._client, self._prefix, deadline), turn, deadline)

    async def _fence_earlier_attempts(self, batch: Batch, deadline: Deadline) -> None:
        """A worker that was taken for dead may go on, and would open a transaction that nobody ends for a while."""
        names = [name for transaction in batch.prepared for name in _earlier_attempts(transaction)]
        await asyncio.gather(*(initialise(self._client, name, _DECISION_TIMEOUT_MS, deadline) for name in names))

    async def _commit_all(self, decision: Decision, deadline: Deadline) -> list[str]:
        """Commit what was decided; the transactional ids of what is gone."""
        if not decision.transactions:
            return []
        first, *others = decision.transactions
        lost = [await self._commit_one(first, deadline)]
        failpoint("sink-half-committed")
        lost += await asyncio.gather(*(self._commit_one(transaction, deadline) for transaction in others))
        return [name for name in lost if name is not None]

    async def _commit_one(self, transaction: OpenTransaction, deadline: Deadline) -> str | None:
        """None, or the transactional id if its transaction is gone."""
        try:
            await end(self._client, transaction, commit=True, deadline=deadline)
        except KafkaGroupError as error:
            if not is_gone(error):
                raise
            log.error("%s", error)
            return transaction.transactional_id
        return None


def _task(transaction: OpenTransaction) -> str:
    """What is the same in all attempts of a task."""
    return transaction.transactional_id.rpartition("-")[0]


def _earlier_attempts(transaction: OpenTransaction) -> list[str]:
    attempt = int(transaction.transactional_id.rpartition("-")[2])
    return [f"{_task(transaction)}-{number}" for number in range(attempt)]
