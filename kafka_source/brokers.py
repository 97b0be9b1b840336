"""Questions to the brokers by librdkafka's admin client, with a deadline, and again while that may help."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]

from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.errors import (
    BootstrapError,
    KafkaGroupError,
    RefreshRetriableError,
    RetriableError,
    UnknownTopicError,
    from_confluent,
)
from kafka_source.identity import MOVED_FROM, check_same_cluster
from kafka_source.kafka_client import Recovery, rebootstrap_after

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# Between looks at what the client reports of its connections, such as a refused password; and for how long another
# broker may still answer, for one that restarts may refuse too.
_LONGEST_PAUSE = 1.0
_LOOK_SECONDS = 0.1
_REFUSED_SECONDS = 2.0
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)

# How long a cluster that was there is asked again: Java's default.api.timeout.ms, beyond the time until starting over.
_PATIENCE_MS = 60_000
_NOBODY_LEFT = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


class Brokers:
    """Asks a cluster's brokers.

    A cluster that has answered once may lose all of its brokers and come back elsewhere: it is asked again for longer
    than one that never was there, and a new client starts over from the bootstrap servers (KIP-899, KIP-1102).

    Args:
        settings: Of the Kafka clients.
        timeout: Seconds for each question.
        retries: How often at least a question is put again that failed for a passing reason; it is until the timeout.
        retry_ms: The first pause between these tries; each further one is twice as long.

    Attributes:
        admin: The client that puts the questions.
        timeout: As given.
        cluster_id: Of the cluster that has answered; None before, or if it does not tell.
    """

    def __init__(self, settings: Settings, *, timeout: float, retries: int = 3, retry_ms: int = 10) -> None:
        self.timeout = timeout
        self._retries = retries
        self._retry_seconds = retry_ms / 1000
        self._servers = settings.get("bootstrap.servers") or ""
        self._problem: KafkaError | None = None
        # What the client complains of comes with the error; it need not be logged as well.
        self._config = {
            "log_level": 2,
            **librdkafka_config(settings),
            # Not the fetchers' id, whose quotas must not hold the driver up.
            "client.id": f"{settings.get('client.id') or 'kafkagroup'}-driver",
            "error_cb": self._on_problem,
        }
        self.admin = AdminClient(self._config, logger=log)
        self._recovery = Recovery(rebootstrap_after(settings))
        self._patience = (settings.integer("default.api.timeout.ms") or _PATIENCE_MS) / 1000
        self._moved_from = settings.get(MOVED_FROM)
        self._shaken = True
        self.cluster_id: str | None = None

    def ask(self, what: str, question: Callable[[], _T]) -> _T:
        """What `question` returns, which may wait for futures by `answer`.

        Args:
            what: What is asked, for errors, e.g. "Asking for offsets".
            question: Puts it by `admin`.

        Raises:
            KafkaGroupError: The brokers refuse, or have not answered in time.
            InvalidConfigurationError: Another cluster answers than before.
        """
        begun = time.monotonic()
        attempt = 0
        while True:
            self.admin.poll(0)
            self._problem = None  # What was reported before says nothing about this question.
            self._recovery = self._recovery.asked(time.monotonic())
            try:
                answer = question()
                while self._met_another():
                    answer = question()
                self._recovery = self._recovery.answered()
                return answer
            except (KafkaException, TimeoutError) as error:
                failure = self._meaning(what, error)
                if isinstance(failure, BootstrapError):
                    if self._is_hoped_for(failure, begun):
                        time.sleep(_LONGEST_PAUSE)
                        continue
                else:
                    # Somebody has answered, if only to refuse.
                    self._recovery = self._recovery.answered()
                if not isinstance(failure, RetriableError) or isinstance(failure, BootstrapError | UnknownTopicError):
                    raise failure from None
                # A new leader takes longer than the built-in source's three tries of 10 ms.
                # After the loss of brokers it takes as long as these take to come back.
                lost = self._shaken and self.cluster_id is not None
                patience = max(self.timeout, self._patience) if lost else self.timeout
                if attempt >= self._retries and time.monotonic() > begun + patience:
                    raise failure from None
                self._refresh()
            time.sleep(min(_LONGEST_PAUSE, self._retry_seconds * 2**attempt))
            attempt += 1

    def answer(self, future: Future[_T]) -> _T:
        """A future's result; TimeoutError as soon as the brokers are known to refuse us."""
        asked = time.monotonic()
        while not wait([future], _LOOK_SECONDS).done:
            waited = time.monotonic() - asked
            # The request has its own timeout; the margin lets its reason arrive instead of ours.
            if waited > self.timeout + 2 or (waited > _REFUSED_SECONDS and self._is_refused()):
                raise TimeoutError
            if self._recovery.reason(time.monotonic()) is not None:
                raise TimeoutError
        return future.result()

    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics by name; for use in a question."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                # Nothing is heard of a refused password while this call waits.
                return self.admin.list_topics(timeout=min(_REFUSED_SECONDS, self.timeout)).topics
            except KafkaException:
                if self._is_refused() or time.monotonic() > deadline:
                    raise

    def _met_another(self) -> bool:
        """Whether another cluster answers than before, as it is to be; looked at after trouble with connections."""
        self.admin.poll(0)
        if not self._shaken:
            return False
        found = self.answer(self.admin.describe_cluster(request_timeout=self.timeout)).cluster_id
        before = self.cluster_id
        check_same_cluster(before, found, servers=self._servers, moved_from=self._moved_from)
        self.cluster_id, self._shaken = found or before, False
        return before is not None and self.cluster_id != before

    def _is_hoped_for(self, failure: BootstrapError, begun: float) -> bool:
        """Whether a cluster that does not answer is to be asked again; starts over when it is time for that."""
        now = time.monotonic()
        if self.cluster_id is None or now - begun > self._patience + (self._recovery.trigger or 0.0):
            return False
        problem = self._problem.code() if self._problem is not None else failure.code
        reason = self._recovery.reason(now, nobody_left=problem in _NOBODY_LEFT)
        if reason is not None:
            log.warning("rebootstrap servers=%s reason=%r", self._servers, reason)
            # A new client resolves the names again, and knows none of the brokers that are gone.
            self.admin = AdminClient(self._config, logger=log)
            self._recovery, self._shaken = self._recovery.answered(), True
        return True

    def _refresh(self) -> None:
        """Forget leaders and epochs of before: the client would ask by them again for minutes."""
        with contextlib.suppress(KafkaException):
            self.admin.list_topics(timeout=min(_REFUSED_SECONDS, self.timeout))

    def _is_refused(self) -> bool:
        self.admin.poll(0)
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
                f"{self.timeout:g} s{reason}.{self._advice()}",
                code=code,
            )
        if code == KafkaError._NOENT:
            # So says librdkafka where a partition has no leader for the moment.
            return RefreshRetriableError(f"{what} failed: a partition has no leader.{self._advice()}", code=code)
        assert isinstance(error, KafkaException)
        return from_confluent(error, f"{what} failed")

    def _advice(self) -> str:
        if self.cluster_id is None or not self._shaken or self._recovery.trigger is not None:
            return ""
        return " Brokers were lost; metadata.recovery.strategy is none, so the servers were not looked up again."

    def _on_problem(self, error: KafkaError) -> None:
        self._problem, self._shaken = error, True
