"""Everything that kafkagroup raises, by the categories of KIP-1050.

    KafkaGroupError
    ├── RetriableError                    try the same again, after a back-off
    │   └── RefreshRetriableError         refresh metadata or find the coordinator, then try again
    │       ├── BootstrapError            none of `kafka.bootstrap.servers` answers
    │       └── UnknownTopicError         the topic or partition does not exist (yet)
    ├── AbortableError                    abort the transaction, rewind, do the work again; the producer lives on
    │   └── DeliveryError                 a record was not delivered
    ├── ApplicationRecoverableError       drop the producer or member, start again from the last durable position
    │   ├── FencedError                   another member or producer has taken over this one's place
    │   ├── UnknownOutcomeError           a commit was sent and never answered
    │   ├── LostTransactionsError         transactions that were to make a batch visible are gone
    │   ├── NotVisibleError               a committed batch cannot be seen: a broker lost its commit markers
    │   ├── AssignmentFailed              the group's leader could not plan the partitions
    │   ├── DataLossError                 planned offsets are no longer in the topic
    │   └── CorruptRecordsError           bytes of the topic cannot be read
    └── InvalidConfigurationError         the user must change a setting or a permission; nothing is tried again
        ├── OptionError (also ValueError) an option has a value that it does not take
        ├── UnreadableRecordError         a sound record that the columns or bounds asked for cannot show
        └── AuthenticationError           the brokers refuse the credentials, or the user lacks a right

Every error carries `code` and `code_name`, the broker's or librdkafka's, or None where it does not come from Kafka.
All of them survive pickling: Spark sends them between its processes. `error_codes` holds the category of every code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from assignors.model import TopicPartition
from kafka_source import error_codes as codes
from kafka_source.error_codes import ADVICE, CODES, Category

__all__ = [
    "AbortableError",
    "ApplicationRecoverableError",
    "AssignmentFailed",
    "AuthenticationError",
    "BootstrapError",
    "CorruptRecordsError",
    "DataLossError",
    "DeliveryError",
    "FencedError",
    "InvalidConfigurationError",
    "KafkaGroupError",
    "LostTransactionsError",
    "NotVisibleError",
    "OptionError",
    "RefreshRetriableError",
    "RetriableError",
    "UnknownOutcomeError",
    "UnknownTopicError",
    "UnreadableRecordError",
    "category",
    "code_name",
    "error_for_code",
    "from_confluent",
]


class KafkaGroupError(Exception):
    """Base of all errors of kafkagroup.

    Args:
        message: What happened, to which topic-partition and offset, and what to do.
        code: Kafka's (-1 and up) or librdkafka's (below -1) error code.
    """

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.code_name = None if code is None else code_name(code)

    def __reduce__(self) -> tuple[Any, ...]:
        # The classes below take keywords only, which Exception's own pickling would not pass on.
        return _restore, (type(self), self.args, self.__dict__)


class RetriableError(KafkaGroupError):
    """Passes by itself: the same request may succeed after a back-off."""


class RefreshRetriableError(RetriableError):
    """Passes once metadata or the coordinator have been asked for again."""


class BootstrapError(RefreshRetriableError):
    """No broker of `kafka.bootstrap.servers` could be reached."""


class UnknownTopicError(RefreshRetriableError):
    """A topic or partition does not exist, or this user may not see it."""


class AbortableError(KafkaGroupError):
    """The transaction must be aborted; after that everything is as it was before it, and the producer goes on."""


class DeliveryError(AbortableError):
    """A record was not delivered, so the task that wrote it fails.

    Args:
        topic: The record's topic.
        partition: Its partition, or None if none was chosen yet.
        reason: The broker's or librdkafka's words.
        advice: What the user can do about it.
        code: The code of the delivery report.
    """

    def __init__(
        self, *, topic: str, partition: int | None, reason: str, advice: str = "", code: int | None = None
    ) -> None:
        where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
        super().__init__(_sentences(f"A record for {where} was not delivered: {reason}", advice), code=code)
        self.topic, self.partition, self.reason = topic, partition, reason


class ApplicationRecoverableError(KafkaGroupError):
    """The producer or member is of no more use; its owner makes a new one and starts from the last durable position."""


class FencedError(ApplicationRecoverableError):
    """Another member, or a newer producer of the same transactional id, has taken this one's place."""


class UnknownOutcomeError(ApplicationRecoverableError):
    """A commit was sent and no answer came in time: it may have happened or not; read the durable position."""


class LostTransactionsError(ApplicationRecoverableError):
    """Open transactions of a batch are gone: they ran out of time, or another query uses the same prefix.

    Args:
        batch: The number of the batch.
        transactional_ids: Whose transactions are gone.
        decided: Whether the batch had been decided: then their records are lost, else Spark writes all of it again.
    """

    def __init__(self, *, batch: int, transactional_ids: Iterable[str], decided: bool) -> None:
        self.batch, self.transactional_ids, self.decided = batch, tuple(transactional_ids), decided
        names = ", ".join(self.transactional_ids)
        super().__init__(
            _sentences(
                f"Of batch {batch} the transactions {names} are gone: they were open for longer than "
                "kafka.transaction.timeout.ms, or another query uses the same transactional.id.prefix",
                "The batch had been decided and its other transactions are committed: the records of these are lost, "
                "unless the query's tasks get the same rows again and transactional.on.lost is replay. To go on "
                "without them: kafkagroup transactions commit --accept-loss"
                if decided
                else "Nothing of the batch is visible and nothing is lost: it is written again when the query restarts",
            )
        )


