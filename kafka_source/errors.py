"""The classes of all errors, by KIP-1050's categories; the class of an error code; the sentences about data loss.

    KafkaGroupError
    ├── RetriableError                    retry the same request after a back-off
    │   └── RefreshRetriableError         refresh metadata or find the coordinator, then retry
    │       ├── BootstrapError            no broker of `kafka.bootstrap.servers` answers
    │       └── UnknownTopicError         the topic or partition does not exist (yet)
    ├── AbortableError                    abort the transaction, rewind and repeat the work with the same producer
    │   └── DeliveryError                 a record was not delivered
    ├── ApplicationRecoverableError       create a new producer or member, resume from the last durable position
    │   ├── FencedError                   another member or producer has fenced this one
    │   ├── UnknownGroupError             the group has neither members nor committed offsets
    │   ├── UnknownOutcomeError           a commit was sent, but no response arrived
    │   ├── LostTransactionsError         transactions of a batch no longer exist
    │   ├── NotVisibleError               a committed batch is not visible, because commit markers are missing
    │   ├── AssignmentFailed              the group's leader could not assign the partitions
    │   ├── DataLossError                 planned offsets are no longer in the partition
    │   └── CorruptRecordsError           the bytes of a record batch cannot be read
    └── InvalidConfigurationError         the user must change a setting or a permission; a retry does not help
        ├── OptionError (also ValueError) an option has an invalid value
        ├── UnreadableRecordError         a valid record that the requested columns or limits cannot represent
        └── AuthenticationError           the brokers refuse the credentials, or the user lacks a permission

Every error has `code` and `code_name`, of a broker or librdkafka, or None if the error does not come from Kafka. All
errors can be pickled, because Spark sends them between its processes. `error_codes` contains the category of every
code.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from assignors.model import TopicPartition
from kafka_source.error_codes import ADVICE, Category, ErrorCode
from kafka_source.runtime.visible_text import visible

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
    "UnknownGroupError",
    "UnknownOutcomeError",
    "UnknownTopicError",
    "UnreadableRecordError",
    "category",
    "code_name",
    "error_for_code",
    "from_confluent",
]

NEW_OUTPUT = (
    "With a new checkpoint Spark's file sink needs a new folder, and Delta in foreachBatch needs a new txnAppId: "
    "both skip a micro-batch if they have its number already"
)
"""The advice that with a new checkpoint some sinks need a new output, too."""


class KafkaGroupError(Exception):
    """Base of all errors of kafkagroup.

    Args:
        message: The event, its topic-partition and offset, and the remedy.
        code: Kafka's (-1 and up) or librdkafka's (below -1) error code; None: no code.
        condition: Spark's own error condition for this problem, for programs that search messages; or None.
    """

    def __init__(self, message: str, *, code: int | None = None, condition: str | None = None) -> None:
        # The message may have text from a broker, a registry or another member.
        shown = visible(message, keep="\n")
        super().__init__(shown if condition is None else f"[{condition}] {shown}")
        # A plain number, for pickles.
        self.code = None if code is None else int(code)
        self.condition = condition
        self.code_name = None if code is None else code_name(code)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own pickling passes positional arguments only; the classes below have keyword arguments.
        return _restore, (type(self), self.args, self.__dict__)


class RetriableError(KafkaGroupError):
    """A transient error: the same request may succeed after a back-off."""


class RefreshRetriableError(RetriableError):
    """A transient error: the request may succeed after metadata were refreshed or the coordinator was found again."""


class BootstrapError(RefreshRetriableError):
    """No broker of `kafka.bootstrap.servers` could be reached."""


class UnknownTopicError(RefreshRetriableError):
    """A topic or partition does not exist, or this user may not describe it."""

    @staticmethod
    def of_names_only() -> UnknownTopicError:
        """Return the error for a commit that names topics without ids, because the topics were never described."""
        return UnknownTopicError("This commit has topic names without ids; the topics may have been created again.")


class AbortableError(KafkaGroupError):
    """The transaction must be aborted. The producer remains usable, and the work can be repeated."""


class DeliveryError(AbortableError):
    """A record was not delivered, so the task that wrote it fails.

    Args:
        topic: The record's topic.
        partition: The record's partition; None if it was not chosen yet.
        reason: The broker's or librdkafka's error text.
        advice: The remedy, as a sentence.
        code: The error code of the delivery report.
    """

    def __init__(
        self, *, topic: str, partition: int | None, reason: str, advice: str = "", code: int | None = None
    ) -> None:
        where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
        super().__init__(_sentences(f"A record for {where} was not delivered: {reason}", advice), code=code)
        self.topic, self.partition, self.reason = topic, partition, reason


class ApplicationRecoverableError(KafkaGroupError):
    """The producer or member is no longer usable; create a new one and resume from the last durable position."""


class FencedError(ApplicationRecoverableError):
    """The coordinator has fenced this member or producer, or has removed the member from the group."""


class UnknownGroupError(ApplicationRecoverableError):
    """The group does not exist in this cluster: it has neither members nor committed offsets."""


class UnknownOutcomeError(ApplicationRecoverableError):
    """A commit was sent, but no response arrived in time. The durable position shows whether the commit succeeded."""


# The maximum number of transactions that an error names.
_MAX_NAMED = 10


class LostTransactionsError(ApplicationRecoverableError):
    """Transactions of a batch no longer exist: they timed out, or another query uses the same prefix.

    Args:
        batch: The number of the batch.
        transactional_ids: The transactional ids of the lost transactions.
        decided: Whether the commit of the batch was decided. If so, the records of these transactions are lost; else
            Spark writes the whole batch again.
    """

    def __init__(self, *, batch: int, transactional_ids: Iterable[str], decided: bool) -> None:
        self.batch, self.transactional_ids, self.decided = batch, tuple(transactional_ids), decided
        super().__init__(
            _sentences(
                f"Batch {batch}: transactions {_some(self.transactional_ids)} no longer exist; they exceeded "
                "kafka.transaction.timeout.ms, or another query uses the same transactional.id.prefix",
                "The commit of the batch was decided and its other transactions are committed. The records of the "
                "named transactions are lost. If the source returns the same rows again, set transactional.on.lost to "
                "replay. To continue without the lost records, run: kafkagroup transactions commit --accept-loss"
                if decided
                else "No record of the batch is visible and nothing is lost: the batch is written again when the query "
                "restarts",
            )
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


class NotVisibleError(ApplicationRecoverableError):
    """A batch is committed, but not fully visible: commit markers are missing in some partitions.

    Args:
        batch: The number of the batch.
        partitions: The partitions without commit markers, or whose leader did not answer.
        missing: By partition, the transactional id whose marker is missing, without partitions whose leader did not
            answer.
        seconds: The time since the commit, for which the sink has waited for the markers.
    """

    def __init__(
        self, *, batch: int, partitions: Iterable[TopicPartition], missing: Mapping[TopicPartition, str], seconds: float
    ) -> None:
        self.batch, self.partitions = batch, tuple(partitions)
        where = ", ".join(
            f"{tp.topic}-{tp.partition}" + (f" (transaction of {missing[tp]})" if tp in missing else "")
            for tp in self.partitions
        )
        super().__init__(
            _sentences(
                f"Batch {batch} is committed, but after {seconds:.0f} s its commit markers are missing in {where}: "
                "read_committed readers see neither these records nor later ones in these partitions",
                "If all brokers are running, a broker that failed right after the commit has lost the markers: run "
                "`kafkagroup transactions repair` to write them. Do not abort the transactions, which would drop "
                "committed records",
            )
        )


class AssignmentFailed(ApplicationRecoverableError):  # noqa: N818 - the group protocol's word
    """The leader of the group could not assign the partitions; no member of this generation reads."""


class DataLossError(ApplicationRecoverableError):
    """Planned offsets are no longer in the partition.

    Args:
        topic: The topic.
        partition: The partition number.
        planned: The first planned offset.
        available: The partition's offsets as [first, end); None if the partition does not exist.
        reason: The known cause, as a sentence, for example that the topic was deleted and created again. If `reason`
            and `advice` are empty, the message names possible causes.
        truncated_to: The end of the new leader's log, if this log lacks records that were read; None: it lacks none.
        problem: The problem, if the arguments above do not describe it; without a full stop.
        condition: The subclass of Spark's error condition KAFKA_DATA_LOSS.
        sentence: The first sentence, if the arguments above cannot express it; `partition` and `planned` may be -1.
        advice: The remedy, if it differs from the remedy for deleted records.
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
        problem: str = "",
        condition: str = "COULD_NOT_READ_OFFSET_RANGE",
        sentence: str = "",
        advice: str = "",
    ) -> None:
        if not advice:
            reason = reason or "Records may have been deleted by retention, or the topic was deleted or truncated"
            advice = "To continue with the records that exist, and a warning, set the option failOnDataLoss to false"
        if truncated_to is not None:
            problem = (
                problem
                or f"its log was truncated to offset {truncated_to}, and records read beyond that no longer exist"
            )
        elif available is not None:
            problem = f"it has only offsets [{available[0]}, {available[1]})"
        problem = problem or "the partition no longer exists"
        super().__init__(
            _sentences(
                sentence or f"{topic}-{partition} cannot be read from offset {planned}: {problem}", reason, advice
            ),
            condition=f"KAFKA_DATA_LOSS.{condition}",
        )
        self.topic, self.partition, self.planned, self.available = topic, partition, planned, available
        self.truncated_to = truncated_to

    @staticmethod
    def of_deleted(tp: TopicPartition, *, planned: int, reason: str = "") -> DataLossError:
        """Return the error for a partition that was read up to `planned` and no longer exists."""
        return DataLossError(
            topic=tp.topic, partition=tp.partition, planned=planned, reason=reason, condition="PARTITIONS_DELETED"
        )

    @staticmethod
    def of_unsubscribed(tp: TopicPartition, *, planned: int) -> DataLossError:
        """Return the error for a partition that was read up to `planned` and that the options no longer select."""
        return DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            planned=planned,
            problem="the checkpoint has this partition, but subscribe, subscribePattern or assign no longer select it",
            condition="PARTITIONS_DELETED",
            advice="Select it again, or start with a new checkpointLocation. With failOnDataLoss=false the query "
            f"continues without it. {NEW_OUTPUT}",
        )

    @staticmethod
    def of_other_topics(topics: Sequence[str], *, selection: str) -> DataLossError:
        """Return the error for a checkpoint whose topics the options do not select.

        Args:
            topics: The topics of the checkpoint, at least one.
            selection: The topics that the options select, in words.
        """
        named = ", ".join(topics)
        return DataLossError(
            topic=topics[0],
            partition=-1,
            planned=-1,
            sentence=f"The checkpoint is of {named}, and the query reads {selection}: the checkpoint has none of "
            "the query's partitions",
            condition="PARTITIONS_DELETED",
            advice="Give the query a new checkpointLocation, or correct subscribe, subscribePattern or assign. If you "
            f"mean it, set the options strict and failOnDataLoss to false. {NEW_OUTPUT}",
        )

    @staticmethod
    def of_added(tp: TopicPartition, *, start: int) -> DataLossError:
        """Return the error for a partition that was added to a query and begins at offset `start` instead of 0."""
        return DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            planned=0,
            problem=f"the partition was added to the query and begins at offset {start} instead of 0",
            condition="ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        )

    @staticmethod
    def of_diverged(tp: TopicPartition, *, planned: int, end: int, epoch: int, leader_epoch: int) -> DataLossError:
        """Return the error for a partition whose log has diverged, because the leader has lost records that were read.

        Args:
            tp: The partition.
            planned: The offset up to which the partition was read.
            end: The offset at which the logs diverge.
            epoch: The epoch of the leader from which the partition was read.
            leader_epoch: The epoch of the current leader.
        """
        return DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            planned=planned,
            truncated_to=end,
            problem=f"it was read from the leader of epoch {epoch}, and the leader of epoch {leader_epoch} has other "
            f"records from offset {end} on, or none",
            condition="PARTITION_OFFSET_CHANGED",
            advice="A broker without the last records was elected leader (unclean.leader.election.enable), so records "
            f"that were read no longer exist. To continue at offset {end} with the records that exist, and a "
            "warning in the log, set the option failOnDataLoss to false",
        )

    @staticmethod
    def of_given_end(tp: TopicPartition, *, planned: int, end: int, available: tuple[int, int]) -> DataLossError:
        """Return the error for a partition that does not have the ending offset that the options name.

        Args:
            tp: The partition.
            planned: The batch's start in the partition.
            end: The ending offset.
            available: The partition's offsets as [first, end).
        """
        return DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            planned=planned,
            available=available,
            sentence=f"{tp.topic}-{tp.partition} cannot be read from offset {planned} to offset {end}, as "
            f"endingOffsets says: it has only offsets [{available[0]}, {available[1]})",
            advice="Correct the offsets; `latest` ends where the log ends now. If the records were lost, "
            "failOnDataLoss=false reads those that exist, with a warning in the log",
        )

    @staticmethod
    def of_lower_end(tp: TopicPartition, *, planned: int, end: int) -> DataLossError:
        """Return the error for a partition that ends at `end`, before the offset at which reading continues."""
        return DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            planned=planned,
            problem=f"it ends at offset {end} now",
            condition="PARTITION_OFFSET_CHANGED",
        )


