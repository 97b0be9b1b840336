"""What the driver asks of the cluster: topics, and the offsets that its partitions have."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata  # type: ignore[attr-defined]

from assignors.model import TopicPartition
from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.errors import (
    BootstrapError,
    KafkaGroupError,
    RefreshRetriableError,
    RetriableError,
    UnknownTopicError,
    from_confluent,
)
from kafka_source.options import Options

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# Between looks at what the client reports of its connections, such as a refused password; and for how long another
# broker may still answer, for one that restarts may refuse too.
_LONGEST_PAUSE = 1.0
_LOOK_SECONDS = 0.1
_REFUSED_SECONDS = 2.0
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a query reads: exactly one of the three is set.

    Attributes:
        topics: These topics.
        pattern: All topics whose whole name matches.
        partitions: Exactly these partitions.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"pattern {self.pattern}"
        return ", ".join(self.topics or [f"{tp.topic}-{tp.partition}" for tp in self.partitions])


class Cluster:
    """Topics and offsets of a cluster, asked for with a deadline and tried again as the options say.

    Args:
        settings: Of the Kafka clients.
        timeout_ms: For each question.
        retries: How often at least a question is put again that failed for a passing reason; it is until the timeout.
        retry_ms: The first pause between these tries; each further one is twice as long.
    """

    def __init__(self, settings: Settings, *, timeout_ms: int = 10_000, retries: int = 3, retry_ms: int = 10) -> None:
        self._timeout = timeout_ms / 1000
        self._retries = retries
        self._retry_seconds = retry_ms / 1000
        self._servers = settings.get("bootstrap.servers") or ""
        self._problem: KafkaError | None = None
        # What the client complains of comes with the error; it need not be logged as well.
        config = {"log_level": 2, **librdkafka_config(settings), "error_cb": self._on_problem}
        self._admin = AdminClient(config, logger=log)

    @staticmethod
    def of(options: Options, settings: Settings) -> Cluster:
        """The cluster that a query's options name."""
        return Cluster(
            settings, retries=options["fetchOffset.numRetries"], retry_ms=options["fetchOffset.retryIntervalMs"]
        )

    def cluster_id(self) -> str | None:
        """The cluster's id, which tells one cluster from another behind the same name."""

        def ask() -> str | None:
            described = self._wait(self._admin.describe_cluster(request_timeout=self._timeout))
            return described.cluster_id  # type: ignore[no-any-return]

        return self._ask("Asking for the cluster's id", ask)

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """The partitions of a subscription that exist now, sorted.

        Raises:
            UnknownTopicError: A topic or partition that is named does not exist.
            BootstrapError: No broker answers.
        """
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            found = self._ask("Listing the topics", self._topics)
            return sorted(
                TopicPartition(name, number)
                for name, topic in found.items()
                if pattern.fullmatch(name)
                for number in topic.partitions
            )
        names = subscription.topics or tuple(dict.fromkeys(tp.topic for tp in subscription.partitions))
        existing = {tp for name in names for tp in self._partitions_of(name)}
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

    def _topics(self) -> dict[str, TopicMetadata]:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                # Nothing is heard of a refused password while this call waits.
                return self._admin.list_topics(timeout=min(_REFUSED_SECONDS, self._timeout)).topics
            except KafkaException:
                if self._is_refused() or time.monotonic() > deadline:
                    raise

    def _partitions_of(self, name: str) -> list[TopicPartition]:
        def ask() -> list[TopicPartition]:
            # DescribeTopics never creates the topic that it asks for; a plain metadata request may.
            asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout)
            described = self._wait(asked[name])
            return [TopicPartition(name, p.id) for p in described.partitions]

        try:
            return self._ask(f"Asking for topic {name}", ask)
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
            asked = self._admin.list_offsets(
                {Position(tp.topic, tp.partition): spec for tp, spec in specs.items()},
                isolation_level=isolation,
                request_timeout=self._timeout,
            )
            return {
                TopicPartition(position.topic, position.partition): self._wait(future).offset
                for position, future in asked.items()
            }

        return self._ask("Asking for offsets", ask)

    def _ask(self, what: str, question: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._timeout
        attempt = 0
        while True:
            self._admin.poll(0)
            self._problem = None  # What was reported before says nothing about this question.
            try:
                return question()
            except (KafkaException, TimeoutError) as error:
                failure = self._meaning(what, error)
                if not isinstance(failure, RetriableError) or isinstance(failure, BootstrapError | UnknownTopicError):
                    raise failure from None
                # A new leader takes longer than the built-in source's three tries of 10 ms.
                if attempt >= self._retries and time.monotonic() > deadline:
                    raise failure from None
            time.sleep(min(_LONGEST_PAUSE, self._retry_seconds * 2**attempt))
            attempt += 1

    def _wait(self, future: Future[_T]) -> _T:
        asked = time.monotonic()
        while not wait([future], _LOOK_SECONDS).done:
            waited = time.monotonic() - asked
            # The request has its own timeout; the margin lets its reason arrive instead of ours.
            if waited > self._timeout + 2 or (waited > _REFUSED_SECONDS and self._is_refused()):
                raise TimeoutError
        return future.result()

    def _is_refused(self) -> bool:
        self._admin.poll(0)
        return self._problem is not None and self._problem.code() in _REFUSED

    def _meaning(self, what: str, error: KafkaException | TimeoutError) -> KafkaGroupError:
        code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._TIMED_OUT
        refused, problem = self._is_refused(), self._problem
        if refused and problem is not None:
            return from_confluent(problem, f"{what} of {self._servers} failed")
        if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
            reason = f" ({problem.str()})" if problem is not None else ""
            return BootstrapError(
                f"{what} failed: no broker of kafka.bootstrap.servers={self._servers} answered within "
                f"{self._timeout:g} s{reason}.",
                code=code,
            )
        if code == KafkaError._NOENT:
            # So says librdkafka where a partition has no leader for the moment.
            return RefreshRetriableError(f"{what} failed: a partition has no leader.", code=code)
        assert isinstance(error, KafkaException)
        return from_confluent(error, f"{what} failed")

    def _on_problem(self, error: KafkaError) -> None:
        self._problem = error
