"""The driver's lookups of topics and offsets, with retries; errors of missing topics and partitions without leader."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.epoch_ends import AskedEpoch, epoch_ends
from kafka_source.cluster.list_offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    BootstrapError,
    InvalidConfigurationError,
    KafkaGroupError,
    OptionError,
    RefreshRetriableError,
    RetriableError,
    UnknownTopicError,
    error_for_code,
)
from kafka_source.kafka_client import ConnectionLost, Deadline, EventLoop, KafkaClient, Snapshot
from kafka_source.model.close_names import did_you_mean
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.topic_pattern import matching
from kafka_source.model.topic_selection import Topic, TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.runtime.retry import RetryPolicy, retry

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MAX_PAUSE = 1.0
_LOST = (BootstrapError, ConnectionLost)

# The time limit of retries for a cluster that has answered earlier: Java's default.api.timeout.ms. If all brokers were
# lost, the time until the client rebootstraps is added.
_PATIENCE_MS = 60_000


class NoLeaderError(RefreshRetriableError):
    """Partitions have no leader, so their offsets cannot be looked up."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        super().__init__(f"Asking for offsets failed: no broker leads {format_partitions(sorted(partitions))}.")
        self.partitions = frozenset(partitions)


class Cluster:
    """Looks up topics and offsets, with deadlines and retries.

    A cluster that has answered once may return under new addresses, so its lookups are retried for longer.

    Args:
        settings: Kafka client settings.
        timeout_ms: The time limit of each attempt. A lookup is retried for at least this long.
        retries: The minimum number of retries (Spark's `fetchOffset.numRetries`).
        retry_ms: The first pause between attempts (`fetchOffset.retryIntervalMs`); it doubles with each retry.
        leader_seconds: The wait for a partition's leader; None: as for any lookup.
        client: A shared client, with which `close` must not be called. None: this object has a client of its own.
        strict: Refuse a selection of partitions if some of them do not exist in the first lookup.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        timeout_ms: int = 10_000,
        retries: int = 3,
        retry_ms: int = 10,
        leader_seconds: float | None = None,
        client: KafkaClient | None = None,
        strict: bool = False,
    ) -> None:
        self._client = client or KafkaClient(settings, EventLoop.shared(), settings.client_id("driver"))
        self._known: _KnownMetadata | None = None
        self._reported_missing: set[TopicPartition] = set()
        self._refuses_missing = strict
        self._timeout = timeout_ms / 1000
        self._retries = retries
        self._pauses = RetryPolicy(retry_ms / 1000, _MAX_PAUSE)
        self._leader_seconds = self._timeout if leader_seconds is None else leader_seconds
        self._patience = settings.seconds("default.api.timeout.ms", _PATIENCE_MS)

    @staticmethod
    def of(
        options: ReadOptions, client: KafkaClient | None = None, *, leader_seconds: float | None = None
    ) -> "Cluster":
        """Return the cluster that a query reads from; for `client` and `leader_seconds` see the class."""
        return Cluster(
            options.settings,
            retries=options.fetch_offset_num_retries,
            retry_ms=options.fetch_offset_retry_interval_ms,
            leader_seconds=options.coordinator_timeout_ms / 1000 if leader_seconds is None else leader_seconds,
            client=client,
            strict=options.strict,
        )

    def close(self) -> None:
        """Close the connections; the next lookup opens new connections."""
        self._client.close()

    @contextmanager
    def metadata_snapshot(self, known: Snapshot | None = None) -> Iterator[None]:
        """Within this context, request the metadata of each topic once for all lookups of partitions, ids and leaders.

        Do not wait for a rebalance in the context, because topics may change. Outdated leaders are looked up again.

        Args:
            known: Metadata that was fetched before.
        """
        outer, self._known = self._known, self._known or _KnownMetadata(known or Snapshot(None, {}))
        try:
            yield
        finally:
            self._known = outer

    @contextmanager
    def without_snapshot(self) -> Iterator[None]:
        """Request metadata again in this context, even within a `metadata_snapshot`."""
        outer, self._known = self._known, None
        try:
            yield
        finally:
            self._known = outer

    def cluster_id(self) -> str | None:
        """Return the cluster's id, which differs if another cluster answers under the same name; None: unknown.

        Raises:
            InvalidConfigurationError: A cluster with another id answers now.
        """
        # Every metadata response is compared with the known id, so a request is needed only without a connection.
        if self._client.cluster_id is None or not self._client.connected:
            self._ask("Fetching the cluster's id", lambda deadline: self._client.metadata((), deadline))
        return self._client.cluster_id

    def partitions(self, subscription: TopicSelection) -> list[TopicPartition]:
        """Return the existing partitions of a subscription, sorted.

        The first call refuses partitions of `assign` that do not exist. With `strict=false`, and in later calls,
        missing partitions are left out with a warning, as in Spark's own source.

        Raises:
            OptionError: A partition that the subscription names does not exist.
            UnknownTopicError: A topic that the subscription names does not exist.
            AuthenticationError: This user may not describe a topic that the subscription names.
            BootstrapError: No broker answers.
        """
        if subscription.pattern is not None:
            seen = self._describe_all_topics()
            names = matching(subscription.pattern, seen.topics)
        else:
            names = list(subscription.topics or dict.fromkeys(tp.topic for tp in subscription.partitions))
            seen = self._describe_topics(names)
            for name in names:
                if name not in seen.topics:
                    raise self.unknown_topic(name)
        existing = {TopicPartition(name, number) for name in names for number in seen.topics[name].partitions}
        self._report_missing(set(subscription.partitions) - existing)
        self._refuses_missing = False
        return sorted(existing.intersection(subscription.partitions) if subscription.partitions else existing)

    def unknown_topic(self, name: str) -> UnknownTopicError:
        """Return the error for a topic that does not exist, with the name of a similar topic."""
        known: Collection[str] = ()
        with suppress(KafkaGroupError):
            known = self._describe_all_topics().topics
        return UnknownTopicError(
            f"Topic {name} does not exist, or this user may not see it.{did_you_mean(name, known)} Create the topic, "
            "correct its name, or give this user DESCRIBE on it.",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def _report_missing(self, partitions: set[TopicPartition]) -> None:
        new = sorted(partitions - self._reported_missing)
        if new:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in new)
            if self._refuses_missing:
                problem = (
                    f"Option assign names partitions that do not exist: {names}. Correct the option, or create "
                    "the partitions. To read only the others, with a warning, set the option strict to false"
                )
                raise OptionError("assign", names, problem=problem)
            log.warning("option assign names partitions that do not exist: %s; they are not read", names)
        self._reported_missing |= partitions

    def topics(self, names: Iterable[str]) -> dict[str, Topic | None]:
        """Return the current id and partition count of these topics; None for a topic that does not exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found = self._describe_topics(wanted).topics
        return {
            name: Topic(found[name].id_text, len(found[name].partitions)) if name in found else None for name in wanted
        }

    def without_leader(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the existing partitions that have no leader."""
        wanted = set(partitions)
        topics = self._describe_topics({tp.topic for tp in wanted}).topics
        known = {tp: topics[tp.topic].partitions.get(tp.partition) for tp in wanted if tp.topic in topics}
        return frozenset(tp for tp, partition in known.items() if partition is not None and partition.leader < 0)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        (found,) = self._offsets(dict.fromkeys(partitions, EARLIEST), read_committed=False)
        return _without_epochs(found)

    def latest(self, partitions: Iterable[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; with `read_committed` the last stable offset."""
        return _without_epochs(self.latest_with_epochs(partitions, read_committed=read_committed))

    def latest_with_epochs(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets of `latest`, each with the epoch of the leader that has returned it."""
        (found,) = self._offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
        return found

    def bounds(
        self, earliest: Iterable[TopicPartition], latest: Iterable[TopicPartition], *, read_committed: bool
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the first offset of some partitions and the latest offset of others, requested at the same time.

        Args:
            earliest: The partitions whose first offset is returned.
            latest: The partitions whose high watermark is returned; with `read_committed` the last stable offset.
            read_committed: See `latest`.
        """
        first, last = self._offsets(
            dict.fromkeys(earliest, EARLIEST), dict.fromkeys(latest, LATEST), read_committed=read_committed
        )
        return _without_epochs(first), _without_epochs(last)

    def at_times(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        """Return each partition's first offset at or after a timestamp (ms since 1970).

        None: no such record before the partition's `latest` offset.
        """
        found = self.first_at(times, read_committed=read_committed)
        return {tp: one.offset if one.offset >= 0 else None for tp, one in found.items()}

    def first_at(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets of `at_times`, each with the timestamp of the record."""
        (found,) = self._offsets(times, read_committed=read_committed)
        return found

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return, for each partition, the end of a leader epoch in the current leader's log; see `epoch_ends`."""
        if not epochs:
            return {}

        async def ask(leaders: Mapping[TopicPartition, int], deadline: Deadline) -> dict[TopicPartition, int]:
            by_leader: dict[int, dict[TopicPartition, AskedEpoch]] = {}
            for tp, epoch in epochs.items():
                by_leader.setdefault(leaders[tp], {})[tp] = AskedEpoch(epoch)
            answers = await asyncio.gather(
                *(epoch_ends(self._client, leader, theirs, deadline) for leader, theirs in by_leader.items())
            )
            return {tp: end for answer in answers for tp, end in answer.items()}

        return self._ask_leaders("Asking for leader epochs", set(epochs), ask)

    def _describe_all_topics(self) -> Snapshot:
        """Return the metadata of all topics."""
        if self._known is not None and self._known.has_all_topics:
            return self._known.seen
        seen = self._ask("Listing the topics", lambda deadline: self._client.metadata(None, deadline))
        self._remember(seen, seen.topics)
        if self._known is not None:
            self._known.has_all_topics = True
        return seen

    def _describe_topics(self, names: Iterable[str]) -> Snapshot:
        """Return the metadata of these topics; topics that do not exist are left out.

        Raises:
            KafkaGroupError: The brokers refuse to describe a topic.
        """
        wanted = sorted(set(names))
        if self._known is not None and all(name in self._known.seen.topics for name in wanted):
            return self._known.seen
        what = f"Asking for topic {wanted[0]}" if len(wanted) == 1 else f"Asking for {len(wanted)} topics"
        # The request does not allow brokers to create missing topics.
        seen = self._ask(what, lambda deadline: self._client.metadata(wanted, deadline))
        for name, code in seen.refused.items():
            raise error_for_code(code, f"Asking for topic {name} failed")
        self._remember(seen, wanted)
        return seen

    def _remember(self, seen: Snapshot, topics: Collection[str]) -> None:
        if self._known is not None:
            self._known.seen = self._known.seen.renewed(seen, topics)

    def _offsets(
        self, *questions: Mapping[TopicPartition, int], read_committed: bool
    ) -> list[dict[TopicPartition, ListedOffset]]:
        """Return the offsets for each mapping of partitions to timestamps; see `list_offsets`."""
        partitions = {tp for times in questions for tp in times}
        if not partitions:
            return [{} for _ in questions]
        return self._ask_leaders(
            "Asking for offsets",
            partitions,
            lambda leaders, deadline: self._list_offsets(questions, leaders, deadline, read_committed),
        )

    def _ask_leaders(
        self,
        what: str,
        partitions: Collection[TopicPartition],
        question: Callable[[Mapping[TopicPartition, int], Deadline], Coroutine[Any, Any, _T]],
    ) -> _T:
        """Return the answers of the partitions' leaders; see `_ask`.

        Args:
            what: See `_ask`.
            partitions: The partitions.
            question: One attempt, with the node id of each partition's leader.
        """
        topics, look = {tp.topic for tp in partitions}, self._known
        known = None if look is None or not _has(look.seen, partitions) else look.seen

        async def ask(deadline: Deadline) -> _T:
            nonlocal known
            seen, known = known, None
            if seen is not None:
                with suppress(RetriableError):
                    # A leader that no longer answers must leave time to look up the new leader.
                    return await question(_leaders(seen, partitions), Deadline(self._timeout / 2))
            # The leaders may have changed, and the response shows whether the same cluster still answers.
            seen = await self._client.metadata(topics, deadline)
            self._remember(seen, topics)
            return await question(_leaders(seen, partitions), deadline)

        return self._ask(what, ask)

    async def _list_offsets(
        self,
        questions: Sequence[Mapping[TopicPartition, int]],
        leaders: Mapping[TopicPartition, int],
        deadline: Deadline,
        read_committed: bool,
    ) -> list[dict[TopicPartition, ListedOffset]]:
        # A request must not contain a partition twice, so each kind of offset has requests of its own.
        asked: dict[tuple[int, int], dict[TopicPartition, int]] = {}
        for number, times in enumerate(questions):
            for tp, timestamp in times.items():
                asked.setdefault((number, leaders[tp]), {})[tp] = timestamp
        answers = await asyncio.gather(
            *(
                list_offsets(self._client, leader, theirs, deadline, read_committed=read_committed)
                for (_, leader), theirs in asked.items()
            )
        )
        found: list[dict[TopicPartition, ListedOffset]] = [{} for _ in questions]
        for (number, _), answer in zip(asked, answers, strict=True):
            found[number] |= answer
        return found

    def _ask(self, what: str, question: Callable[[Deadline], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of a lookup; repeat it after errors, except errors of a setting or a permission.

        Args:
            what: The lookup as the beginning of a sentence in errors.
            question: One attempt.

        Raises:
            KafkaGroupError: The brokers refuse, or have not answered in time.
            InvalidConfigurationError: A cluster with another id answers now.
        """
        begun, was_lost = time.monotonic(), False

        def again(error: Exception, failures: int, _: float) -> bool:
            nonlocal was_lost
            if isinstance(error, InvalidConfigurationError):
                return False
            if isinstance(error, _LOST):
                was_lost = True
                if not self._was_there:
                    return False
            elif isinstance(error, UnknownTopicError):
                return False
            elif isinstance(error, NoLeaderError):
                left = begun + self._leader_seconds - time.monotonic()
                if failures == self._retries and left > 0:
                    names = format_partitions(sorted(error.partitions))
                    log.warning("no broker leads %s: waiting up to %.0f s for a leader", names, left)
                return failures < self._retries or left >= 0
            return failures < self._retries or time.monotonic() <= begun + self._seconds_for(was_lost=was_lost)

        def ask() -> _T:
            return self._client.run(question(Deadline(self._timeout)))

        try:
            return retry(ask, self._pauses, on=KafkaGroupError, again=again)
        except _LOST as error:
            raise BootstrapError(f"{what} failed: {error}{self._advice()}") from None

    @property
    def _was_there(self) -> bool:
        """Whether this cluster has answered before."""
        return self._client.cluster_id is not None

    def _seconds_for(self, *, was_lost: bool) -> float:
        """Return how many seconds to retry a lookup; after the loss of all brokers, long enough to rebootstrap."""
        if not was_lost:
            return self._timeout
        if self._client.connected:
            return max(self._timeout, self._patience)
        return self._patience + (self._client.settings.rebootstrap_after or 0.0)

    def _advice(self) -> str:
        if not self._was_there or self._client.settings.rebootstrap_after is not None:
            return ""
        return " All known brokers were lost; metadata.recovery.strategy is none, so the client did not rebootstrap."


@dataclass(slots=True)
class _KnownMetadata:
    """The metadata that a context of `metadata_snapshot` has fetched.

    Attributes:
        seen: The topics, and the brokers.
        has_all_topics: Whether `seen` has all topics of the cluster.
    """

    seen: Snapshot
    has_all_topics: bool = False


def _without_epochs(listed: Mapping[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
    return {tp: one.offset for tp, one in listed.items()}


def _has(seen: Snapshot, partitions: Iterable[TopicPartition]) -> bool:
    return all(tp.topic in seen.topics and tp.partition in seen.topics[tp.topic].partitions for tp in partitions)


def _leaders(seen: Snapshot, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the node id of each partition's leader.

    Raises:
        UnknownTopicError: A partition does not exist.
        NoLeaderError: Partitions have no leader.
    """
    leaders = {}
    for tp in partitions:
        name = f"{tp.topic}-{tp.partition}"
        if tp.topic in seen.refused:
            raise error_for_code(seen.refused[tp.topic], f"Asking for the offsets of {name} failed")
        topic = seen.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None:
            what = f"Asking for the offsets of {name} failed: the partition does not exist."
            raise UnknownTopicError(what, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leaders[tp] = partition.leader
    if missing := {tp for tp, leader in leaders.items() if leader < 0}:
        raise NoLeaderError(missing)
    return leaders
