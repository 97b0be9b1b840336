"""Questions to the brokers by librdkafka's admin client, with a deadline, and again while that may help."""

from __future__ import annotations

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

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# Between looks at what the client reports of its connections, such as a refused password; and for how long another
# broker may still answer, for one that restarts may refuse too.
_LONGEST_PAUSE = 1.0
_LOOK_SECONDS = 0.1
_REFUSED_SECONDS = 2.0
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)


class Brokers:
    """Asks a cluster's brokers.

    Args:
        settings: Of the Kafka clients.
        timeout: Seconds for each question.
        retries: How often at least a question is put again that failed for a passing reason; it is until the timeout.
        retry_ms: The first pause between these tries; each further one is twice as long.

    Attributes:
        admin: The client that puts the questions.
        timeout: As given.
    """

    def __init__(self, settings: Settings, *, timeout: float, retries: int = 3, retry_ms: int = 10) -> None:
        self.timeout = timeout
        self._retries = retries
        self._retry_seconds = retry_ms / 1000
        self._servers = settings.get("bootstrap.servers") or ""
        self._problem: KafkaError | None = None
        # What the client complains of comes with the error; it need not be logged as well.
        config = {"log_level": 2, **librdkafka_config(settings), "error_cb": self._on_problem}
        self.admin = AdminClient(config, logger=log)

    def ask(self, what: str, question: Callable[[], _T]) -> _T:
        """What `question` returns, which may wait for futures by `answer`.

        Args:
            what: What is asked, for errors, e.g. "Asking for offsets".
            question: Puts it by `admin`.

        Raises:
            KafkaGroupError: The brokers refuse, or have not answered in time.
        """
        deadline = time.monotonic() + self.timeout
        attempt = 0
        while True:
            self.admin.poll(0)
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

    def answer(self, future: Future[_T]) -> _T:
        """A future's result; TimeoutError as soon as the brokers are known to refuse us."""
        asked = time.monotonic()
        while not wait([future], _LOOK_SECONDS).done:
            waited = time.monotonic() - asked
            # The request has its own timeout; the margin lets its reason arrive instead of ours.
            if waited > self.timeout + 2 or (waited > _REFUSED_SECONDS and self._is_refused()):
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
                f"{self.timeout:g} s{reason}.",
                code=code,
            )
        if code == KafkaError._NOENT:
            # So says librdkafka where a partition has no leader for the moment.
            return RefreshRetriableError(f"{what} failed: a partition has no leader.", code=code)
        assert isinstance(error, KafkaException)
        return from_confluent(error, f"{what} failed")

    def _on_problem(self, error: KafkaError) -> None:
        self._problem = error