class CorruptRecordsError(ApplicationRecoverableError):
    """The bytes of a record batch cannot be read: a bad checksum, a truncated batch, an unknown codec.

    Args:
        topic: The topic.
        partition: The partition number.
        offset: The first offset of the record batch; if unknown, the next offset to read.
        reason: The defect, without a full stop.
    """

    def __init__(self, *, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            _sentences(
                f"The records of {topic}-{partition} at offset {offset} cannot be read: {reason}",
                "If every retry fails in the same way, the broker's log is damaged there: start the query after the "
                "damaged batch",
            )
        )
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason


class InvalidConfigurationError(KafkaGroupError):
    """The user must change a setting or a permission that the message names. A retry does not help."""


class OptionError(InvalidConfigurationError, ValueError):
    """An option is missing or has an invalid value.

    Args:
        option: The option's name as users write it.
        got: The value, None if the option is missing. Never a secret: callers pass a redacted value.
        takes: The valid values, for example "a number greater than 0"; empty if `problem` names them.
        problem: The problem and its remedy, if no other value is right; None: the message has `got` and `takes`.
        spark: The error text of Spark's own Kafka source, for which users search; without a full stop.
        condition: See `KafkaGroupError`.
    """

    def __init__(
        self,
        option: str,
        got: object,
        takes: str = "",
        *,
        problem: str | None = None,
        spark: str = "",
        condition: str | None = None,
    ) -> None:
        if problem is None:
            what = f"Option {option} is missing" if got is None else f"Option {option} got {got!r}"
            problem = f"{what}; it takes {takes}"
        super().__init__(_sentences(spark, problem), condition=condition)
        self.option, self.got, self.takes, self.problem, self.spark = option, got, takes, problem, spark


