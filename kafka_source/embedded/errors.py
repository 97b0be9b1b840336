"""What can go wrong with the embedded Kafka, told to its user.

EmbeddedKafkaError
├── JavaError         no Java, or one that is too old
├── JarsError         Kafka's jars are neither in the cache nor to be had
└── BrokerError       a node that did not start, stopped by itself, or did not answer
"""

from __future__ import annotations


class EmbeddedKafkaError(RuntimeError):
    """The embedded Kafka cannot do what it was asked; the message says why and what to do."""


class JavaError(EmbeddedKafkaError):
    """No usable Java was found."""


class JarsError(EmbeddedKafkaError):
    """Jars could not be resolved."""


class BrokerError(EmbeddedKafkaError):
    """A node failed; the end of its log is part of the message."""
