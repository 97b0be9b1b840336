"""Requests to the coordinator of a group or a transactional id, repeated while the coordinator moves or loads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar
from uuid import UUID

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import RetriableError, error_for_code
from kafka_source.kafka_client.client import GROUP, KafkaClient
from kafka_source.kafka_client.connection import Connection, ConnectionLost
from kafka_source.kafka_client.messages import ApiVersions, Request
from kafka_source.kafka_client.messages.group import OffsetCommitResponse
from kafka_source.kafka_client.messages.transaction import TxnOffsetCommitResponse
from kafka_source.kafka_client.metadata import topic_id_of
from kafka_source.model.commits import CommitOffset
from kafka_source.runtime.deadline import Deadline

# With these errors an outdated coordinator may refuse requests that the current coordinator accepts.
_REFUSALS = frozenset(
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )
)
_R = TypeVar("_R")
_T = TypeVar("_T")


async def to_coordinator(
    client: KafkaClient,
    kind: int,
    key: str,
    request: Request[_R],
    deadline: Deadline,
    max_version: int | None = None,
    min_version: int = 0,
) -> _R:
    """Send a request to the coordinator and return its response.

    If the coordinator cannot be reached, the client drops it, so that the next attempt looks it up again.

    Args:
        client: The cluster's client.
        kind: GROUP or TRANSACTION.
        key: The group id or the transactional id.
        request: The request; it is sent once.
        deadline: The time limit, in addition to `request.timeout.ms`.
        max_version: The highest version of the request to use.
        min_version: The lowest usable version of the request, if earlier versions have another meaning.

    Raises:
        ConnectionLost: The coordinator did not answer. Or the coordinator refuses a member or an epoch, but another
            broker names another coordinator. In this case the refusing broker may be cut off, with an old state.
        RetriableError: The coordinator does not support `min_version`; nothing was sent.
    """
    connection = await _connection(client, kind, key, deadline)
    if connection.versions.version_for(request, max_version) < min_version:
        raise RetriableError(
            f"The coordinator {connection.endpoint} does not support version {min_version} of {request.name}. The "
            "previous coordinator supported this version: brokers are being replaced by older brokers."
        )
    try:
        patience = max(0.001, min(client.settings.request_timeout, deadline.left))
        response = await connection.send(request, patience, max_version)
    except ConnectionLost:
        client.forget_lost_coordinator(key, kind)
        raise
    if _REFUSALS.isdisjoint(_codes_of(response)):
        client.forget_refusals(key, kind)
    elif await client.is_replaced(key, kind, connection.endpoint, deadline):
        raise ConnectionLost(
            f"The broker {connection.endpoint} refuses {request.name} for {key}, and is no longer its coordinator."
        )
    return response


def _codes_of(response: object) -> Iterator[int]:
    if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
        for topic in response.topics:
            yield from (partition.error_code for partition in topic.partitions)
    else:
        yield getattr(response, "error_code", 0)


async def coordinator_versions(client: KafkaClient, kind: int, key: str, deadline: Deadline) -> ApiVersions:
    """Return the API versions and features that the coordinator reported when its connection was opened.

    Raises:
        RetriableError: The coordinator was not reached before the deadline.
    """
    connection = await client.retrying(lambda: _connection(client, kind, key, deadline), deadline)
    return connection.versions


async def _connection(client: KafkaClient, kind: int, key: str, deadline: Deadline) -> Connection:
    coordinator = await client.coordinator(key, deadline, kind)
    try:
        return await client.connection(coordinator, deadline)
    except ConnectionLost:
        client.forget_lost_coordinator(key, kind)
        raise


async def coordinator_call(
    client: KafkaClient,
    kind: int,
    key: str,
    request: Request[_R],
    deadline: Deadline,
    read: Callable[[_R], _T],
    *,
    max_version: int | None = None,
    min_version: int = 0,
    on_lost: Callable[[], None] | None = None,
) -> _T:
    """Send a request to the coordinator, repeat it after retriable errors, and return the result of `read`.

    Args:
        client: The cluster's client.
        kind: GROUP or TRANSACTION.
        key: The group id or the transactional id.
        request: The request, which each attempt sends unchanged.
        deadline: The time limit for all attempts.
        read: Returns the result of a response, or raises its error, see `check_coordinator`.
        max_version: The highest version of the request to use.
        min_version: The lowest version of the request to use, as in `to_coordinator`.
        on_lost: Called after an attempt whose response was lost. The coordinator may have handled the request.

    Raises:
        KafkaGroupError: The error of `read`; of several attempts, the error of the last one.
    """

    async def attempt() -> _T:
        try:
            response = await to_coordinator(client, kind, key, request, deadline, max_version, min_version)
        except ConnectionLost:
            if on_lost is not None:
                on_lost()
            raise
        return read(response)

    return await client.retrying(attempt, deadline)


def check_coordinator(client: KafkaClient, kind: int, key: str, code: int, what: str) -> None:
    """Raise the error for the code in a coordinator's response; 0 is no error.

    If the coordinator has moved, the client drops it, so that the next attempt looks it up again.
    """
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        client.forget_coordinator(key, kind)
    if code:
        raise error_for_code(code, what)


def topic_ids_to_commit(offsets: Mapping[TopicPartition, CommitOffset]) -> dict[str, UUID]:
    """Return the ids of the topics whose offsets are committed; empty if an id is unknown, so names are used."""
    found = {tp.topic: topic_id_of(entry.topic_id) for tp, entry in offsets.items()}
    known = {name: topic_id for name, topic_id in found.items() if topic_id is not None}
    return known if len(known) == len(found) else {}


def check_commits(
    client: KafkaClient, group: str, outcomes: Iterable[tuple[str, int]], failed: str, *, skip_unknown: bool
) -> list[str]:
    """Raise the error of the first refused partition, and return the partitions of unknown topics.

    Args:
        client: The client that sent the request.
        group: The group.
        outcomes: Each partition, in words, with its error code, from a response to OffsetCommit or TxnOffsetCommit.
        failed: The beginning of the error text.
        skip_unknown: Return the partitions of unknown topics instead of raising their retriable errors.
    """
    unknown = []
    for where, code in outcomes:
        if skip_unknown and code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            unknown.append(where)
        else:
            check_coordinator(client, GROUP, group, code, f"{failed} for {where}")
    return unknown
