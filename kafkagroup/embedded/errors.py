"""Errors of the embedded Kafka.

EmbeddedKafkaError
├── JavaError         no Java was found, or it is too old
├── JarsError         Kafka's jars are not in the cache and could not be downloaded
└── BrokerError       a node did not start, stopped unexpectedly, or did not answer
"""

from __future__ import annotations


class EmbeddedKafkaError(RuntimeError):
    """Base of the embedded Kafka's errors; the message gives the reason and what to do."""


class JavaError(EmbeddedKafkaError):
    """No usable Java was found."""


class JarsError(EmbeddedKafkaError):
    """Jars could not be resolved."""


class BrokerError(EmbeddedKafkaError):
    """A node failed; the message contains the end of its log."""
