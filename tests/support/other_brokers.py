"""Brokers that run already, of Kafka or of another implementation of its protocol.

    KAFKAGROUP_TEST_BROKERS=HOST:PORT,… ./run test tests/integration/group

Tests of the fixture `kafka`, and the soaks, then use these brokers instead of brokers of their own.
"""

import os

from kafkagroup.embedded import EmbeddedKafka


class OtherBrokers(EmbeddedKafka):
    """Brokers that the tests neither start nor stop, with one listener that gives full rights.

    Args:
        servers: Their addresses, `host:port,…`.
    """

    def __init__(self, servers: str) -> None:
        super().__init__()
        self._servers = servers

    @property
    def bootstrap_servers(self) -> str:
        return self._servers

    @property
    def internal_bootstrap_servers(self) -> str:
        return self._servers


def other_brokers() -> OtherBrokers | None:
    """Return the brokers that KAFKAGROUP_TEST_BROKERS names."""
    servers = os.environ.get("KAFKAGROUP_TEST_BROKERS")
    return OtherBrokers(servers) if servers else None
