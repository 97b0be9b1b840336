"""One client for each cluster and process, kept open for the next task or batch: a new one costs three connections."""

from __future__ import annotations

import threading

from kafka_source.client_config import Settings
from kafka_source.kafka_client.client import KafkaClient

_MOST = 4

_lock = threading.Lock()
_clients: list[tuple[Settings, KafkaClient]] = []


def kept_client(settings: Settings) -> KafkaClient:
    """The process's client for these settings; not to be closed. A forked child gets its own."""
    with _lock:
        for position, (of, client) in enumerate(_clients):
            if of == settings:
                # The one that was used last is given up last.
                _clients.append(_clients.pop(position))
                if client.loop.alive:
                    return client
                _clients.pop()
                break
        client = KafkaClient(settings)
        _clients.append((settings, client))
        given_up = [old for _, old in _clients[:-_MOST]]
        del _clients[:-_MOST]
    for old in given_up:
        old.close()
    return client
