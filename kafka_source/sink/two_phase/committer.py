"""Two-phase commit in the driver: decide about a batch, commit, abort and fence; recovery from a crash at each step.

The steps of a batch, and the effect of a crash after each of them:

1. The driver begins the batch: it initialises `{prefix}-driver`, which fences every other driver of this prefix. The
   driver commits the transactions that an earlier driver decided and did not finish, and aborts transactions that no
   decision names. After a crash no task has begun.
2. Each task writes in a transaction of its own, flushes, and leaves the transaction open. After a crash the records
   stay invisible to readers. Step 5, or step 1 of the next batch, aborts the transaction of a killed attempt.
3. The driver checks that all of these transactions are still open. The driver writes its decision into the ledger, in
   one transaction of the epoch from step 1, together with the source's offsets if this sink commits them. This is the
   commit point. Before this point no record of the batch can become visible. After this point all records become
   visible, unless a transaction exceeds `kafka.transaction.timeout.ms` before step 4 (LostTransactionsError).
4. The driver commits each transaction and waits until the records are visible. After a crash the next driver commits
   the transactions that the ledger names, and the replay of the batch writes nothing. A coordinator answers the second
   commit of a transaction like the first commit.
5. The driver records the decision as finished, aborts open transactions of this sink that no decision names, and fences
   attempts that have not sent a request yet. An attempt that begins later finds `{prefix}-driver` no longer in the
   epoch of step 1, and sends nothing. Until the decision is recorded as finished, every new batch repeats step 4.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from assignors.model import TopicPartition
from kafka_source.commits.source_offsets import SourceOffsets
from kafka_source.errors import ApplicationRecoverableError, FencedError, KafkaGroupError, LostTransactionsError
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient
from kafka_source.model.partition_runs import first_names
from kafka_source.runtime.failpoints import failpoint
from kafka_source.sink.two_phase.ledger import DecidedBatch, Decision, Ledger, LedgerState, homes_of
from kafka_source.sink.two_phase.open_transactions import (
    EMPTY,
    ONGOING,
    Described,
    describe,
    describe_all,
    list_in_states,
    list_open,
)
from kafka_source.sink.two_phase.visibility import wait_until_visible
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafka_source.transactions.open_transaction import FENCED_TIMEOUT_MS, OpenTransaction, end, initialise, is_gone

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_R = TypeVar("_R")

Renew = Callable[[FencedError, Set[tuple[int, str]]], Awaitable[tuple[GroupOffsets, ...]]]
"""Returns offsets of groups with current credentials, after the previous credentials were refused with this error."""

# Writing the decision takes milliseconds, and readers of the groups' offsets wait for the decision's transaction. This
# driver stops its attempts before the coordinator aborts the transaction, because the abort raises the epoch.
_DECISION_TIMEOUT_MS = 30_000
_DECISION_MARGIN_SECONDS = 3.0
_VISIBLE_SECONDS = 30.0
# A transaction that is decided must be committed before it times out.
_MAX_MARGIN_MS = 5_000
# The number of transactions to end in parallel; a coordinator ends hundreds in a second.
_MAX_IN_FLIGHT = 200
# The maximum number of transactions that an error names.
_MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """The open transactions of a batch, ready for the driver's decision.

    Attributes:
        query: The id of the query, or of the single write, that the batch belongs to.
        number: The batch's number in the query.
        transactions: The tasks' open transactions with the partitions that they have written to; empty without rows.
        sources: The offsets to commit for the sources of the batch.
    """

    query: str
    number: int
    transactions: Mapping[OpenTransaction, tuple[TopicPartition, ...]]
    sources: SourceOffsets = field(default_factory=SourceOffsets)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that the batch has written to."""
        return tuple(sorted({tp for partitions in self.transactions.values() for tp in partitions}))


