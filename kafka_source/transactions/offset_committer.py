"""Commit a group's offsets in transactions: the transactional id, retries, and users without rights to transactions.

The offsets of a commit become the group's offsets together or not at all. The group decides about commits: its
coordinator checks generation, member id and instance id in the transaction. The producer epoch orders the commits of
one transactional id: no offset of an earlier commit is written after a later commit. Attempts of a task are one member:
each attempt initialises the transactional id after it has read its records, and skips committed offsets.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    ApplicationRecoverableError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnknownTopicError,
)
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient, cached_client, topic_ids_to_commit
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_partitions
from kafka_source.options import ReadOptions
from kafka_source.runtime.logs import once
from kafka_source.runtime.retry import retry_async
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in, commits_by_id
from kafka_source.transactions.open_transaction import OpenTransaction, initialise, is_gone

log = logging.getLogger(__name__)

FetchEntries = Callable[
    [KafkaClient, str, Iterable[TopicPartition], Deadline], Awaitable[Mapping[TopicPartition, CommitOffset]]
]
"""Returns the offsets that a group has committed, with their metadata."""

# If this process dies during a commit, readers of the group's offsets wait until the coordinator aborts the
# transaction. This process stops its tries earlier, because the abort raises the epoch.
_TRANSACTION_TIMEOUT_MS = 10_000
_TRY_SECONDS = 8.0
# Errors of a cluster that has no transactions for this user; see `TransactionalCommitter.commit_as`.
_NO_TRANSACTIONS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)
_COORDINATOR_SECONDS = 30.0
# The tasks of a process check once in this number of seconds whether the cluster has transactions for this user.
_PLAIN_SECONDS = 300.0
_plain_until: dict[str, float] = {}


def transactional_id_of(group: str, partitions: Iterable[TopicPartition]) -> str:
    """Return the transactional id with which a member, or a query, commits offsets of its group.

    A broker keeps each id for seven days, so an id lives longer than a member. The first of the owned partitions names
    the id. Members of one generation have no partition in common, so they never fence each other. The next owner of
    this first partition, or a later run of the same job, takes the same id, and fences its predecessor's open
    transaction. So a group has at most as many ids as partitions, and a query that is alone in the group has one id. If
    tasks or a sink commit, the driver has another id, which ends in `-driver`.

    The id starts with the name of the group, so that a prefixed ACL covers it. The id ends in a hash. Without the hash,
    group `a` with topic `b-c` and group `a-b` with topic `c` would have one id and fence each other.

    Args:
        group: `group.id`.
        partitions: The partitions of the member or query in this generation; at least one.
    """
    first = min(partitions)
    digest = sha256(repr((group, first.topic, first.partition)).encode()).hexdigest()[:8]
    return f"{group}-{first.topic}-{first.partition}-{digest}"


def commits_plainly_after(error: InvalidConfigurationError, group: str, transactional: bool | None) -> bool:
    """Return whether to commit without transactions from now on, because the cluster refuses transactions to this user.

    The group coordinator still checks the member and its generation, as it does for every consumer. Only the check
    between two attempts of a task is lost, and both attempts commit equal offsets.

    Args:
        error: The outcome of a commit in a transaction.
        group: `group.id`.
        transactional: The option `commit.transactional`; None: not set. If true, the error ends the query.
    """
    if transactional is not None or error.code not in _NO_TRANSACTIONS:
        return False
    _plain_until[group] = time.monotonic() + _PLAIN_SECONDS
    if once(("commits without transactions", group)):
        log.warning(
            "group=%s: offsets are committed without transactions. %s To leave out this warning, set "
            "commit.transactional to false.",
            group,
            error,
        )
    return True


def coordinator_seconds(options: ReadOptions) -> float:
    """Return a query's longest wait for a transaction coordinator. By default, later commits use no transactions."""
    patience = options.coordinator_timeout_ms / 1000
    return patience if options.commit_transactional else min(_COORDINATOR_SECONDS, patience)


def was_without_transactions(group: str) -> bool:
    """Return whether `commits_plainly_after` has returned true for a group in this process in the last minutes."""
    return time.monotonic() < _plain_until.get(group, 0.0)