class NotVisibleError(ApplicationRecoverableError):
    """A batch is committed, but readers do not see all of it: commit markers are missing in some partitions.

    Args:
        batch: The number of the batch.
        partitions: Where markers are missing, or where nobody could be asked.
        missing: The transactional ids, by partition.
        seconds: For how long they were waited for.
    """

    def __init__(
        self,
        *,
        batch: int,
        partitions: Iterable[TopicPartition],
        missing: Mapping[TopicPartition, str],
        seconds: float,
    ) -> None:
        self.batch, self.partitions = batch, tuple(partitions)
        where = ", ".join(
            f"{tp.topic}-{tp.partition}" + (f" (transaction of {missing[tp]})" if tp in missing else "")
            for tp in self.partitions
        )
        super().__init__(
            _sentences(
                f"Batch {batch} is committed, but {seconds:.0f} s later its commit markers are not in {where}: readers "
                "with read_committed do not see these records, nor what comes after them there",
                "If the brokers are well, one that was lost right after the commit has lost the markers too; "
                "`kafkagroup transactions repair` writes them. Aborting instead would drop committed records",
            )
        )


class AssignmentFailed(ApplicationRecoverableError):  # noqa: N818 - the group protocol's word
    """The leader of the group could not plan the partitions; no member of this generation reads."""


class DataLossError(ApplicationRecoverableError):
    """Offsets that were to be read are no longer, or not any more, in the partition.

    Args:
        topic: The topic.
        partition: The partition.
        planned: The offset that was to be read first.
        available: The first offset that exists and the one after the last.
        reason: How it may have come about, e.g. "the topic was created anew".
        truncated_to: Up to which offset a new leader has what was read before `planned`.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        planned: int,
        available: tuple[int, int] | None = None,
        reason: str = "",
        truncated_to: int | None = None,
    ) -> None:
        there = "the partition is gone" if available is None else f"only [{available[0]}, {available[1]}) is there"
        if truncated_to is not None:
            there = f"its log was truncated to offset {truncated_to}: what was read from there on is gone"
        super().__init__(
            _sentences(
                f"{topic}-{partition} was to be read from offset {planned}, but {there}",
                reason,
                "Data may have been lost by retention, or the topic was deleted or truncated. To go on with what is "
                "there, with a warning, set the option failOnDataLoss to false",
            )
        )
        self.topic, self.partition, self.planned, self.available = topic, partition, planned, available
        self.truncated_to = truncated_to


class CorruptRecordsError(ApplicationRecoverableError):
    """The bytes of a record batch cannot be read: a bad checksum, a truncated batch, an unknown codec.

    Args:
        topic: The topic.
        partition: The partition.
        offset: The batch's first offset, or where reading stood.
        reason: What is wrong with the bytes.
    """

    def __init__(self, *, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            _sentences(
                f"The records of {topic}-{partition} at offset {offset} cannot be read: {reason}",
                "If this comes back on every try, the broker's log is damaged there: start after the damaged batch",
            )
        )
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason


class InvalidConfigurationError(KafkaGroupError):
    """Only a change of a setting or a permission helps; the query ends with its name."""


class OptionError(InvalidConfigurationError, ValueError):
    """An option got a value it does not take.

    Args:
        option: The option's name as users write it.
        got: What it got, or None if it is missing. Never a secret: callers pass a redacted value.
        takes: What it takes, e.g. "a number greater than 0".
    """

    def __init__(self, option: str, got: object, takes: str) -> None:
        what = f"Option {option} is missing" if got is None else f"Option {option} got {got!r}"
        super().__init__(f"{what}; it takes {takes}.")
        self.option, self.got, self.takes = option, got, takes


class UnreadableRecordError(InvalidConfigurationError):
    """Records are sound, but cannot be read with the columns or the bounds that were asked for.

    Args:
        topic: The topic.
        partition: The partition.
        offset: The first offset that cannot be read.
        reason: Which column or bound it is, and what to ask for instead.
    """

    def __init__(self, *, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"The record of {topic}-{partition} at offset {offset} cannot be read as asked for: {reason}.")
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason


class AuthenticationError(InvalidConfigurationError):
    """The brokers refuse the credentials, the TLS handshake fails, or the user lacks a right."""


_CLASSES: dict[Category, type[KafkaGroupError]] = {
    Category.RETRIABLE: RetriableError,
    Category.REFRESH_RETRIABLE: RefreshRetriableError,
    Category.ABORTABLE: AbortableError,
    Category.APPLICATION_RECOVERABLE: ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: InvalidConfigurationError,
}

# Codes with an error of their own, inside their category.
_SPECIFIC: dict[int, type[KafkaGroupError]] = {
    **dict.fromkeys(
        (
            codes.ILLEGAL_GENERATION,
            codes.UNKNOWN_MEMBER_ID,
            codes.INVALID_PRODUCER_EPOCH,
            codes.FENCED_INSTANCE_ID,
            codes.PRODUCER_FENCED,
            codes.FENCED_MEMBER_EPOCH,
            codes.STALE_MEMBER_EPOCH,
            codes.LOCAL_FENCED,
        ),
        FencedError,
    ),
    **dict.fromkeys(
        (
            codes.TOPIC_AUTHORIZATION_FAILED,
            codes.GROUP_AUTHORIZATION_FAILED,
            codes.CLUSTER_AUTHORIZATION_FAILED,
            codes.UNSUPPORTED_SASL_MECHANISM,
            codes.ILLEGAL_SASL_STATE,
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            codes.SECURITY_DISABLED,
            codes.SASL_AUTHENTICATION_FAILED,
            codes.DELEGATION_TOKEN_AUTH_DISABLED,
            codes.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            codes.DELEGATION_TOKEN_EXPIRED,
            codes.LOCAL_AUTHENTICATION,
            codes.LOCAL_SSL,
        ),
        AuthenticationError,
    ),
    **dict.fromkeys(
        (
            codes.UNKNOWN_TOPIC_OR_PARTITION,
            codes.UNKNOWN_TOPIC_ID,
            codes.LOCAL_UNKNOWN_TOPIC,
            codes.LOCAL_UNKNOWN_PARTITION,
        ),
        UnknownTopicError,
    ),
    **dict.fromkeys(
        (
            codes.LOCAL_ALL_BROKERS_DOWN,
            codes.LOCAL_RESOLVE,
        ),
        BootstrapError,
    ),
}


def code_name(code: int) -> str:
    """The name of a code in Kafka's protocol or librdkafka, `UNKNOWN_CODE_<n>` if neither knows it."""
    return CODES[code][0] if code in CODES else f"UNKNOWN_CODE_{code}"


