"""One client for each cluster, purpose and process, kept for the next task or batch: a new one costs connections."""

from __future__ import annotations

import os
import threading

from kafka_source.client_config import Settings
from kafka_source.kafka_client.client import KafkaClient
from kafka_source.runtime.event_loop import EventLoop

_MOST = 8

_lock = threading.Lock()
_clients: dict[tuple[Settings, str], KafkaClient] = {}


def cached_client(settings: Settings, purpose: str = "control") -> KafkaClient:
    """The process's client for these settings; not to be closed.

    Args:
        settings: Of the Kafka clients.
        purpose: Stands in its client id, so that no quota of `client.id` holds it up.
    """
    with _lock:
        client = _clients.pop((settings, purpose), None)
        if client is None or not client.loop.alive:
            client = KafkaClient(settings, EventLoop.shared(), settings.client_id(purpose))
        # The one that was used last is given up last.
        _clients[settings, purpose] = client
        given_up = [_clients.pop(oldest) for oldest in list(_clients)[:-_MOST]]
    for old in given_up:
        # Whoever still has it connects anew.
        old.close()
    return client


def _forget() -> None:
    # A forked child has neither the loop's thread nor a right to the parent's sockets.
    global _lock
    _lock = threading.Lock()
    _abandoned.append(dict(_clients))
    _clients.clear()


_abandoned: list[dict[tuple[Settings, str], KafkaClient]] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