class TransactionalCommitter:
    """Commits a group's offsets in transactions of one transactional id; for one thread at a time.

    All committers of a process that have the same settings share one client, whose `client.id` ends in `-commit`. The
    members have another client, because an unanswered heartbeat closes the client's connection.

    Args:
        settings: The settings of the Kafka clients.
        transactional_id: The id of all its transactions. Brokers keep each id for 7 days, so use a bounded number of
            ids; see `transactional_id_of`.
        timeout: Seconds for one commit, with all its attempts.
        coordinator_seconds: Seconds to wait while the brokers name no transaction coordinator.
        attempt: `group.requests.fetch_entries`, for a committer that commits once, as one attempt of a task. Such a
            committer never replaces offsets of earlier attempts or later micro-batches. None: any other committer,
            which takes the next epoch as soon as a transaction has ended, unless the coordinator returns the epoch at
            the transaction's end (KIP-890's second protocol).
    """

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        *,
        timeout: float = 30.0,
        coordinator_seconds: float = _COORDINATOR_SECONDS,
        attempt: FetchEntries | None = None,
    ) -> None:
        self._client = cached_client(settings, "commit")
        self._transactional_id = transactional_id
        self._timeout = timeout
        self._coordinator_seconds = coordinator_seconds
        self._attempt = attempt
        # The next transaction, initialised in the background, or returned by the coordinator at the end of the last
        # transaction. The first initialisation fences an earlier owner and opens the connections.
        self._ready: Future[OpenTransaction] | None = self._client.loop.spawn(self._initialise(Deadline(timeout)))

    def commit_as(
        self,
        parts: Sequence[tuple[SlotCredentials, Mapping[TopicPartition, int | CommitOffset]]],
        *,
        has_looked: bool = True,
    ) -> None:
        """Commit the offsets of several members in one transaction: all offsets, or no offset.

        Args:
            parts: For each member its credentials and the next offsets to read, by partition.
            has_looked: Whether the caller has compared the topics' ids with the ids of the offsets. If neither the
                caller nor the coordinator compares the ids, UnknownTopicError is raised, so that the caller compares
                them.

        Raises:
            ValueError: The member has not joined. A broker would accept its commit, even in a group with members.
            FencedError: The member is no longer in the group.
            UnknownTopicError: A topic was deleted; nothing is committed.
            UnknownOutcomeError: The coordinator did not report in time whether the transaction is committed; the
                group's committed offsets show the outcome.
            AuthenticationError: The user lacks WRITE or DESCRIBE on the transactional id, or READ on the group.
            InvalidConfigurationError: The brokers have named no transaction coordinator for `coordinator_seconds`.
            KafkaGroupError: An error of any other category; a retriable error was retried for `timeout` seconds.
        """
        groups = []
        for credentials, offsets in parts:
            if not offsets:
                continue
            if not credentials.member_id or credentials.generation < 0:
                raise ValueError(f"member of group {credentials.group} must join the group before it commits")
            groups.append(GroupOffsets(credentials, {tp: _full(offset) for tp, offset in offsets.items()}))
        if groups:
            self._client.run(self._commit(groups, Deadline(self._timeout), has_looked=has_looked))

    def close(self) -> None:
        """Stop taking the id, because an epoch that is taken in the background would fence the next owner."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.cancel()

    async def _commit(self, groups: Sequence[GroupOffsets], deadline: Deadline, *, has_looked: bool) -> None:
        await retry_async(
            lambda: self._commit_once(groups, deadline, has_looked=has_looked),
            self._client.settings.retry,
            on=(AbortableError, ApplicationRecoverableError),
            deadline=deadline,
            again=self._may_commit_again,
        )

    def _may_commit_again(self, error: Exception, failures: int, pause: float) -> bool:
        if isinstance(error, FencedError) and not is_gone(error):
            return False
        # If another attempt of the task, or a late request, has taken the id, take it again: the group accepts or
        # refuses the commit. Offsets are absolute, so a commit of unknown outcome may be repeated as well.
        log.info("commit transactional_id=%s failures=%d: %s", self._transactional_id, failures + 1, error)
        return True

    async def _commit_once(self, groups: Sequence[GroupOffsets], deadline: Deadline, *, has_looked: bool) -> None:
        transaction = await self._next_transaction(deadline)
        # Check in each attempt, because the feature of the cluster may have changed.
        second = await commits_by_id(self._client, self._transactional_id, groups[0].member.group, deadline)
        transaction = replace(transaction, second_protocol=second)
        if not has_looked and not (second and all(topic_ids_to_commit(group.offsets) for group in groups)):
            # The transaction is still empty, so the next call commits in it.
            self._set_ready(transaction)
            raise UnknownTopicError.of_names_only()
        if self._attempt is not None:
            kept = [await self._without_passed(group, self._attempt, deadline) for group in groups]
            groups = [group for group in kept if group.offsets]
        if not groups:
            return
        within = Deadline(min(_TRY_SECONDS, deadline.left))
        given = await commit_in(self._client, transaction, groups, within, fail_on_unknown_topic=True)
        if given is not None:
            self._set_ready(given)
        elif self._attempt is None:
            self._ready = self._client.loop.spawn(self._initialise(Deadline(self._timeout)))

    async def _without_passed(self, group: GroupOffsets, fetch: FetchEntries, deadline: Deadline) -> GroupOffsets:
        """Leave out partitions whose offset in the group is equal or higher, with the same stream, topic and rewind.

        No other producer of the id can commit between this check and the commit, which has the newest epoch.
        """
        name, offsets = group.member.group, group.offsets
        committed = await fetch(self._client, name, offsets, deadline)
        passed = {
            tp
            for tp, entry in committed.items()
            if entry.metadata == offsets[tp].metadata and entry.offset >= offsets[tp].offset
        }
        if not passed:
            return group
        log.info("commit group=%s without %s, which are committed already", name, format_partitions(sorted(passed)))
        return replace(group, offsets={tp: entry for tp, entry in offsets.items() if tp not in passed})

    def _set_ready(self, transaction: OpenTransaction) -> None:
        self._ready = Future()
        self._ready.set_result(transaction)

    async def _next_transaction(self, deadline: Deadline) -> OpenTransaction:
        ready, self._ready = self._ready, None
        if ready is not None:
            # The cause of an error from before the commit may have ended. The initialisation began before the commit,
            # so its deadline is earlier.
            with contextlib.suppress(KafkaGroupError if ready.done() else RetriableError):
                return await asyncio.wrap_future(ready)
        return await self._initialise(deadline)

    async def _initialise(self, deadline: Deadline) -> OpenTransaction:
        """Take the id's next epoch."""
        try:
            await self._client.coordinator(self._transactional_id, Deadline(self._coordinator_seconds), TRANSACTION)
        except RetriableError as error:
            if error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise
            raise InvalidConfigurationError(str(error), code=error.code) from error
        return await initialise(self._client, self._transactional_id, _TRANSACTION_TIMEOUT_MS, deadline)


def _full(offset: int | CommitOffset) -> CommitOffset:
    return CommitOffset(offset) if isinstance(offset, int) else offset
