"""One transaction from InitProducerId to EndTxn: its producer epoch, repetitions of requests, and its loss.

Here each transaction has its own epoch. Before KIP-890 a producer may keep its epoch for the next transaction. A commit
or abort request that the network delivers late can then end the next, half-written transaction. `initialise` raises the
epoch, so a coordinator refuses every request of an earlier transaction. In KIP-890's second protocol EndTxn raises the
epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError, UnknownOutcomeError
from kafka_source.kafka_client import (
    TRANSACTION,
    ConnectionLost,
    Deadline,
    KafkaClient,
    check_coordinator,
    coordinator_call,
    coordinator_versions,
    to_coordinator,
)
from kafka_source.kafka_client.messages.transaction import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafka_source.runtime.retry import RetryPolicy

INIT_VERSION = 4
"""The version of InitProducerId, which every broker since 2.8 has."""
# A repeated request must have the version of the first request, even after a restart, because versions 4 and 5 answer a
# repeated commit differently. From version 5 on EndTxn raises the epoch, which is KIP-890's second protocol.
_END_VERSION, _SECOND_END_VERSION = 3, 5
_FEATURE, _SECOND_LEVEL = "transaction.version", 2

_GONE = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
)

_OTHER_EPOCH = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))

MARKER_PAUSES = RetryPolicy(0.002, 0.1)
"""The pauses between requests that a coordinator refuses while it writes markers, or while it adds another partition.
Both take milliseconds, far less than `retry.backoff.ms`."""

FENCED_TIMEOUT_MS = 5_003
"""The timeout of an id that a driver has fenced, or a failed attempt has given up. Tasks set other timeouts, so no task
holds the epoch of such an id. A coordinator waits no longer than this timeout for the replicas of its own log. With a
few milliseconds, a coordinator whose replicas are far away would answer COORDINATOR_NOT_AVAILABLE.
"""

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, order=True)
class OpenTransaction:
    """A transaction that can be ended, with a producer epoch of its own.

    Attributes:
        transactional_id: `transactional.id`.
        producer_id: The producer id from the coordinator.
        epoch: The producer epoch; no other transaction of this id has it.
        records: The number of the transaction's records, if known.
        second_protocol: Whether all of its requests are of KIP-890's second protocol; protocols cannot be mixed.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    records: int = field(default=0, compare=False)
    second_protocol: bool = field(default=False, compare=False, kw_only=True)


async def initialise(
    client: KafkaClient,
    transactional_id: str,
    timeout_ms: int,
    deadline: Deadline,
    *,
    ended: OpenTransaction | None = None,
    repeat_while: Callable[[], Awaitable[bool]] | None = None,
    once: bool = False,
) -> OpenTransaction:
    """Take a transactional id, and return the id's next transaction, which begins with its first request.

    Earlier owners of the id are fenced. Before the coordinator answers, it aborts an open transaction, and finishes a
    transaction that is being committed.

    Args:
        client: The client of the cluster.
        transactional_id: The id to take.
        timeout_ms: The coordinator aborts a transaction that is open for longer than this.
        deadline: The time limit for all tries.
        ended: The id's last transaction that the caller knows. If the id has a later transaction now, the id is not
            taken, and `is_gone` is true of the error (KIP-360). If the later transaction is open, the coordinator
            aborts it. If the transaction after `ended` is the id's last and is not open, the response has that
            transaction's epoch, as for a repeated request.
        repeat_while: Called before a request is repeated. If its result is false, the request is not repeated, and
            `is_gone` is true of the error.
        once: Do not repeat an unanswered request. The coordinator may handle the unanswered request at any later time,
            and would then end the transaction of the repeated request.

    Raises:
        FencedError: `ended` is not the id's last transaction, because another process uses the id.
        UnknownOutcomeError: `ended` is no longer the id's last transaction, but an earlier attempt of this call may
            have begun the next transaction; without `ended` the id is taken anyway. Or, with `once`, no answer came.
        AuthenticationError: The user lacks WRITE or DESCRIBE on the transactional id.
        KafkaGroupError: The coordinator refuses, or does not answer in time.
    """
    what = f"Initialising transactional id {transactional_id} failed"
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1 if ended is None else ended.producer_id,
        producer_epoch=-1 if ended is None else ended.epoch,
    )
    is_sent = False

    async def send() -> InitProducerIdResponse:
        nonlocal is_sent
        if is_sent and repeat_while is not None and not await repeat_while():
            raise FencedError(f"{what}: another process uses the id now.", code=ErrorCode.PRODUCER_FENCED)
        is_sent = True
        return await to_coordinator(client, TRANSACTION, transactional_id, request, deadline, INIT_VERSION)

    async def ask() -> OpenTransaction:
        again = is_sent
        try:
            answer = await after_markers(
                send, lambda answer: answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, deadline
            )
        except ConnectionLost as error:
            if not once:
                raise
            raise UnknownOutcomeError(f"{what}: the coordinator has not answered ({error}).") from error
        if again and ended is not None and answer.error_code in _OTHER_EPOCH:
            # A coordinator that has restarted or moved no longer knows the previous epoch, because its log lacks
            # TransactionMetadata.lastProducerEpoch. It refuses a repeated request like a request of another process.
            raise UnknownOutcomeError(
                f"{what}: the id has a newer epoch than {ended.epoch}. Either an earlier try, whose response was lost, "
                "or another process has begun this epoch.",
                code=answer.error_code,
            )
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            # A coordinator that is cut off never writes the markers, so the next call looks the coordinator up again.
            client.forget_coordinator(transactional_id, TRANSACTION)
        check_coordinator(client, TRANSACTION, transactional_id, answer.error_code, what)
        return OpenTransaction(transactional_id, answer.producer_id, answer.producer_epoch)

    return await client.retrying(ask, deadline)