class UnreadableRecordError(InvalidConfigurationError):
    """Records are valid, but the requested columns or limits cannot represent them.

    Args:
        topic: The topic.
        partition: The partition number.
        offset: The first offset that cannot be read.
        reason: The column or limit, and what to request instead; without a full stop.
    """

    def __init__(self, *, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"The record of {topic}-{partition} at offset {offset} cannot be read as requested: {reason}.")
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason


class AuthenticationError(InvalidConfigurationError):
    """The brokers refuse the credentials, the TLS handshake fails, or the user lacks a permission."""


_CLASSES: dict[Category, type[KafkaGroupError]] = {
    Category.RETRIABLE: RetriableError,
    Category.REFRESH_RETRIABLE: RefreshRetriableError,
    Category.ABORTABLE: AbortableError,
    Category.APPLICATION_RECOVERABLE: ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: InvalidConfigurationError,
}

# Codes that have a class of their own, which is a subclass of their category's class.
_SPECIFIC: dict[int, type[KafkaGroupError]] = {
    **dict.fromkeys(
        (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.LOCAL_FENCED,
        ),
        FencedError,
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: UnknownGroupError,
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            ErrorCode.ILLEGAL_SASL_STATE,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.SECURITY_DISABLED,
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            ErrorCode.DELEGATION_TOKEN_EXPIRED,
            ErrorCode.LOCAL_AUTHENTICATION,
            ErrorCode.LOCAL_SSL,
        ),
        AuthenticationError,
    ),
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.LOCAL_UNKNOWN_TOPIC,
            ErrorCode.LOCAL_UNKNOWN_PARTITION,
        ),
        UnknownTopicError,
    ),
    **dict.fromkeys((ErrorCode.LOCAL_ALL_BROKERS_DOWN, ErrorCode.LOCAL_RESOLVE), BootstrapError),
}


