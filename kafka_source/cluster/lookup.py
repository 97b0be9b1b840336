"""What the driver asks of the cluster: topics, and the offsets that its partitions have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import EARLIEST, LATEST, list_offsets
from kafka_source.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from kafka_source.errors import BootstrapError, RefreshRetriableError, RetriableError, UnknownTopicError, error_for_code
from kafka_source.kafka_client import ConnectionLost, Deadline, EventLoop, KafkaClient, Snapshot
from kafka_source.model.topic_pattern import matching
from kafka_source.model.topic_selection import Topic, TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.runtime.retry import RetryPolicy, retry

_T = TypeVar("_T")

_LONGEST_PAUSE = 1.0
_LOST = (BootstrapError, ConnectionLost)

# How long a cluster that was there is asked again: Java's default.api.timeout.ms, beyond the time until starting over.
_PATIENCE_MS = 60_000


class Cluster:
    """Topics and offsets of a cluster, asked for with a deadline and tried again as the options say.

    A cluster that has answered once may lose all of its brokers and come back elsewhere: it is asked for longer than
    one that never was there.

    Args:
        settings: Of the Kafka clients.
        timeout_ms: For each question.
        retries: How often at least a question is put again that failed for a passing reason; it is until the timeout.
        retry_ms: The first pause between these tries; each further one is twice as long.
    """

    def __init__(self, settings: Settings, *, timeout_ms: int = 10_000, retries: int = 3, retry_ms: int = 10) -> None:
        self._client = KafkaClient(settings, EventLoop.shared(), settings.client_id("driver"))
        self._timeout = timeout_ms / 1000
        self._retries = retries
        self._pauses = RetryPolicy(retry_ms / 1000, _LONGEST_PAUSE)
        self._patience = settings.seconds("default.api.timeout.ms", _PATIENCE_MS)

    @staticmethod
    def of(options: ReadOptions) -> Cluster:
        """Return the cluster that a query reads from."""
        return Cluster(
            options.settings,
            retries=options.fetch_offset_num_retries,
            retry_ms=options.fetch_offset_retry_interval_ms,
        )

    def close(self) -> None:
        """Close the connections; another question opens them again."""
        self._client.close()

    def cluster_id(self) -> str | None:
        """The cluster's id, which tells one cluster from another behind the same name; None: it does not tell.

        Raises:
            InvalidConfigurationError: It is another than before.
        """
        # Every question's answer is compared; one is put only where nobody is known to be there.
        if self._client.cluster_id is None or not self._client.connected:
            self._ask("Asking for the cluster's id", lambda deadline: self._client.metadata((), deadline))
        return self._client.cluster_id

    def partitions(self, subscription: TopicSelection) -> list[TopicPartition]:
        """The partitions of a subscription that exist now, sorted.

        Raises:
            UnknownTopicError: A topic or partition that is named does not exist.
            AuthenticationError: This user may not see a topic that is named.
            BootstrapError: No broker answers.
        """
        if subscription.pattern is not None:
            seen = self._ask("Listing the topics", lambda deadline: self._client.metadata(None, deadline))
            names = matching(subscription.pattern, seen.topics)
        else:
            names = list(subscription.topics or dict.fromkeys(tp.topic for tp in subscription.partitions))
            seen = self._see(names)
            for name in names:
                if name not in seen.topics:
                    raise UnknownTopicError(
                        f"Topic {name} does not exist, or this user may not see it; create it or correct the option "
                        "subscribe.",
                        code=UNKNOWN_TOPIC_OR_PARTITION,
                    )
        existing = {TopicPartition(name, number) for name in names for number in seen.topics[name].partitions}
        missing = sorted(set(subscription.partitions) - existing)
        if missing:
            raise UnknownTopicError(
                f"The partitions {', '.join(f'{tp.topic}-{tp.partition}' for tp in missing)} do not exist; "
                "correct the option assign."
            )
        return sorted(subscription.partitions or existing)

    def topics(self, names: Iterable[str]) -> dict[str, Topic | None]:
        """These topics as they are now; None for one that does not exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found = self._see(wanted).topics
        return {
            name: Topic(found[name].id_text, len(found[name].partitions)) if name in found else None for name in wanted
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with `read_committed` the last stable offset."""
        return self._offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after a time (ms since 1970); None where there is none."""
        return {tp: offset if offset >= 0 else None for tp, offset in self._offsets(times).items()}

    def _see(self, names: Iterable[str]) -> Snapshot:
        """Topics by name, those that exist.

        Raises:
            KafkaGroupError: The brokers refuse to tell of one.
        """
        wanted = sorted(set(names))
        what = f"Asking for topic {wanted[0]}" if len(wanted) == 1 else f"Asking for {len(wanted)} topics"
        # Metadata are asked for in such a way that no topic is made by it.
        seen = self._ask(what, lambda deadline: self._client.metadata(wanted, deadline))
        for name, code in seen.refused.items():
            raise error_for_code(code, f"Asking for topic {name} failed")
        return seen

    def _offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        if not times:
            return {}
        client, topics = self._client, {tp.topic for tp in times}

        async def ask(deadline: Deadline) -> dict[TopicPartition, int]:
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            # Leaders are asked for each time: so it is known, too, which cluster it is that answers.
            leaders = _leaders(await client.metadata(topics, deadline), times)
            for tp, leader in leaders.items():
                by_leader.setdefault(leader, {})[tp] = times[tp]
            answers = await asyncio.gather(
                *(
                    list_offsets(client, leader, theirs, deadline, read_committed=read_committed)
                    for leader, theirs in by_leader.items()
                )
            )
            return {tp: offset for answer in answers for tp, offset in answer.items()}

        return self._ask("Asking for offsets", ask)

    def _ask(self, what: str, question: Callable[[Deadline], Coroutine[Any, Any, _T]]) -> _T:
        """What the question returns, put again while that may help.

        Raises:
            KafkaGroupError: The brokers refuse, or have not answered in time.
            InvalidConfigurationError: Another cluster answers than before.
        """
        begun, was_lost = time.monotonic(), False

        def again(error: Exception, failures: int, _: float) -> bool:
            nonlocal was_lost
            if isinstance(error, _LOST):
                was_lost = True
                if not self._was_there:
                    return False
            elif isinstance(error, UnknownTopicError):
                return False
            return failures < self._retries or time.monotonic() <= begun + self._seconds_for(was_lost=was_lost)

        def ask() -> _T:
            return self._client.run(question(Deadline(self._timeout)))

        try:
            return retry(ask, self._pauses, on=RetriableError, again=again)
        except _LOST as error:
            raise BootstrapError(f"{what} failed: {error}{self._advice()}") from None

    @property
    def _was_there(self) -> bool:
        """Whether the cluster has answered before."""
        return self._client.cluster_id is not None

    def _seconds_for(self, *, was_lost: bool) -> float:
        """How long a question is put again: after the loss of brokers as long as these take to come back."""
        if not was_lost:
            return self._timeout
        if self._client.connected:
            return max(self._timeout, self._patience)
        return self._patience + (self._client.settings.rebootstrap_after or 0.0)

    def _advice(self) -> str:
        if not self._was_there or self._client.settings.rebootstrap_after is not None:
            return ""
        return " Brokers were lost; metadata.recovery.strategy is none, so the servers were not looked up again."


def _leaders(seen: Snapshot, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The node that leads each partition.

    Raises:
        UnknownTopicError: A partition does not exist.
        RefreshRetriableError: A partition has no leader.
    """
    leaders = {}
    for tp in partitions:
        name = f"{tp.topic}-{tp.partition}"
        if tp.topic in seen.refused:
            raise error_for_code(seen.refused[tp.topic], f"Asking for the offsets of {name} failed")
        topic = seen.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None:
            what = f"Asking for the offsets of {name} failed: it does not exist."
            raise UnknownTopicError(what, code=UNKNOWN_TOPIC_OR_PARTITION)
        if partition.leader < 0:
            raise RefreshRetriableError(f"Asking for the offsets of {name} failed: it has no leader.")
        leaders[tp] = partition.leader
    return leaders
