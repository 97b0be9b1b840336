"""One client for each cluster and purpose in this process, kept for the next task or batch: a new one connects anew."""

from __future__ import annotations

from kafka_source.client_config import Settings
from kafka_source.kafka_client.client import KafkaClient
from kafka_source.runtime.event_loop import EventLoop
from kafka_source.runtime.process_cache import ProcessCache


def cached_client(settings: Settings, purpose: str = "control") -> KafkaClient:
    """Return the process's client for these settings; do not close it.

    Args:
        settings: Of the Kafka clients.
        purpose: Stands in its client id, so that no quota of `client.id` throttles it.
    """
    return _clients.of((settings, purpose))


def _client(key: tuple[Settings, str]) -> KafkaClient:
    settings, purpose = key
    return KafkaClient(settings, EventLoop.shared(), settings.client_id(purpose))


# Whoever still has a client that was closed connects again.
_clients = ProcessCache(_client, close=KafkaClient.close, usable=lambda client: client.loop.alive)
