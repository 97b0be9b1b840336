"""The target of a write, from the user's options and the DataFrame's schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_source.values.encoding import ColumnEncoding

from kafka_source.client_config import Settings
from kafka_source.options import SinkOptions
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.sink.records import SinkColumns


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Settings of an exactly-once sink.

    Attributes:
        prefix: Prefix of all of the sink's transactional ids.
        write_id: Id of a single (batch) write; None for a stream, whose tasks know query and batch.
        source_group: The group whose offsets are committed with each batch; None for no group.
        replays: Whether the replay of a decided batch may write its lost records again.
    """

    prefix: str
    write_id: str | None = None
    source_group: str | None = None
    replays: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """The rows' format and destination, sent to every task.

    Attributes:
        options: The sink's options, with the settings of the Kafka clients.
        columns: The positions of the record columns in the DataFrame.
        exactly_once: Settings of an exactly-once sink; None for an at-least-once sink.
        quota: The query's quota; None for no quota.
        name: Hash of the options, which distinguishes this write's quota from the quotas of the driver's other writes.
        encodings: The encodings of values and keys that are neither bytes nor text; empty if this writer only commits.
    """

    options: SinkOptions
    columns: SinkColumns
    exactly_once: ExactlyOnce | None
    quota: QuotaSettings | None
    name: str
    encodings: tuple[ColumnEncoding, ...] = ()

    @property
    def settings(self) -> Settings:
        """The settings of the Kafka clients."""
        return self.options.settings
