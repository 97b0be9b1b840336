"""Write Arrow data to topics (`arrow.write`, `Transaction`): at least once and idempotently, or all or nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kafka_source.boundary import short
from kafka_source.client_config.java_settings import Role
from kafka_source.engine_selection import check_engine
from kafka_source.errors import AbortableError, InvalidConfigurationError, KafkaGroupError, OptionError
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.model.record_columns import COLUMN_TYPES
from kafka_source.options import SinkOptions, sink_options
from kafka_source.produce.delivery import (
    TransactionalDelivery,
    check_settings,
    check_topic,
    deliver,
    in_transaction,
    writes_native,
)
from kafka_source.produce.records import HEADERS, Records
from kafka_source.produce.settings import check_transactional
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.sink.records import from_arrow, sink_columns
from kafka_source.sink.two_phase.open_transactions import COMMITTED, EMPTY, describe
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafkagroup.arrow.settings import SettingValue, settings_of, without_prefix
from kafkagroup.arrow.stream import Stream

_COMMIT_SECONDS = 60.0
# The longest time to wait until committed records are visible.
_VISIBLE_SECONDS = 10.0
_PAUSES = RetryPolicy(0.002, 0.1)
_TRANSACTIONAL_ID = "transactional.id"
# The types for columns that contain only nulls; polars and pandas make such columns from a table of tombstones.
_OF_NULLS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS,
}


class ArrowStream(Protocol):
    """Data with Arrow's C stream interface: a table of pyarrow, polars, pandas or DuckDB, or a stream of `arrow`."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches as a PyCapsule."""
        ...


Data: TypeAlias = "ArrowStream | pa.RecordBatch"


@short
def write(topic: str | None, data: Data, settings: Mapping[str, SettingValue], *, engine: str = "auto") -> int:
    """Write records, wait until the brokers have acknowledged all of them, and return their number.

    The producer is idempotent, so only a repeated call can write a record twice. With the setting `transactional.id`
    all records become visible together at the end, or no record does.

    Args:
        topic: The topic; None: the column `topic` names each record's topic.
        data: The column `value` and optionally `key`, `headers`, `partition` and `topic`, as in the sink for Spark.
            `headers` is a list of (key, value) structs, `partition` a number; `value`, `key` and `topic` are strings or
            bytes. A null value is a tombstone. Other columns are ignored. A stream is read batch by batch.
        settings: Settings of Kafka's producers: `bootstrap.servers`, `acks`, `compression.type`, `transactional.id` …
        engine: `native`, `librdkafka`, or `auto` for native if it is installed. Transactions need `native`.

    Raises:
        OptionError: A setting or an argument is wrong.
        InvalidConfigurationError: A column is missing, has a wrong type, or has a value that no record can have.
        UnknownTopicError: The topic does not exist, and the brokers do not create it.
        DeliveryError: A record was not acknowledged. Without a transaction, some records may be in the topic.
        FencedError: Another producer has taken the transactional id; no record is visible.
        UnknownOutcomeError: The coordinator has not reported whether the transaction is committed.
        KafkaGroupError: The brokers do not answer, or refuse.
    """
    plain = {name: value for name, value in settings.items() if name != _TRANSACTIONAL_ID}
    transactional_id = settings.get(_TRANSACTIONAL_ID)
    if transactional_id is None:
        options = producer_options(plain, engine)
        return deliver(options.settings, records_of(topic, data, options), options.engine)
    options = transactional_options(plain, engine)
    with Transaction(options, lambda: str(transactional_id)) as transaction:
        return transaction.write(topic, data)


def producer_options(settings: Mapping[str, SettingValue], engine: str = "auto") -> SinkOptions:
    """Return the checked options of a producer; raise the errors of `write`."""
    with without_prefix():
        options = sink_options({**settings_of(settings), "engine": engine})
        check_settings(options.settings, options.engine)
        native = writes_native(options.settings, options.engine)
        check_engine(options.engine, options.settings, Role.PRODUCER, native=native)
    return options


def transactional_options(settings: Mapping[str, SettingValue], engine: str = "auto") -> SinkOptions:
    """Return the checked options of a producer that can end its transactions; raise the errors of `write`."""
    if engine == "librdkafka":
        raise OptionError("engine", engine, "native or auto with a transaction")
    options = producer_options(settings, "native")
    with without_prefix():
        check_transactional(options.settings)
    return options


