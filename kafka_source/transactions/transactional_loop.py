"""A public helper for a user's own loop with a confluent-kafka producer: a transaction from its start to its commit.

`run_transaction` handles an error as KIP-1050 requires for the error's category; see `examples/transactional_loop.py`.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    ApplicationRecoverableError,
    FencedError,
    KafkaGroupError,
    RetriableError,
    UnknownOutcomeError,
    error_for_code,
    from_confluent,
)
from kafka_source.runtime.deadline import Deadline, call_within
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.transactions.producers import TransactionalProducers, cause_of

log = logging.getLogger(__name__)

T = TypeVar("T")

_ABORT_SECONDS = 5.0
_PAUSES = RetryPolicy(0.05, 1.0)
# Added to librdkafka's own timeout, so that librdkafka can name the reason.
_GRACE_SECONDS = 1.0


class Transaction:
    """An open transaction; its work counts once `run_transaction` has committed it.

    Args:
        producer: An initialised producer, used for this transaction alone.
        transactional_id: For error texts.
        deadline: The time limit of the whole transaction.
    """

    def __init__(self, producer: Producer, transactional_id: str, deadline: Deadline) -> None:
        self._producer = producer
        self._name = f"transaction of {transactional_id}"
        self._deadline = deadline
        self._undelivered: tuple[KafkaError, str] | None = None

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        partition: int = -1,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Hand a record to the producer; a record that is not delivered fails the commit.

        Raises:
            KafkaGroupError: An earlier record was not delivered, or the producer is no longer usable.
        """
        kwargs: dict[str, Any] = {} if headers is None else {"headers": headers}
        while True:
            if self._undelivered is not None:
                raise self._failure(*self._undelivered)
            try:
                try:
                    self._producer.produce(topic, value, key, partition, self._delivered, **kwargs)
                    self._producer.poll(0)
                    return
                except BufferError:
                    if self._deadline.over:
                        raise self._late("Producing in") from None
                    self._producer.poll(min(0.1, self._deadline.left))
            except KafkaException as error:
                raise self._failure(error.args[0], topic) from error

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        """Commit a group's offsets with the transaction.

        Args:
            offsets: The next offset to read, by topic and partition.
            group_metadata: `Consumer.consumer_group_metadata()`.

        Raises:
            FencedError: The member is not, or no longer, in this generation of the group.
            KafkaGroupError: Another error has prevented the commit of the offsets.
        """
        positions = [Position(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._call(
            "Committing offsets in",
            lambda seconds: self._producer.send_offsets_to_transaction(positions, group_metadata, seconds),
        )

    def begin(self) -> None:
        """Open the transaction; for `run_transaction`."""
        self._call("Beginning", lambda seconds: self._producer.begin_transaction())

    def commit(self) -> None:
        """Deliver every record and commit; for `run_transaction`.

        Raises:
            UnknownOutcomeError: No answer came in time; the transaction may be committed or not.
        """
        while not self._is_committed():
            if self._deadline.over:
                raise UnknownOutcomeError(
                    f"Committing the {self._name} was not answered in {self._deadline.seconds:.0f} s: it may be "
                    "committed or not. Start from the group's committed offsets or the last durable position.",
                    code=ErrorCode.LOCAL_TIMED_OUT,
                )

    def _is_committed(self) -> bool:
        try:
            self._call("Committing", lambda seconds: self._producer.commit_transaction(seconds))
        except KafkaGroupError as error:
            if self._undelivered is not None:
                raise self._failure(*self._undelivered) from error
            if error.code != ErrorCode.LOCAL_TIMED_OUT:
                raise
            # The commit request may be in flight, so its outcome is unknown.
            return False
        return True

    def abort(self) -> None:
        """Abort if possible; for `run_transaction`. The id's next initialisation aborts an open transaction."""
        deadline = Deadline(_ABORT_SECONDS)
        try:
            call_within(deadline, lambda: self._producer.abort_transaction(deadline.left))
        except (KafkaException, TimeoutError, SystemError) as error:
            log.debug("%s was not aborted: %s", self._name, error)

    def release(self) -> None:
        """Release the producer, which the traceback of an error would otherwise keep alive."""
        del self._producer

    def _call(self, doing: str, call: Callable[[float], object]) -> None:
        seconds = self._deadline.left
        try:
            call_within(Deadline(seconds + _GRACE_SECONDS), lambda: call(seconds))
        except KafkaException as error:
            raise from_confluent(error, f"{doing} a {self._name} failed", in_transaction=True) from error
        except TimeoutError:
            raise self._late(doing) from None
        except SystemError as error:
            # confluent-kafka's error for a fatal error while it serves delivery callbacks.
            raise ApplicationRecoverableError(f"{doing} a {self._name} failed: the producer broke down.") from error

    def _late(self, doing: str) -> KafkaGroupError:
        return error_for_code(
            ErrorCode.LOCAL_TIMED_OUT,
            f"{doing} a {self._name} failed",
            reason=f"no answer in {self._deadline.seconds:.0f} s",
            in_transaction=True,
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._undelivered is None:
            partition = message.partition()
            topic = message.topic() or ""
            self._undelivered = error, topic if partition is None or partition < 0 else f"{topic}-{partition}"

    def _failure(self, error: KafkaError, where: str) -> KafkaGroupError:
        return from_confluent(
            cause_of(error, self._producer),
            f"Producing to {where} in a {self._name} failed",
            in_transaction=True,
            produce=True,
        )


def run_transaction(
    producers: TransactionalProducers,
    work: Callable[[Transaction], T],
    *,
    timeout: float,
    rewind: Callable[[], object] | None = None,
    repeatable: bool = False,
) -> T:
    """Begin, do the work, commit; after an error, act by the error's category.

    - Retriable: librdkafka retries. If librdkafka gives up inside a transaction, the error is abortable.
    - Abortable: the transaction is aborted, `rewind` is called, and the work is done again, until the time limit.
    - Application-recoverable: the transaction is aborted if possible. The error is raised, and the caller starts from
      the last durable position.
    - Invalid configuration, and any error of the work itself: the transaction is aborted, and the error is raised.

    Each attempt takes a new producer with an epoch of its own; see `TransactionalProducers`.

    Args:
        producers: The producers of the transactional id.
        work: Produces and sends offsets; called once for each attempt.
        timeout: Seconds for all attempts together.
        rewind: Called after each abort, before the work is done again, e.g. to seek a consumer back.
        repeatable: Whether the work may be committed twice without harm, as absolute offsets may. If true, the work is
            also done again after a commit of unknown outcome or a failure of the producer, unless the producer was
            fenced.

    Returns:
        The result of the work in the committed attempt.

    Raises:
        KafkaGroupError: Errors of the categories above.
    """
    deadline = Deadline(timeout)

    def again(error: Exception, _: int, pause: float) -> bool:
        if not isinstance(error, AbortableError | RetriableError) and (
            not repeatable or not isinstance(error, ApplicationRecoverableError) or isinstance(error, FencedError)
        ):
            return False
        log.info("retrying in %.2f s: %s", pause, error)
        if rewind is not None:
            rewind()
        return True

    return retry(
        lambda: _one_try(producers, work, deadline), _PAUSES, on=KafkaGroupError, deadline=deadline, again=again
    )


def _one_try(producers: TransactionalProducers, work: Callable[[Transaction], T], deadline: Deadline) -> T:
    transaction = Transaction(producers.take(deadline), producers.transactional_id, deadline)
    try:
        transaction.begin()
        result = work(transaction)
        transaction.commit()
    except UnknownOutcomeError:
        # The commit request may still be in flight, and an abort could undo the commit.
        raise
    except BaseException:
        transaction.abort()
        raise
    finally:
        transaction.release()
    return result