def code_name(code: int) -> str:
    """Return the name of a code in Kafka's protocol or librdkafka, `UNKNOWN_CODE_<n>` if neither has it."""
    if (known := ErrorCode.find(code)) is not None:
        return known.kafka_name
    name = str(KafkaError(code).name())
    return f"UNKNOWN_CODE_{code}" if name.startswith("ERR_") else name


def category(code: int, *, in_transaction: bool = False, produce: bool = False) -> type[KafkaGroupError]:
    """Return the class of an error code's category, one of KIP-1050's five classes.

    Args:
        code: Kafka's or librdkafka's error code; application-recoverable if unlisted (KIP-1050, "general strategy").
        in_transaction: Whether a transaction is open. If so, retriable errors are abortable, because a retry after the
            client has given up could write records twice (KIP-1050, "Compatibility").
        produce: Whether the code is from a response to Produce, which matters for INVALID_TXN_STATE only (KIP-890).

    Raises:
        ValueError: The code is 0, no error.
    """
    if code == 0:
        raise ValueError("code 0 is no error and has no category")
    if code == ErrorCode.INVALID_TXN_STATE and produce:
        return AbortableError
    known = ErrorCode.find(code)
    kind = Category.APPLICATION_RECOVERABLE if known is None else known.category
    if in_transaction and kind in (Category.RETRIABLE, Category.REFRESH_RETRIABLE):
        return AbortableError
    return _CLASSES[kind]