class Transaction:
    """A transaction: writes of a `with` block become visible together at its end, or not at all after an error.

    Args:
        options: From `transactional_options`.
        transactional_id: Returns the transactional id. The first write fences other producers with this id.
        offsets: Called at the end of the block; returns the offsets to commit with the transaction.
    """

    def __init__(
        self,
        options: SinkOptions,
        transactional_id: Callable[[], str],
        offsets: Callable[[], Sequence[GroupOffsets]] = tuple,
    ) -> None:
        self._options, self._transactional_id, self._offsets = options, transactional_id, offsets
        self._delivery: TransactionalDelivery | None = None
        # The first error of a write, which the block may have caught. Some records of the write may have been sent.
        self._failure: BaseException | None = None

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
        finally:
            # Do not abort a transaction that is committed or whose commit was sent.
            delivery, self._delivery = self._delivery, None
            if delivery is not None:
                delivery.abort()

    @property
    def has_written(self) -> bool:
        """Whether the block has written records, and has not ended."""
        return self._delivery is not None

    def write(self, topic: str | None, data: Data) -> int:
        """Write records, and return their number; arguments and errors as in the function `write`.

        After an error the transaction is not committed, even if its block catches the error, as records may be missing.
        """
        count = 0
        try:
            for records in records_of(topic, data, self._options):
                self._begun().send(records)
                count += len(records)
        except BaseException as error:
            self._failure = self._failure or error
            raise
        return count

    def _begun(self) -> TransactionalDelivery:
        if self._delivery is None:
            self._delivery = in_transaction(self._options.settings, self._transactional_id(), self._options.engine)
        return self._delivery

    def _commit(self) -> None:
        if self._failure is not None:
            raise AbortableError(
                f"A write of this transaction has failed ({self._failure!r}), and some of "
                "its records may be missing. Nothing of the transaction is committed, although its block continued. "
                "Repeat the block without this write, or with a write that succeeds."
            ) from self._failure
        groups = self._offsets()
        if self._delivery is None and not groups:
            return
        delivery = self._begun()
        delivery.flush()
        opened = delivery.transaction
        if opened is None:
            raise InvalidConfigurationError("Only the native engine can commit a transaction.")
        # From here on the coordinator decides the outcome.
        self._delivery = None
        delivery.release()
        client = cached_client(self._options.settings)
        client.run(commit_in(client, opened, groups, Deadline(_COMMIT_SECONDS), fail_on_unknown_topic=True))
        client.run(_visible(client, opened.transactional_id))


async def _visible(client: KafkaClient, transactional_id: str) -> None:
    """Wait until the commit's markers are written, so that the next read returns the records."""
    deadline = Deadline(_VISIBLE_SECONDS)
    # The records are committed in any case.
    with contextlib.suppress(KafkaGroupError):
        for pause in _PAUSES.pauses():
            found = await describe(client, transactional_id, deadline)
            if found.state in (COMMITTED, EMPTY) or deadline.over:
                return
            await asyncio.sleep(pause)


def records_of(topic: str | None, data: Data, options: SinkOptions) -> Iterator[Records]:
    """Check the columns of the data, and that the topic exists; return the records, batch by batch.

    Raises:
        InvalidConfigurationError: See `write`.
        UnknownTopicError: See `write`.
    """
    schema, batches = _opened(data)
    if topic is None and "topic" not in schema.names:
        raise OptionError("topic", None, "a topic, or data with a column topic")
    columns = sink_columns([(field.name, _kind(field)) for field in schema], topic)
    if topic is not None:
        check_topic(options.settings, topic)
    return (from_arrow(_plain(batch), columns, topic) for batch in batches if batch.num_rows)


def _opened(data: Data) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Return the batches and their columns, with plain types instead of dictionaries, views and large types."""
    if isinstance(data, pa.RecordBatch):
        return _plain_schema(data.schema), (data,)
    if isinstance(data, Stream):
        # Arrow's C interface would pass errors, such as DataLossError and KeyboardInterrupt, as texts only.
        return data.schema, data
    takes = "a record batch, or an object with __arrow_c_stream__, such as a table of pyarrow"
    if not hasattr(data, "__arrow_c_stream__"):
        raise OptionError("data", type(data).__name__, takes)
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:
        # A stream of arrays, such as a single column.
        raise OptionError("data", f"a {type(data).__name__} without named columns", takes) from None
    return _plain_schema(reader.schema), reader


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _plain_type(field)) for field in schema])


def _plain_type(field: pa.Field) -> pa.DataType:
    kind = field.type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return kind.value_type
    if pa.types.is_null(kind):
        return _OF_NULLS.get(field.name, kind)
    if pa.types.is_map(kind) and _is_text(kind.key_type) and _is_bytes(kind.item_type):
        return HEADERS
    return kind


def _kind(field: pa.Field) -> str:
    """Return the name of a column's type in Spark's words, or Arrow's name of a type that a record cannot have."""
    kind = field.type
    if _is_text(kind):
        return "string"
    if _is_bytes(kind):
        return "binary"
    if pa.types.is_integer(kind):
        return "int"
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        key, value = kind.value_type.field(0), kind.value_type.field(1)
        if (key.name, value.name) == ("key", "value") and _is_text(key.type) and _is_bytes(value.type):
            return COLUMN_TYPES["headers"]
    return str(kind)


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_bytes(kind: pa.DataType) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view") or pa.types.is_fixed_size_binary(kind)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the types of `_plain_schema`, and with headers as the sink expects them."""
    columns = [_plain_column(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    return pa.record_batch(columns, names=batch.schema.names)


def _plain_column(field: pa.Field, column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        # Polars has views for texts, and Arrow cannot take items of views.
        plain = pa.large_string() if _is_text(column.type.value_type) else column.type.value_type
        return column.dictionary.cast(plain).take(column.indices)
    if pa.types.is_run_end_encoded(field.type):
        return pc.run_end_decode(column)
    if field.name == "headers":
        return column.cast(HEADERS)
    return column.cast(_plain_type(field)) if pa.types.is_null(field.type) else column
