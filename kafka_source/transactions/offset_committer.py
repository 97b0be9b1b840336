"""Offset commits in a transaction, on behalf of a group member of any process.

All partitions of a commit become the group's offsets at once or not at all, and a member that the group has replaced
commits nothing: the broker checks generation, member and instance id.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Protocol

from assignors.model import TopicPartition
from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.client_config.tls import check_versions
from kafka_source.transactions.producer_pool import TransactionalProducers
from kafka_source.transactions.transaction import run_transaction

# If this process dies with a commit half done, the group's next reader waits until the broker gives it up.
_TRANSACTION_TIMEOUT_MS = 10_000

# A user's settings for records that a transaction, or so short a one, does not take.
_NOT_FOR_COMMITS = (
    "acks",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.send.max.retries",
    "message.timeout.ms",
    "queuing.strategy",
    "request.required.acks",
    "retries",
    "socket.timeout.ms",
    "transaction.timeout.ms",
    "transactional.id",
)


class Credentials(Protocol):
    """With what a member of a group shows who it is."""

    @property
    def group(self) -> str:
        """`group.id`."""
        ...

    @property
    def generation(self) -> int:
        """Of the group, when the member joined."""
        ...

    @property
    def member_id(self) -> str:
        """Given by the coordinator."""
        ...

    @property
    def instance_id(self) -> str | None:
        """`group.instance.id`, None for a dynamic member."""
        ...


def group_metadata(credentials: Credentials) -> bytes:
    """The group metadata that `send_offsets_to_transaction` takes, for a member that is not this process's consumer.

    librdkafka's own serialised form (`rd_kafka_consumer_group_metadata_write`, version 2): a mark, the generation as
    a little-endian int32, then group, member and, if there is one, instance id, each ended by NUL.

    Raises:
        ValueError: The member has no id: such a commit would not be fenced at all, even in a group with members.
    """
    if not credentials.member_id or credentials.generation < 0:
        raise ValueError(f"member of group {credentials.group} has not joined: commits must be fenced")
    instance = b"\x01" if credentials.instance_id is None else b"\x00" + _text(credentials.instance_id)
    generation = struct.pack("<i", credentials.generation)
    return b"CGMDv2:" + generation + _text(credentials.group) + _text(credentials.member_id) + instance


class TransactionalCommitter:
    """Commits a group's offsets in transactions of one transactional id, with the next producer kept ready.

    One owner: a second committer with the same id fences the first one. From one thread at a time.

    Args:
        settings: Of the Kafka clients.
        transactional_id: Bounded in number, e.g. one for a query or a slot: brokers keep each for days.
        timeout: Seconds for one commit, with all its tries.
        keep_warm: False for a committer that commits once.
    """

    def __init__(
        self, settings: Settings, transactional_id: str, *, timeout: float = 30.0, keep_warm: bool = True
    ) -> None:
        self._timeout = timeout
        self._producers = TransactionalProducers(
            _producer_config(settings), transactional_id, init_seconds=timeout, keep_warm=keep_warm
        )
        self._producers.prepare()

    def commit(self, credentials: Credentials, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of any number of partitions in one transaction.

        Args:
            credentials: Of a member of the group; any one does for all partitions.
            offsets: The next offset to read, by topic and partition.

        Raises:
            FencedError: The member is no longer the group's, or another process owns the transactional id.
            UnknownOutcomeError: The coordinator did not answer in time; the group's offsets tell what happened.
            AuthenticationError: A right is missing: WRITE and DESCRIBE on the transactional id, READ on the group.
            KafkaGroupError: Anything else, by its category, after `timeout` if it was worth another try.
        """
        if not offsets:
            return
        metadata = group_metadata(credentials)
        run_transaction(
            self._producers,
            lambda transaction: transaction.send_offsets(offsets, metadata),
            timeout=self._timeout,
            repeatable=True,
        )

    def close(self) -> None:
        """Let go of the producer; no transaction is open between commits."""
        self._producers.close()


def _producer_config(settings: Settings) -> dict[str, Any]:
    check_versions(settings)
    config = {name: value for name, value in librdkafka_config(settings).items() if name not in _NOT_FOR_COMMITS}
    # The client's warnings tell of what it tries again by itself; what it gives up comes as an error.
    return {
        "log_level": 3,
        **config,
        "client.id": settings.client_id("commit"),
        "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
    }


def _text(text: str) -> bytes:
    return text.encode() + b"\x00"