def error_for_code(
    code: int, context: str, *, reason: str = "", in_transaction: bool = False, produce: bool = False
) -> KafkaGroupError:
    """Return the error to raise for a code, with the code's name and the advice for it in its message.

    Args:
        code: Kafka's or librdkafka's error code; not 0.
        context: The action that failed, as the beginning of a sentence: "Committing offsets of group g failed".
        reason: The broker's or librdkafka's error text, if there is one.
        in_transaction: Whether a transaction is open, as in `category`.
        produce: Whether the code is from a response to Produce, as in `category`.
    """
    kind = category(code, in_transaction=in_transaction, produce=produce)
    specific = _SPECIFIC.get(code, kind)
    what = f"{context}: {code_name(code)} ({code})" + (f", {reason}" if reason else "")
    return (specific if issubclass(specific, kind) else kind)(_sentences(what, ADVICE.get(code, "")), code=code)


def from_confluent(
    error: KafkaError | KafkaException, context: str, *, in_transaction: bool = False, produce: bool = False
) -> KafkaGroupError:
    """Return the error to raise for an error of confluent-kafka; for the other arguments see `error_for_code`."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(inner, KafkaError):
        return ApplicationRecoverableError(f"{context}: {error}")
    return error_for_code(inner.code(), context, reason=inner.str(), in_transaction=in_transaction, produce=produce)


def codes_by_category() -> str:
    """Return the codes of each category as Markdown, for docs/errors.md."""
    parts = []
    for word, kind in _CLASSES.items():
        codes = [code for code in ErrorCode if category(code) is kind]
        codes.sort(key=lambda code: (code < -1, abs(code + 1)))
        names = ", ".join(f"`{code.kafka_name}`\N{NO-BREAK SPACE}{code}" for code in codes)
        lines = textwrap.fill(names, 120, break_long_words=False, break_on_hyphens=False)
        parts.append(f"### {word.value}\n\n{lines}\n")
    return "\n".join(parts)


def _restore(cls: type[KafkaGroupError], args: Iterable[Any], state: dict[str, Any]) -> KafkaGroupError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


def _sentences(*parts: str) -> str:
    return " ".join(part if part.endswith("?") else part.rstrip(".") + "." for part in parts if part)
