"""The producers of `run_transaction`: each takes the transactional id, for exactly one transaction.

librdkafka keeps its producer epoch over `commit_transaction(); begin_transaction()`. So a commit or abort request that
the network delivers twice can end the next, half-written transaction (KIP-890). If every transaction has its own epoch,
such a request is harmless. librdkafka has no second `init_transactions` on a producer, so each transaction takes a new
producer. The producer is made when its transaction begins, not earlier, because its initialisation fences any process
that has taken the id since the previous transaction.
"""

import contextlib
import logging
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
    """

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._config = dict(config)

    def take(self, deadline: Deadline) -> Producer:
        """Return a new initialised producer for one transaction; the id's earlier producers are fenced.

        Raises:
            KafkaGroupError: The error of `init_transactions`, or a timeout.
        """
        initialisation = _Initialisation(self._config, self.transactional_id, deadline)
        try:
            return initialisation.producer()
        finally:
            initialisation.release()


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


class _Initialisation:
    """A producer and its initialisation, which ends at the deadline."""

    def __init__(self, config: Mapping[str, Any], transactional_id: str, deadline: Deadline) -> None:
        self._context = f"Initialising transactional id {transactional_id} failed"
        self._deadline = deadline
        self._problem: KafkaError | None = None
        self._also_tell: Callable[[KafkaError], object] | None = config.get("error_cb")
        try:
            self._producer = Producer(
                {**_QUICK, **config, "transactional.id": transactional_id, "error_cb": self._on_problem}, logger=log
            )
        except KafkaException as error:
            raise from_confluent(error, self._context) from error

    def producer(self) -> Producer:
        """Return the initialised producer."""
        self._connect()
        while not self._is_initialised():
            if self._deadline.over:
                raise self._timed_out()
        return self._producer

    def release(self) -> None:
        """Release the producer; if the traceback of an error kept it alive, it would still take the id."""
        del self._producer

    def _connect(self) -> None:
        """Connect to a broker before the lookup of the coordinator.

        librdkafka drops its bootstrap connection when the first metadata arrive, and a lookup of the coordinator at
        that moment is retried only after 500 ms. Therefore this function requests the metadata twice.
        """
        for _ in range(2):
            with contextlib.suppress(KafkaException):
                self._producer.list_topics(_TRANSACTION_LOG, self._slice())
            self._listen()

    def _is_initialised(self) -> bool:
        try:
            self._producer.init_transactions(self._slice())
        except KafkaException as error:
            problem = from_confluent(error, self._context)
            self._listen()
            if not isinstance(problem, RetriableError):
                raise problem from error
            return False
        return True

    def _slice(self) -> float:
        return min(_INIT_SLICE_SECONDS, self._deadline.left)

    def _listen(self) -> None:
        """Handle the client's connection errors; raise the error of a refused password, which no retry can fix."""
        with contextlib.suppress(KafkaException):  # a fatal error, which its call has raised already
            self._producer.poll(0)
        if self._problem is not None:
            reported = from_confluent(self._problem, self._context)
            if isinstance(reported, AuthenticationError):
                raise reported

    def _timed_out(self) -> KafkaGroupError:
        """Return the error for a producer that was not ready in time, with the client's error."""
        code = ErrorCode.LOCAL_TIMED_OUT if self._problem is None else self._problem.code()
        said = "" if self._problem is None else f"; the client said: {self._problem.str()}"
        return error_for_code(code, self._context, reason=f"not ready after {self._deadline.seconds:.0f} s{said}")

    def _on_problem(self, error: KafkaError) -> None:
        # A broker that is down for a moment is reported too; the last error at the deadline counts.
        self._problem = error
        if self._also_tell is not None:
            self._also_tell(error)