async def has_second_protocol(client: KafkaClient, transactional_id: str, deadline: Deadline) -> bool:
    """Return whether the coordinator of an id has KIP-890's second protocol, without a further request.

    Raises:
        RetriableError: The coordinator was not reached before the deadline.
    """
    versions = await coordinator_versions(client, TRANSACTION, transactional_id, deadline)
    return versions.features.get(_FEATURE, 0) >= _SECOND_LEVEL and versions.has(
        EndTxnRequest.API_KEY, _SECOND_END_VERSION
    )


async def after_markers(ask: Callable[[], Awaitable[_R]], is_refused: Callable[[_R], bool], deadline: Deadline) -> _R:
    """Return the answer to a request that a coordinator refuses while it writes the markers of the last transaction.

    Args:
        ask: Sends the request.
        is_refused: Returns whether the answer is CONCURRENT_TRANSACTIONS; if so, the request is sent again.
        deadline: The time limit for all tries.
    """
    said = ""
    for pause in MARKER_PAUSES.pauses():
        try:
            answer = await ask()
        except ConnectionLost as lost:
            lost.args = (f"{lost}{said}",)
            raise
        said = " The last answer was: CONCURRENT_TRANSACTIONS"
        if not is_refused(answer) or deadline.left <= pause:
            return answer
        await asyncio.sleep(pause)
    raise RuntimeError("unreachable: the pauses have no end")


async def end(
    client: KafkaClient, transaction: OpenTransaction, *, commit: bool, deadline: Deadline
) -> OpenTransaction | None:
    """Commit or abort a transaction; a coordinator answers a repeated request as it answered the first request.

    Returns:
        The id's next transaction in the second protocol, whose EndTxn raises the epoch; None in the first protocol.

    Raises:
        UnknownOutcomeError: The commit was sent, and the coordinator has not reported its outcome.
        KafkaGroupError: If `is_gone(error)`, also of UnknownOutcomeError, the transaction no longer exists, or ended
            with the opposite outcome.
    """
    name = transaction.transactional_id
    what = f"{'Committing' if commit else 'Aborting'} the transaction of {name}, epoch {transaction.epoch}, failed"
    request = EndTxnRequest(
        transactional_id=name, producer_id=transaction.producer_id, producer_epoch=transaction.epoch, committed=commit
    )
    unknown = False

    def note_lost() -> None:
        nonlocal unknown
        unknown = True

    def read(answer: EndTxnResponse) -> OpenTransaction | None:
        nonlocal unknown
        # The coordinator is still handling this attempt, or an earlier attempt.
        unknown |= answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        check_coordinator(client, TRANSACTION, name, answer.error_code, what)
        if not transaction.second_protocol:
            return None
        # The producer id is new if the epochs of the previous id are used up.
        return OpenTransaction(name, answer.producer_id, answer.producer_epoch)

    newest, oldest = (_SECOND_END_VERSION, _SECOND_END_VERSION) if transaction.second_protocol else (_END_VERSION, 0)
    try:
        return await coordinator_call(
            client,
            TRANSACTION,
            name,
            request,
            deadline,
            read,
            max_version=newest,
            min_version=oldest,
            on_lost=note_lost,
        )
    except KafkaGroupError as error:
        if not (commit and unknown):
            raise
        # A refusal, too, may be of a repeated request, when another process has taken the id after the commit.
        raise UnknownOutcomeError(
            f"The coordinator has not reported whether the transaction of {name}, epoch {transaction.epoch}, is "
            f"committed ({error}). Start from the group's committed offsets or the last durable position.",
            code=error.code,
        ) from error


def is_gone(error: KafkaGroupError) -> bool:
    """Return whether a coordinator reports that a transaction no longer exists, or ended with the opposite outcome."""
    return error.code in _GONE
