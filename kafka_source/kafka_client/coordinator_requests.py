"""Requests to the coordinator of a group or a transactional id, repeated while it moves or loads; its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import error_for_code
from kafka_source.kafka_client.client import GROUP, KafkaClient
from kafka_source.kafka_client.connection import ConnectionLost
from kafka_source.kafka_client.messages import Request
from kafka_source.runtime.deadline import Deadline

_R = TypeVar("_R")
_T = TypeVar("_T")


async def to_coordinator(
    client: KafkaClient, kind: int, key: str, request: Request[_R], deadline: Deadline, max_version: int | None = None
) -> _R:
    """Send a request to the coordinator and return its response.

    If the coordinator cannot be reached, the client forgets it, so that the next attempt looks it up again.

    Args:
        client: The cluster's client.
        kind: GROUP or TRANSACTION.
        key: The group id or the transactional id.
        request: The request; it is sent once.
        deadline: The time limit, besides `request.timeout.ms`.
        max_version: The highest version of the request to use.

    Raises:
        ConnectionLost: The coordinator gave no response.
    """
    coordinator = await client.coordinator(key, deadline, kind)
    try:
        connection = await client.connection(coordinator, deadline)
        patience = max(0.001, min(client.settings.request_timeout, deadline.left))
        return await connection.send(request, patience, max_version)
    except ConnectionLost:
        client.forget_coordinator(key, kind)
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
    on_lost: Callable[[], None] | None = None,
) -> _T:
    """Send a request to the coordinator, again after each retriable error, and return what `read` makes of the answer.

    Args:
        client: The cluster's client.
        kind: GROUP or TRANSACTION.
        key: The group id or the transactional id.
        request: The request; each attempt sends it as it is.
        deadline: The time limit for all attempts.
        read: Returns the result of a response. It raises the errors in it, see `check_coordinator`.
        max_version: The highest version of the request to use.
        on_lost: Called after an attempt whose response was lost: the coordinator may have done what it asks for.

    Raises:
        KafkaGroupError: What `read` raises; if it is retriable, the error of the last attempt before the deadline.
    """

    async def attempt() -> _T:
        try:
            response = await to_coordinator(client, kind, key, request, deadline, max_version)
        except ConnectionLost:
            if on_lost is not None:
                on_lost()
            raise
        return read(response)

    return await client.retrying(attempt, deadline)


def check_coordinator(client: KafkaClient, kind: int, key: str, code: int, what: str) -> None:
    """Raise the error for the code in a coordinator's response; 0 is no error.

    If the coordinator has moved, the client forgets it, so that the next attempt looks it up again.
    """
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        client.forget_coordinator(key, kind)
    if code:
        raise error_for_code(code, what)


def check_commits(
    client: KafkaClient,
    group: str,
    outcomes: Iterable[tuple[str, int]],
    failed: str,
    *,
    skip_unknown: bool,
) -> list[str]:
    """Raise the error of the first partition whose offset was refused, and return the partitions of unknown topics.

    Args:
        client: The client that sent the request.
        group: The group.
        outcomes: Each partition, for the text, and its error code in the response to OffsetCommit or TxnOffsetCommit.
        failed: The beginning of the error text.
        skip_unknown: Return the partitions of unknown topics instead of raising their errors, which are retriable.
            Without it the list is empty.
    """
    unknown = []
    for where, code in outcomes:
        if skip_unknown and code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            unknown.append(where)
        else:
            check_coordinator(client, GROUP, group, code, f"{failed} for {where}")
    return unknown