def category(code: int, *, in_transaction: bool = False, produce: bool = False) -> type[KafkaGroupError]:
    """The category of an error code: one of KIP-1050's five classes.

    Args:
        code: Kafka's or librdkafka's error code; not 0, which is no error. A code that is not known is
            application-recoverable (KIP-1050, "general strategy").
        in_transaction: Whether a transaction is open. What can be retried is then abortable: to send again after
            the client gave up could write twice (KIP-1050, "Compatibility").
        produce: Whether the code answers a produce request. It matters for INVALID_TXN_STATE alone (KIP-890).
    """
    if code == 0:
        raise ValueError("code 0 is no error")
    if code == codes.INVALID_TXN_STATE and produce:
        return AbortableError
    kind = CODES[code][1] if code in CODES else Category.APPLICATION_RECOVERABLE
    if in_transaction and kind in (Category.RETRIABLE, Category.REFRESH_RETRIABLE):
        return AbortableError
    return _CLASSES[kind]


def error_for_code(
    code: int, context: str, *, reason: str = "", in_transaction: bool = False, produce: bool = False
) -> KafkaGroupError:
    """The error to raise for a code.

    Args:
        code: Kafka's or librdkafka's error code; not 0.
        context: What was tried and on what, as the beginning of a sentence: "Committing offsets of group g failed".
        reason: The broker's or librdkafka's words, if there are any.
        in_transaction: See `category`.
        produce: See `category`.
    """
    kind = category(code, in_transaction=in_transaction, produce=produce)
    specific = _SPECIFIC.get(code, kind)
    what = f"{context}: {code_name(code)} ({code})" + (f", {reason}" if reason else "")
    return (specific if issubclass(specific, kind) else kind)(_sentences(what, ADVICE.get(code, "")), code=code)


def from_confluent(
    error: KafkaError | KafkaException, context: str, *, in_transaction: bool = False, produce: bool = False
) -> KafkaGroupError:
    """The error to raise for one of confluent-kafka's, by its code alone; arguments as in `error_for_code`."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(inner, KafkaError):
        return ApplicationRecoverableError(f"{context}: {error}")
    return error_for_code(inner.code(), context, reason=inner.str(), in_transaction=in_transaction, produce=produce)


def table() -> str:
    """The categories of all codes as a Markdown table, for the docs."""
    rows = ["| code | name | category | in a transaction |", "| ---: | --- | --- | --- |"]
    rows += [
        f"| {code} | `{CODES[code][0]}` | {_label(category(code))} | {_label(category(code, in_transaction=True))} |"
        for code in sorted(CODES, key=lambda code: (code < -1, abs(code + 1)))
    ]
    return "\n".join(rows) + "\n"


def _label(kind: type[KafkaGroupError]) -> str:
    return next(name.value for name, cls in _CLASSES.items() if cls is kind)


def _restore(cls: type[KafkaGroupError], args: Iterable[Any], state: dict[str, Any]) -> KafkaGroupError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


def _sentences(*parts: str) -> str:
    return " ".join(part.rstrip(".") + "." for part in parts if part)


if __name__ == "__main__":
    import sys

    sys.stdout.write(table())
