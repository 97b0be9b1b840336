"""What the driver asks of the cluster: topics, and the offsets that its partitions have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from assignors.model import TopicPartition
from kafka_source.brokers import Brokers
from kafka_source.client_config import Settings
from kafka_source.errors import UnknownTopicError
from kafka_source.options import Options
from kafka_source.topic_pattern import matching


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a query reads: exactly one of the three is set.

    Attributes:
        topics: These topics.
        pattern: All topics that `matching` finds.
        partitions: Exactly these partitions.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"pattern {self.pattern}"
        return ", ".join(self.topics or [f"{tp.topic}-{tp.partition}" for tp in self.partitions])


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is: its id, None where brokers have none (before Kafka 2.8), and how many partitions it has."""

    id: str | None
    partitions: int


class Cluster:
    """Topics and offsets of a cluster, asked for with a deadline and tried again as the options say.

    Args:
        settings: Of the Kafka clients.
        timeout_ms: For each question.
        retries: How often at least a question is put again that failed for a passing reason; it is until the timeout.
        retry_ms: The first pause between these tries; each further one is twice as long.
    """

    def __init__(self, settings: Settings, *, timeout_ms: int = 10_000, retries: int = 3, retry_ms: int = 10) -> None:
        self._brokers = Brokers(settings, timeout=timeout_ms / 1000, retries=retries, retry_ms=retry_ms)

    @staticmethod
    def of(options: Options, settings: Settings) -> Cluster:
        """The cluster that a query's options name."""
        return Cluster(
            settings, retries=options["fetchOffset.numRetries"], retry_ms=options["fetchOffset.retryIntervalMs"]
        )

    def cluster_id(self) -> str | None:
        """The cluster's id, which tells one cluster from another behind the same name.

        Raises:
            InvalidConfigurationError: It is another than before.
        """
        # Every question notes it.
        self._brokers.ask("Asking for the cluster's id", lambda: None)
        return self._brokers.cluster_id

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """The partitions of a subscription that exist now, sorted.

        Raises:
            UnknownTopicError: A topic or partition that is named does not exist.
            BootstrapError: No broker answers.
        """
        if subscription.pattern is not None:
            found = self._brokers.ask("Listing the topics", self._brokers.topics)
            names = matching(subscription.pattern, found)
            return sorted(TopicPartition(name, number) for name in names for number in found[name].partitions)
        named = subscription.topics or tuple(dict.fromkeys(tp.topic for tp in subscription.partitions))
        existing = {tp for name in named for tp in self._partitions_of(name)}
        missing = sorted(set(subscription.partitions) - existing)
        if missing:
            raise UnknownTopicError(
                f"The partitions {', '.join(f'{tp.topic}-{tp.partition}' for tp in missing)} do not exist; "
                "correct the option assign."
            )
        return sorted(subscription.partitions or existing)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._offsets(dict.fromkeys(partitions, spec), read_committed=False)

    def latest(self, partitions: Iterable[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with `read_committed` the last stable offset."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(dict.fromkeys(partitions, spec), read_committed=read_committed)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after a time (ms since 1970); None where there is none."""
        found = self._offsets({tp: OffsetSpec.for_timestamp(ms) for tp, ms in times.items()}, read_committed=False)
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    def topics(self, names: Iterable[str]) -> dict[str, Topic | None]:
        """These topics as they are now; None for one that does not exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}

        def ask() -> dict[str, Topic | None]:
            brokers = self._brokers
            asked = brokers.admin.describe_topics(TopicCollection(wanted), request_timeout=brokers.timeout)
            return {name: self._topic(future) for name, future in asked.items()}

        return self._brokers.ask(f"Asking for {len(wanted)} topics", ask)

    def _topic(self, future: Future[Any]) -> Topic | None:
        try:
            described = self._brokers.answer(future)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        known = (described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits())
        return Topic(str(described.topic_id) if any(known) else None, len(described.partitions))

    def _partitions_of(self, name: str) -> list[TopicPartition]:
        def ask() -> list[TopicPartition]:
            # DescribeTopics never creates the topic that it asks for; a plain metadata request may.
            asked = self._brokers.admin.describe_topics(TopicCollection([name]), request_timeout=self._brokers.timeout)
            described = self._brokers.answer(asked[name])
            return [TopicPartition(name, p.id) for p in described.partitions]

        try:
            return self._brokers.ask(f"Asking for topic {name}", ask)
        except UnknownTopicError as error:
            raise UnknownTopicError(
                f"Topic {name} does not exist, or this user may not see it; create it or correct the option subscribe.",
                code=error.code,
            ) from None

    def _offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED

        def ask() -> dict[TopicPartition, int]:
            asked = self._brokers.admin.list_offsets(
                {Position(tp.topic, tp.partition): spec for tp, spec in specs.items()},
                isolation_level=isolation,
                request_timeout=self._brokers.timeout,
            )
            found = {
                TopicPartition(position.topic, position.partition): self._brokers.answer(future).offset
                for position, future in asked.items()
            }
            if OFFSET_INVALID in found.values():
                # So says librdkafka, and calls it no error, where a partition's leader is lost. It goes on asking the
                # one that it remembers, for a quarter of an hour, unless all topics are looked at.
                self._brokers.topics()
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return found

        return self._brokers.ask("Asking for offsets", ask)