@dataclass(frozen=True, slots=True)
class DriverEpoch:
    """The right to decide about one batch; it ends when another driver begins a batch with the same prefix.

    Every task gets the epoch and returns it with its commit message. The epoch lacks the last decision's transactions
    and partitions, because n messages would have n² of them (4.4 GB for 10,000 tasks). The driver reads the decision
    from the ledger.

    Attributes:
        driver: The epoch of `{prefix}-driver`. The decision is written in a transaction of this epoch.
        finished: The epoch of `{prefix}-finished`. The decision is recorded as finished in a transaction of this epoch.
        number: The number of the next decision, above every number in the ledger.
        last: The batch of the last decision; None if the ledger is empty.
        lost: The tasks of the last decision whose records have to be written again, because their transactions no
            longer exist. Bit n stands for task n; 0: no records are lost. Commit messages lack this field.
    """

    driver: OpenTransaction
    finished: OpenTransaction
    number: int
    last: DecidedBatch | None = None
    lost: int = 0

    @classmethod
    def after(
        cls, driver: OpenTransaction, finished: OpenTransaction, ledger: LedgerState, lost: Iterable[str] = ()
    ) -> "DriverEpoch":
        """Return the epoch of a driver that has read the ledger and has completed the ledger's last decision.

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
    def in_message(self) -> "DriverEpoch":
        """The epoch without `lost`, for a commit message; the driver looks up lost transactions again."""
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


class TwoPhaseCommit:
    """The driver's part of two-phase commit, for the batches of one sink.

    Args:
        client: Client of the cluster that the sink writes to.
        prefix: The sink's `transactional.id.prefix`, which only one query uses, also after a restart.
    """

    def __init__(self, client: KafkaClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._ledger = Ledger(client, prefix)

    async def begin(self, deadline: Deadline, *, replays: bool = False) -> DriverEpoch:
        """Begin a batch: fence other drivers, complete the last decision, abort undecided transactions.

        Args:
            deadline: Limit for the whole call.
            replays: Whether the replay of a batch may write its lost records again (`transactional.on.lost=replay`).

        Raises:
            LostTransactionsError: Transactions of the last decision no longer exist, and `replays` is false.
            NotVisibleError: The last batch is committed, but a broker has lost the markers that make it visible.
        """
        # All existing transactions belong to earlier batches, so the list can be fetched at the same time.
        driver, finished, left = await asyncio.gather(
            self._initialise("driver", deadline), self._initialise("finished", deadline), self._not_ended(deadline)
        )
        ledger = await self._ledger.read(deadline)
        last = ledger.last
        lost: list[str] = []
        if last is not None and not last.done:
            lost = await self._commit_all(last.transactions, deadline)
            if lost:
                await self._check_not_replaced(driver, deadline)
            if lost and not replays:
                raise LostTransactionsError(batch=last.batch, transactional_ids=sorted(lost), decided=True)
            if not lost:
                await self._record_finished(finished, last, deadline)
                # One epoch serves one transaction.
                finished = await self._initialise("finished", deadline)
        if not lost:
            decided = () if last is None else last.transactions
            await self._abort([one for one in left if one.transaction not in decided], driver, deadline)
        return DriverEpoch.after(driver, finished, ledger, lost)

    async def commit(
        self, epoch: DriverEpoch, batch: PreparedBatch, deadline: Deadline, renew: Renew | None = None
    ) -> None:
        """Commit a batch: all of its transactions become visible or, after an error before the decision, none of them.

        Args:
            epoch: The epoch that `begin` returned for this batch.
            batch: The prepared transactions.
            deadline: Limit for the whole call.
            renew: Called with the group's error and the refused generations and member ids; returns the sources'
                offsets with other credentials, or raises the error. None: a refusal ends the batch with the error.

        Raises:
            LostTransactionsError: A transaction exceeded kafka.transaction.timeout.ms, or another query uses the
                prefix. If this happens after the decision, records of these transactions are lost.
            FencedError: Another driver has begun a batch, the source's group has replaced a member, or the batch is
                refused. Nothing is decided, and the batch is aborted.
            NotVisibleError: The batch is committed, but a broker has lost the markers that make it visible.
        """
        replayed = epoch.covers(batch.query, batch.number)
        decision, missing = (
            await self._repaired(epoch, batch, deadline) if replayed else (self._decision(epoch, batch), [])
        )
        if decision is None or batch.sources.refusal is not None:
            if batch.sources.taken:
                await commit_in(self._client, epoch.driver, batch.sources.taken, deadline)
            if batch.sources.refusal is not None:
                raise batch.sources.refusal
            await self._abort_open(epoch, deadline)
            return
        epoch = await self._decide_or_abort(epoch, batch, decision, renew, deadline)
        failpoint("sink-decided")
        # The other transactions of a replay's decision are committed already.
        decided = sorted({*batch.transactions}.intersection(decision.transactions))
        lost = [*missing, *await self._commit_all(decided, deadline)]
        if lost:
            await self._check_not_replaced(epoch.driver, deadline)
            raise LostTransactionsError(batch=decision.batch, transactional_ids=sorted(lost), decided=True)
        failpoint("sink-committed")
        await asyncio.gather(
            self._record_finished(epoch.finished, decision, deadline), self._abort_open(epoch, deadline)
        )

    async def accept_loss(self, epoch: DriverEpoch, deadline: Deadline) -> None:
        """Record the last decision as finished, although the records of its lost transactions are missing."""
        if epoch.lost and epoch.last is not None:
            await self._ledger.record_finished(epoch.finished, epoch.last, deadline)

    async def decided(self, deadline: Deadline) -> Decision | None:
        """Return the newest decision if it is not finished, because its driver died; else None."""
        last = await self._ledger.last(deadline)
        return None if last is None or last.done else last

    async def undecided(self, deadline: Deadline) -> list[Described]:
        """Return the sink's open transactions that no decision names."""
        decision = await self.decided(deadline)
        return _without(decision, await list_open(self._client, self._prefix, deadline))

    async def abort_undecided(self, deadline: Deadline, epoch: DriverEpoch | None = None) -> list[Described]:
        """Abort the sink's open transactions that no decision names, because `read_committed` readers wait for them.

        Return the aborted transactions; all others have ended. Tasks that still run, or begin later, are fenced.

        Args:
            deadline: Limit for the whole call.
            epoch: From `begin`. If another driver has begun a batch since, the transactions may be that driver's and
                are not aborted. None: fence every driver first, so that no driver decides about a part of its batch.
        """
        if epoch is None:
            driver, _ = await asyncio.gather(
                self._initialise("driver", deadline), self._initialise("finished", deadline)
            )
        else:
            # Take the next epoch of the same driver, to show tasks that their batch has ended.
            try:
                driver = await self._initialise("driver", deadline, ended=epoch.driver)
            except FencedError:
                return []
        decision = await self.decided(deadline)
        return await self._abort(_without(decision, await self._not_ended(deadline)), driver, deadline)

    async def _not_ended(self, deadline: Deadline) -> list[Described]:
        """Return the tasks' transactions that are open, or may still be opened by their latest holders."""
        found = await list_in_states(self._client, self._prefix, [EMPTY, ONGOING], deadline)
        return [one for one in found if one.is_in_use]

    async def _abort(self, left: list[Described], driver: OpenTransaction, deadline: Deadline) -> list[Described]:
        """End and fence transactions, unless another driver has begun a batch; return the aborted transactions."""
        # `left` was read before this check, so it has no transaction of a driver that begins later.
        if not left or not await self._is_current(driver, deadline):
            return []
        found = await _each(self._abort_one, left, deadline)
        ended = [one for one, has_ended in zip(left, found, strict=True) if has_ended]
        # InitProducerId aborts even a later transaction that is open, as a task of a later driver may have prepared it.
        if await self._is_current(driver, deadline):
            await _each(functools.partial(self._fence_one, driver), ended, deadline)
        return [one for one in ended if one.is_open]

    async def _abort_one(self, one: Described, deadline: Deadline) -> bool:
        """Abort a transaction if it is open; return False if it is not the last transaction of its id."""
        if one.is_open:
            try:
                await end(self._client, one.transaction, commit=False, deadline=deadline)
            except KafkaGroupError as error:
                # The transaction has ended since: a task initialised the id again, or the transaction timed out.
                if not is_gone(error):
                    raise
                return False
        return True

    async def _fence_one(self, driver: OpenTransaction, one: Described, deadline: Deadline) -> None:
        """Fence the task of a transaction that has ended."""
        # EndTxn keeps the epoch, so a task that still runs would open a new transaction of the same epoch with the rest
        # of its records. InitProducerId raises the epoch, unless another process has done so already.
        ended, is_current = one.transaction, functools.partial(self._is_current, driver, deadline)
        name = ended.transactional_id
        try:
            await initialise(self._client, name, FENCED_TIMEOUT_MS, deadline, ended=ended, repeat_while=is_current)
        except KafkaGroupError as error:
            if not is_gone(error):
                raise

    async def _initialise(
        self, name: str, deadline: Deadline, *, ended: OpenTransaction | None = None
    ) -> OpenTransaction:
        """Initialise one of the driver's transactional ids, and so fence every other driver that holds the id.

        With `ended` (the id's last transaction), fence no driver: if another driver has begun, raise FencedError.
        """
        return await initialise(self._client, f"{self._prefix}-{name}", _DECISION_TIMEOUT_MS, deadline, ended=ended)

    async def _is_current(self, driver: OpenTransaction, deadline: Deadline) -> bool:
        """Return whether `{prefix}-driver` still has this epoch, so that no other driver has begun a later batch."""
        now = await describe(self._client, driver.transactional_id, deadline)
        return now.transaction == driver

    async def _check_not_replaced(self, driver: OpenTransaction, deadline: Deadline) -> None:
        """Raise an error if another driver has begun a batch after this driver.

        The other driver has committed the transactions of the last decision, and its tasks have initialised their ids
        again, so this driver cannot distinguish committed from lost transactions. The other driver reports any loss.
        """
        if not await self._is_current(driver, deadline):
            raise FencedError(
                f"Another driver with transactional.id.prefix={self._prefix} has begun a batch while this driver was "
                "committing the last decision. That driver completes the decision. Let only one query use the prefix."
            )

    async def lost_transactions(self, epoch: DriverEpoch, deadline: Deadline) -> LostTransactionsError:
        """Return the error that names the transactions which the last decision has lost."""
        decision = await self._last_decision(epoch, deadline)
        ids = [one.transactional_id for one in decision.transactions if epoch.has_lost(_task(one))]
        return LostTransactionsError(batch=decision.batch, transactional_ids=sorted(ids), decided=True)

    async def _last_decision(self, epoch: DriverEpoch, deadline: Deadline) -> Decision:
        """Read the decision that `epoch.last` names.

        Raises:
            FencedError: Another driver has decided about a batch since.
        """
        last = await self._ledger.last(deadline)
        if last is None or epoch.last is None or last.number != epoch.last.number:
            raise FencedError(
                f"Another driver with transactional.id.prefix={self._prefix} has decided about a batch since this "
                "driver began. Nothing of this batch is decided. Let only one query use the prefix."
            )
        return last

    def _decision(self, epoch: DriverEpoch, batch: PreparedBatch) -> Decision | None:
        """Return the decision about a new batch; None if it has neither rows nor offsets."""
        written = batch.partitions
        read = sorted({tp for source in batch.sources.offsets for tp in source.offsets})
        homes = homes_of([*written, *read])
        if not homes:
            return None
        return Decision(epoch.number, batch.query, batch.number, homes, tuple(sorted(batch.transactions)), written)

    async def _repaired(
        self, epoch: DriverEpoch, batch: PreparedBatch, deadline: Deadline
    ) -> tuple[Decision | None, list[str]]:
        """Return the last decision with the replay's transactions instead of lost ones, and the ids that stay lost.

        A transaction stays lost if the replay has another number of records. The decision is None without a loss.

        Raises:
            LostTransactionsError: All lost transactions stay lost.
        """
        decision = await self._last_decision(epoch, deadline)
        if decision.done:
            return None, []
        # `begin` has committed all transactions that exist. A repeated commit has the answer of the first commit.
        lost = set(await self._commit_all(decision.transactions, deadline))
        replayed = {_task(t): t for t in batch.transactions}
        found, missing = [], []
        for old in decision.transactions:
            new = replayed.get(_task(old), old)
            if old.transactional_id in lost and (new is old or new.records != old.records):
                missing.append(old.transactional_id)
                new = old
            found.append(new)
        if missing and lost == {*missing}:
            raise LostTransactionsError(batch=batch.number, transactional_ids=sorted(missing), decided=True)
        partitions = tuple(sorted({*decision.partitions, *batch.partitions}))
        repaired = replace(decision, number=epoch.number, transactions=tuple(found), partitions=partitions)
        return repaired, missing

    async def _check_open(self, epoch: DriverEpoch, batch: PreparedBatch, deadline: Deadline) -> list[Described]:
        """Return the batch's transactions if all of them are open; else raise an error."""
        found = await describe_all(self._client, [t.transactional_id for t in batch.transactions], deadline)
        still_open = {one.transaction for one in found if one.is_open}
        lost = [t.transactional_id for t in batch.transactions if t not in still_open]
        if lost and not await self._is_current(epoch.driver, deadline):
            raise FencedError(
                f"Another driver with transactional.id.prefix={self._prefix} has begun a batch after this driver began "
                f"batch {batch.number}. No record of this batch is visible. Let only one query use the prefix."
            )
        if lost:
            raise LostTransactionsError(batch=batch.number, transactional_ids=lost, decided=False)
        return found

    async def _check_time_left(
        self, epoch: DriverEpoch, batch: PreparedBatch, prepared: Sequence[Described], deadline: Deadline, began: float
    ) -> None:
        """Raise an error if transactions may time out between the decision and their commit.

        The start time of the decision's own transaction, which began after `began`, gives the coordinator's clock. The
        process may have been suspended since.
        """
        decision = await describe(self._client, epoch.driver.transactional_id, deadline)
        now_ms = decision.started_ms + int((time.monotonic() - began) * 1000)
        late = [one.transaction.transactional_id for one in prepared if times_out_soon(one, now_ms)]
        if late:
            raise ApplicationRecoverableError(
                f"Batch {batch.number} is not committed: transactions {first_names(late, _MAX_NAMED)} have been open "
                f"for almost kafka.transaction.timeout.ms={prepared[0].timeout_ms}, and could time out before all of "
                "them are committed. Nothing is lost: the batch is written again when the query restarts. Raise "
                "kafka.transaction.timeout.ms, or make batches smaller."
            )

    async def _decide_or_abort(
        self, epoch: DriverEpoch, batch: PreparedBatch, decision: Decision, renew: Renew | None, deadline: Deadline
    ) -> DriverEpoch:
        """Write a decision with the offsets of its sources; return the epoch that has written it.

        After an error, abort the batch, because Spark's abort has the epoch of `begin`, and a renewal of credentials
        has taken later epochs.
        """
        sources = batch.sources.offsets
        refused: set[tuple[int, str]] = set()
        try:
            prepared = await self._check_open(epoch, batch, deadline)
            failpoint("sink-prepared")
            while True:
                try:
                    # The ledger comes last, so that no decision is written if the source's group refuses its offsets.
                    offsets = [*sources, *batch.sources.taken, *batch.sources.record, *self._ledger.entries(decision)]
                    await self._decide(epoch, batch, offsets, prepared, deadline)
                    known = () if epoch.last is None else epoch.last.homes
                    if known == decision.homes or await self._ledger.shows(decision, deadline):
                        return epoch
                except FencedError as error:
                    used = {(one.member.generation, one.member.member_id) for one in sources}
                    if renew is None or not sources or used <= refused:
                        raise
                    refused |= used
                    sources = await renew(error, refused)
                # One epoch serves one transaction. The initialisation raises an error if another driver has begun a
                # later batch.
                epoch = replace(epoch, driver=await self._initialise("driver", deadline, ended=epoch.driver))
                prepared = await self._check_open(epoch, batch, deadline)
        except KafkaGroupError:
            with suppress(KafkaGroupError):
                await self.abort_undecided(deadline, epoch)
            raise

    async def _decide(
        self,
        epoch: DriverEpoch,
        batch: PreparedBatch,
        offsets: Sequence[GroupOffsets],
        prepared: Sequence[Described],
        deadline: Deadline,
    ) -> None:
        within = Deadline(min(deadline.left, _DECISION_TIMEOUT_MS / 1000 - _DECISION_MARGIN_SECONDS))
        began = time.monotonic()
        await commit_in(
            self._client,
            epoch.driver,
            offsets,
            within,
            before_commit=lambda: self._check_time_left(epoch, batch, prepared, within, began),
        )

    async def _record_finished(self, finished: OpenTransaction, decision: Decision, deadline: Deadline) -> None:
        """Record that a decision is finished, when its records are visible."""
        await self._ledger.record_finished(
            finished, decision, deadline, before_commit=lambda: self._visible(decision, deadline)
        )

    async def _visible(self, decision: Decision, deadline: Deadline) -> None:
        within = Deadline(min(_VISIBLE_SECONDS, deadline.left))
        await wait_until_visible(self._client, decision.batch, decision.transactions, decision.partitions, within)

    async def _abort_open(self, epoch: DriverEpoch, deadline: Deadline) -> None:
        """End every transaction of the sink, after all decided transactions are committed."""
        await self._abort(await self._not_ended(deadline), epoch.driver, deadline)

    async def _commit_all(self, transactions: Sequence[OpenTransaction], deadline: Deadline) -> list[str]:
        """Commit transactions; return the transactional ids of transactions that no longer exist."""
        if not transactions:
            return []
        await self._client.find_coordinators([one.transactional_id for one in transactions], deadline, TRANSACTION)
        first, *others = transactions
        lost = [await self._commit_one(first, deadline)]
        failpoint("sink-half-committed")
        lost += await _each(self._commit_one, others, deadline)
        return [name for name in lost if name is not None]

    async def _commit_one(self, transaction: OpenTransaction, deadline: Deadline) -> str | None:
        """Commit a transaction; return its transactional id if the transaction no longer exists, else None."""
        try:
            await end(self._client, transaction, commit=True, deadline=deadline)
        except KafkaGroupError as error:
            if not is_gone(error):
                raise
            log.error("decided transaction is lost: %s", error)
            return transaction.transactional_id
        return None


async def _each(work: Callable[[_T, Deadline], Awaitable[_R]], items: Sequence[_T], deadline: Deadline) -> list[_R]:
    """Return the results of a call for each item, with a limited number of calls in parallel.

    A coordinator answers the requests of a connection in turn. With thousands of requests in flight the last request
    would wait longer than `request.timeout.ms`, and all requests would be repeated.
    """
    free = asyncio.Semaphore(_MAX_IN_FLIGHT)

    async def call(item: _T) -> _R:
        async with free:
            return await work(item, deadline)

    return await asyncio.gather(*map(call, items))


def _task(transaction: OpenTransaction) -> int:
    return task_number(transaction.transactional_id)


def _without(decision: Decision | None, found: Iterable[Described]) -> list[Described]:
    decided = set() if decision is None else set(decision.transactions)
    return [one for one in found if one.transaction not in decided]


def times_out_soon(one: Described, now_ms: int) -> bool:
    """Return whether a coordinator may abort a transaction before it can be committed.

    Args:
        one: An open transaction.
        now_ms: The time of the coordinators, in milliseconds since 1970.
    """
    margin_ms = min(_MAX_MARGIN_MS, one.timeout_ms // 10)
    return one.started_ms + one.timeout_ms - margin_ms <= now_ms
