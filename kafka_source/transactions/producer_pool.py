"""The producers of `run_transaction`, each made ready in the background for exactly one transaction.

librdkafka keeps its producer epoch over `commit_transaction(); begin_transaction()`. So a commit or abort request that
the network delivers twice can end the next, half-written transaction (KIP-890). If every transaction has its own epoch,
such a request is harmless. librdkafka has no second `init_transactions` on a producer, so each transaction takes a new
producer, which is made ready in the background after the previous transaction.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, KafkaGroupError, RetriableError, error_for_code, from_confluent
from kafka_source.runtime.deadline import Deadline

log = logging.getLogger(__name__)

# Errors of records that were dropped with their transaction, and of calls after the transaction's end.
_CONSEQUENCES = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE})
_TRANSACTION_LOG = "__transaction_state"
# librdkafka opens three connections in sequence and backs off before the second and third. With this setting the
# connections take 20 ms instead of 59 ms. If a broker is down, the wait still doubles with each attempt.
_QUICK = {"reconnect.backoff.ms": 1}
# Seconds between checks for errors that the client has reported, such as a refused password.
_INIT_SLICE_SECONDS = 1.0


class TransactionalProducers:
    """Producers of one transactional id; one transaction is open at a time.

    Args:
        config: The configuration of librdkafka, without the transactional id.
        transactional_id: The id. Another process that initialises the id fences this process.
        init_seconds: The time limit to make a producer ready in the background.
        keep_warm: Whether the next producer is made ready as soon as a transaction has ended.
    """

    def __init__(
        self, config: Mapping[str, Any], transactional_id: str, *, init_seconds: float = 60.0, keep_warm: bool = True
    ) -> None:
        self.transactional_id = transactional_id
        self._config = dict(config)
        self._init_seconds = init_seconds
        self._keep_warm = keep_warm
        self._lock = threading.Lock()
        self._next: _Preparation | None = None
        self._closed = False

    def prepare(self) -> None:
        """Begin to make the next producer ready; `take` raises the error of a failure.

        No transaction of this id may be open, because the initialisation would abort it.
        """
        with self._lock:
            if self._next is None and not self._closed:
                self._next = _Preparation(self._config, self.transactional_id, self._init_seconds)

    def take(self, deadline: Deadline) -> Producer:
        """Return an initialised producer for one transaction; call `ended` after the transaction.

        Raises:
            KafkaGroupError: The error of `init_transactions`, or a timeout.
        """
        self.prepare()
        with self._lock:
            preparation, self._next = self._next, None
        if preparation is None:
            raise KafkaGroupError(f"The producers of transactional id {self.transactional_id} are closed.")
        try:
            return preparation.result(deadline)
        except TimeoutError:
            # The preparation continues in the background, and would fence a second preparation at its end.
            with self._lock:
                self._next = preparation
            raise preparation.timed_out(deadline.seconds) from None

    def ended(self) -> None:
        """Record the end of the transaction, so that the next producer may be made ready."""
        if self._keep_warm:
            self.prepare()

    def close(self) -> None:
        """Drop the prepared producer, which has no open transaction to abort."""
        with self._lock:
            self._next, self._closed = None, True


def cause_of(error: KafkaError, producer: Producer) -> KafkaError:
    """Return the cause of the failed transaction if `error` is its consequence, else `error`. Not for callbacks.

    Until the transaction is aborted, `begin_transaction` raises the cause, which librdkafka keeps.
    """
    if error.code() not in _CONSEQUENCES:
        return error
    try:
        producer.begin_transaction()
    except KafkaException as refusal:
        reason = refusal.args[0]
        if isinstance(reason, KafkaError) and reason.code() not in (*_CONSEQUENCES, KafkaError._NOT_CONFIGURED):
            return reason
    return error


class _Preparation:
    """The preparation of one producer, in a thread of its own."""

    def __init__(self, config: Mapping[str, Any], transactional_id: str, seconds: float) -> None:
        self._context = f"Initialising transactional id {transactional_id} failed"
        self._problem: KafkaError | None = None
        self._also_tell: Callable[[KafkaError], object] | None = config.get("error_cb")
        self._config = {**_QUICK, **config, "transactional.id": transactional_id, "error_cb": self._on_problem}
        self._deadline = Deadline(seconds)
        self._done = threading.Event()
        self._producer: Producer | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="kafkagroup-init", daemon=True).start()

    def result(self, deadline: Deadline) -> Producer:
        """Return the producer; raise TimeoutError if it is not ready at the deadline."""
        if not self._done.wait(deadline.left):
            raise TimeoutError
        if self._producer is None:
            raise self._error or KafkaGroupError(self._context)
        producer, self._producer = self._producer, None
        return producer

    def _run(self) -> None:
        try:
            self._producer = self._initialised()
        except BaseException as error:
            # A producer that the traceback holds would continue trying, and fence its successor when it succeeds.
            for one in (error, error.__cause__):
                traceback.clear_frames(one.__traceback__ if one is not None else None)
            self._error = error
        finally:
            self._done.set()

    def _initialised(self) -> Producer:
        try:
            producer = Producer(self._config, logger=log)
        except KafkaException as error:
            raise from_confluent(error, self._context) from error
        self._connect(producer)
        while not self._is_initialised(producer):
            if self._deadline.over:
                raise self.timed_out(self._deadline.seconds)
        return producer

    def _connect(self, producer: Producer) -> None:
        """Connect to a broker before the lookup of the coordinator.

        librdkafka drops its bootstrap connection when the first metadata arrive, and a lookup of the coordinator at
        that moment is retried only after 500 ms. Therefore this function requests the metadata twice.
        """
        for _ in range(2):
            with contextlib.suppress(KafkaException):
                producer.list_topics(_TRANSACTION_LOG, _INIT_SLICE_SECONDS)
            self._listen(producer)

    def _is_initialised(self, producer: Producer) -> bool:
        try:
            producer.init_transactions(_INIT_SLICE_SECONDS)
        except KafkaException as error:
            problem = from_confluent(error, self._context)
            self._listen(producer)
            if not isinstance(problem, RetriableError):
                raise problem from error
            return False
        return True

    def _listen(self, producer: Producer) -> None:
        """Handle the client's connection errors; raise the error of a refused password, which no retry can fix."""
        with contextlib.suppress(KafkaException):  # a fatal error, which its call has raised already
            producer.poll(0)
        if self._problem is not None:
            reported = from_confluent(self._problem, self._context)
            if isinstance(reported, AuthenticationError):
                raise reported

    def timed_out(self, seconds: float) -> KafkaGroupError:
        """Return the error for a producer that was not ready in this time, with the client's error."""
        code = ErrorCode.LOCAL_TIMED_OUT if self._problem is None else self._problem.code()
        said = "" if self._problem is None else f"; the client said: {self._problem.str()}"
        return error_for_code(code, self._context, reason=f"not ready after {seconds:.0f} s{said}")

    def _on_problem(self, error: KafkaError) -> None:
        # A broker that is down for a moment is reported too; the last error at the deadline counts.
        self._problem = error
        if self._also_tell is not None:
            self._also_tell(error)
