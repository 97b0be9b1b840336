"""Dead letters: records whose values cannot be decoded, and that are written unchanged to another topic.

Their headers have the names that Kafka Streams gives its dead letters (KIP-1034, `ExceptionHandlerUtils`).
"""

import logging
from collections.abc import Collection, Sequence

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import KafkaGroupError, OptionError, UnknownTopicError, UnreadableRecordError
from kafka_source.options import ReadOptions
from kafka_source.produce.records import HEADERS, Records

log = logging.getLogger(__name__)

_ACKS = ("acks", "request.required.acks")
PREFIX = "__streams.errors."
"""The prefix of the names of a dead letter's headers."""

# The class as users import it.
_EXCEPTION = f"kafkagroup.{UnreadableRecordError.__name__}"


def check_dead_letter_topic(options: ReadOptions, cluster: Cluster, subscribed: Collection[TopicPartition]) -> None:
    """Check in the driver that dead letters can be written, before the first task finds a bad record.

    Raises:
        OptionError: The query reads the topic of its dead letters.
        UnknownTopicError: The topic does not exist.
        AuthenticationError: This user may not describe the topic.
    """
    topic = options.deadletter_topic
    if topic is None:
        return
    if any(tp.topic == topic for tp in subscribed):
        raise OptionError("deadletter.topic", topic, "a topic that the query does not read")
    if cluster.topics([topic])[topic] is None:
        raise UnknownTopicError(
            f"Topic {topic} of the option deadletter.topic does not exist. Create the topic, or correct the option.",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )


def write_dead_letters(
    settings: Settings, topic: str, records: pa.RecordBatch, reasons: Sequence[str], engine: str = "auto"
) -> None:
    """Write records to the topic of dead letters, and wait until all in-sync replicas have them.

    Args:
        settings: Settings of the Kafka clients.
        topic: The topic of the dead letters.
        records: See `dead_letters`.
        reasons: See `dead_letters`.
        engine: The option `engine`.

    Raises:
        KafkaGroupError: A dead letter was not delivered, see `deliver`; the task must fail.
    """
    # Imported here, because most queries find no bad value and need no producer.
    from kafka_source.produce.delivery import deliver

    try:
        deliver(_acknowledged_by_all(settings), [dead_letters(topic, records, reasons)], engine)
    except KafkaGroupError as error:
        error.args = (
            f"Writing {len(reasons)} dead letters to topic {topic} (deadletter.topic) failed: {error} Nothing is lost: "
            "the task fails, and its offsets are not committed. Check that the topic exists, that it takes records "
            "of this size and that this user may write to it, or remove the option.",
        )
        raise
    log.info("deadletter topic=%s records=%d", topic, len(reasons))


def dead_letters(topic: str, records: pa.RecordBatch, reasons: Sequence[str]) -> Records:
    """Return the dead letters of records: unchanged key, value and headers, with added headers for place and reason.

    Args:
        topic: The topic of the dead letters.
        records: Raw records, with `key`, `value`, `headers`, `topic`, `partition` and `offset`; the key may be text.
        reasons: The reason why each record cannot be decoded; it does not contain the value.
    """
    own = records.column("headers").to_pylist()
    places = (records.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    headers = [
        [*(before or ()), *_headers(reason, *place)]
        for before, reason, *place in zip(own, reasons, *places, strict=True)
    ]
    return Records(
        values=records.column("value"),
        # Text is UTF-8, so its bytes are those of the record.
        keys=records.column("key").cast(pa.binary()),
        topics=topic,
        headers=pa.array(headers, HEADERS),
    )


def _headers(reason: str, topic: str, partition: int, offset: int) -> list[dict[str, object]]:
    found = {"exception": _EXCEPTION, "message": reason, "topic": topic, "partition": partition, "offset": offset}
    return [{"key": PREFIX + name, "value": str(text).encode()} for name, text in found.items()]


def _acknowledged_by_all(settings: Settings) -> Settings:
    """Return the settings with `acks=all` in place of the query's value."""
    if all(settings.get(name, "all").lower() in ("all", "-1") for name in _ACKS):
        return settings
    return Settings({name: value for name, value in settings.given.items() if name not in _ACKS})
