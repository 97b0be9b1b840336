"""Requests to the broker that coordinates a group or a transactional id, wherever that is by now."""

from __future__ import annotations

from typing import Any

from kafka_source.error_codes import COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
from kafka_source.errors import error_for_code
from kafka_source.kafka_client.client import KafkaClient
from kafka_source.kafka_client.connection import ConnectionLost
from kafka_source.runtime.deadline import Deadline


async def to_coordinator(
    client: KafkaClient, kind: int, key: str, request: Any, deadline: Deadline, max_version: int | None = None
) -> Any:
    """Send a request to the coordinator; the next try looks for it anew if it could not be reached.

    Args:
        client: Of the cluster.
        kind: GROUP or TRANSACTION.
        key: The group or the transactional id.
        request: For it.
        deadline: Until when an answer is waited for.
        max_version: Of the request.

    Raises:
        ConnectionLost: It did not answer.
    """
    coordinator = await client.coordinator(key, deadline, kind)
    try:
        connection = await client.connection(coordinator, deadline)
        patience = max(0.001, min(client.settings.request_timeout, deadline.left))
        return await connection.send(request, patience, max_version)
    except ConnectionLost:
        client.forget_coordinator(key, kind)
        raise


def check_coordinator(client: KafkaClient, kind: int, key: str, code: int, what: str) -> None:
    """Raise the error of a coordinator's answer, 0 being none; the next try looks for it anew if it has moved."""
    if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
        client.forget_coordinator(key, kind)
    if code:
        raise error_for_code(code, what)
