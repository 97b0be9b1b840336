"""Connections that a worker process keeps for its next task, and the wait for responses on several connections."""

from __future__ import annotations

import select
import time
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from kafka_source.kafka_client.request_connection import RequestConnection

_Key = TypeVar("_Key", bound=Hashable)
_Connection = TypeVar("_Connection", bound=RequestConnection)


class IdleConnections(Generic[_Key, _Connection]):
    """A pool of at most one idle connection for each key; a caller that takes one has exclusive use of it."""

    def __init__(self) -> None:
        self._idle: dict[_Key, _Connection] = {}
        self._closed = False

    def take(self, key: _Key) -> _Connection | None:
        """Return the idle connection, or None.

        A connection whose session expires soon is closed instead, unless the broker currently wants a pause (KIP-219):
        the pause applies to the client, so a new connection would have to keep it too.
        """
        kept = self._idle.pop(key, None)
        if kept is not None and kept.spent and not kept.busy:
            kept.close()
            return None
        return kept

    def keep(self, key: _Key, connection: _Connection) -> None:
        """Put a connection back; close it if a response is still outstanding, or after `close`."""
        if self._closed or connection.waiting or key in self._idle:
            connection.close()
        else:
            self._idle[key] = connection

    def close(self) -> None:
        """Close all idle connections, and from now on each connection that is put back."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].close()


def answering(connections: Iterable[RequestConnection], until: float) -> set[int]:
    """Wait until a response starts to arrive.

    Args:
        connections: The connections to watch. The wait also ends when the pause of one of them ends (KIP-219), or when
            the response of one of them is overdue.
        until: The latest time (`time.monotonic()`) at which the wait ends; a time in the past means no wait.

    Returns:
        The file descriptors of the connections on which a response has started to arrive.
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
