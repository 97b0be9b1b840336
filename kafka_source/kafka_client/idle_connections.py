"""Connections that wait for a worker's next task, and whose answer has come."""

from __future__ import annotations

import select
import time
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from kafka_source.kafka_client.request_connection import RequestConnection

_Key = TypeVar("_Key", bound=Hashable)
_Connection = TypeVar("_Connection", bound=RequestConnection)


class IdleConnections(Generic[_Key, _Connection]):
    """At most one for each key; whoever takes one has it alone."""

    def __init__(self) -> None:
        self._idle: dict[_Key, _Connection] = {}
        self._closed = False

    def take(self, key: _Key) -> _Connection | None:
        """The one that waits, unless its session ends soon; then it is closed. A pause that it keeps goes on."""
        kept = self._idle.pop(key, None)
        if kept is not None and kept.spent and not kept.busy:
            kept.close()
            return None
        return kept

    def keep(self, key: _Key, connection: _Connection) -> None:
        """Take one back; one with an answer under way is closed, and any one after `close`."""
        if self._closed or connection.waiting or key in self._idle:
            connection.close()
        else:
            self._idle[key] = connection

    def close(self) -> None:
        """Close those that wait, and from now on each one that comes back."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].close()


def answering(connections: Iterable[RequestConnection], until: float) -> set[int]:
    """Wait for an answer's first byte.

    Args:
        connections: Those that wait for one are listened to; at the end of a pause that another one keeps nobody waits
            any longer, nor when an answer is overdue.
        until: At the latest (`time.monotonic()`); what is over means not to wait at all.

    Returns:
        The descriptors of those whose answer has begun.
    """
    now = time.monotonic()
    poll = select.poll()
    for connection in connections:
        if connection.waiting:
            poll.register(connection, select.POLLIN)
            until = min(until, connection.overdue_at)
        elif connection.ready_at > now:
            until = min(until, connection.ready_at)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, until - now) * 1000)}
