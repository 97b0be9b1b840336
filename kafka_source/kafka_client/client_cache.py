"""Process-wide cache of clients, one for each cluster and purpose.

The next task or batch uses the client again, so it does not have to open connections.
"""

from __future__ import annotations

from kafka_source.client_config import Settings
from kafka_source.kafka_client.client import KafkaClient
from kafka_source.runtime.event_loop import EventLoop
from kafka_source.runtime.process_cache import ProcessCache


def cached_client(settings: Settings, purpose: str = "control") -> KafkaClient:
    """Return the client of this process for these settings; do not close it.

    Args:
        settings: Kafka client settings.
        purpose: Part of the client id. It keeps the client apart from the fetchers, so that a broker quota on their
            `client.id` does not throttle it.
    """
    return _clients.of((settings, purpose))


def _client(key: tuple[Settings, str]) -> KafkaClient:
    settings, purpose = key
    return KafkaClient(settings, EventLoop.shared(), settings.client_id(purpose))


# A client that the cache has closed can still be used: it connects again when it needs a connection.
_clients = ProcessCache(_client, close=KafkaClient.close, usable=lambda client: client.loop.alive)
