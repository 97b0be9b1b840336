"""Decode values and keys in tasks, each by its writer's schema; find and handle bad values (`mode`).

    raw columns, with topic, partition and offset for errors  ->  a struct of each, and the bytes of bad values

A record is bad if its bytes are no value of its schema, if the registry does not know the schema's id, or if the schema
cannot be resolved to the column's schema. The option `mode` decides about bad records. If the registry does not answer,
or refuses the credentials, the task fails.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from kafkagroup_native import AvroDecoder

from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError, UnreadableRecordError
from kafka_source.model.arrow_schema import Retyped
from kafka_source.model.record_columns import TOO_LARGE
from kafka_source.options.kinds import (
    DEFAULT_DECODED_BYTES,
    FRAMINGS_WITHOUT_REGISTRY,
    DecodedColumn,
    Mode,
    ValueFraming,
)
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.values.fingerprint import fingerprint
from kafka_source.values.header_ids import HeaderIds
from kafka_source.values.reader_schema import ReaderSchema
from kafka_source.values.record_types import other_record
from kafka_source.values.registry import RegisteredSchema, Unusable, registry_of
from kafka_source.values.replayed_schema import current_column

log = logging.getLogger(__name__)

# The kernel's id for the writer schema of values that do not name a schema.
_UNNAMED = 0
# With `mode=FAILFAST`, the longest wait for a schema that the registry does not have.
_FAILFAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ColumnDecoding:
    """The decoding of a column.

    Attributes:
        reader: The column's schema, to which values are resolved.
        type: The column's type.
        framing: The bytes before an Avro datum, a Protobuf message or a JSON text.
        corrupt: With `mode=PERMISSIVE`, the name of the column that has the bytes of bad values.
        registry: The settings of the registry's client.
        ends_at_newer: Whether the query ends when the subject of the column has a newer schema.
        batch_bytes: The decoded bytes after which a batch ends.
        max_decoded_bytes: The maximum size of a decoded record.
    """

    reader: ReaderSchema
    type: pa.DataType
    framing: ValueFraming
    corrupt: str
    registry: Settings
    ends_at_newer: bool = False
    batch_bytes: int = 2 << 20
    max_decoded_bytes: int = DEFAULT_DECODED_BYTES

    @property
    def has_ids_in_headers(self) -> bool:
        """Whether the headers are needed to decode the column."""
        return self.framing == "confluent-header"


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decoding of a query's records; sent to every task.

    Attributes:
        columns: The decodings of the columns.
        mode: The handling of records with bad values.
    """

    columns: tuple[ColumnDecoding, ...]
    mode: Mode


@dataclass(frozen=True, slots=True)
class _Bad:
    """A value that cannot be decoded.

    Attributes:
        row: The value's row.
        schema_id: The id of its schema, if it names an id.
        why: The reason.
    """

    row: int
    schema_id: int | None
    why: str

    def reason(self, column: DecodedColumn) -> str:
        """Return why the record is bad."""
        if self.schema_id is not None:
            whose = "its" if column == "value" else "its key's"
            return f"{whose} schema id is {self.schema_id}; {self.why}"
        return self.why if column == "value" else f"its key: {self.why}"


def decode(
    batch: pa.RecordBatch,
    decoding: Decoding,
    planned: Mapping[DecodedColumn, ReaderSchema] | None = None,
    on_bad: Callable[[pa.RecordBatch, Sequence[str]], None] | None = None,
) -> Iterator[tuple[pa.RecordBatch, dict[str, pa.Array]]]:
    """Yield the rows that the mode keeps, with the decoded columns, in batches of about `batch_bytes`.

    Args:
        batch: Raw records, with the columns to decode, `topic`, `partition` and `offset`, and perhaps others.
        decoding: The query's decoding.
        planned: The schemas with which the batch was planned, by column. If a planned schema is no longer current,
            values are first resolved to the planned schema.
        on_bad: Called with the raw records that have bad values, and the reasons, before the batch is yielded; not with
            FAILFAST.

    Raises:
        UnreadableRecordError: A value is bad, with `mode=FAILFAST`.
        InvalidConfigurationError: A column of the earlier schema cannot be converted to the current schema.
        AuthenticationError: The registry refuses the credentials.
        ApplicationRecoverableError: The query has to start again with a newer schema.
        RetriableError: The registry does not answer.
    """
    start, most = 0, batch.num_rows
    while start < batch.num_rows or start == 0:
        taken, rows, made = _first_rows(batch.slice(start, most), decoding, planned, on_bad)
        yield rows, made
        # A call reads all rows that it gets, so the next call gets at most four times as many as this call has decoded.
        start, most = start + max(taken, 1), 4 * taken


def _first_rows(
    batch: pa.RecordBatch,
    decoding: Decoding,
    planned: Mapping[DecodedColumn, ReaderSchema] | None,
    on_bad: Callable[[pa.RecordBatch, Sequence[str]], None] | None,
) -> tuple[int, pa.RecordBatch, dict[str, pa.Array]]:
    """Return the number of rows that were decoded before a column was full, and `decode`'s result for these rows."""
    made: dict[str, pa.Array] = {}
    reasons: dict[int, list[str]] = {}
    for column in decoding.columns:
        name = column.reader.column
        raw, then = batch.column(name), (planned or {}).get(name, column.reader)
        now = None if then == column.reader else column.reader
        headers = batch.column("headers") if column.has_ids_in_headers else None
        patience = _FAILFAST_SECONDS if decoding.mode == "FAILFAST" else None
        made[name], bad = _decoders.of((replace(column, reader=then), now)).decode(raw, headers, patience)
        batch = batch.slice(0, len(made[name]))
        for one in bad:
            reasons.setdefault(one.row, []).append(one.reason(name))
        if decoding.mode == "PERMISSIVE":
            raw, none = batch.column(name), pa.nulls(batch.num_rows, raw.type)
            made[column.corrupt] = pc.if_else(_is_one_of([one.row for one in bad], batch), raw, none) if bad else none
    taken = batch.num_rows
    made = {name: column.slice(0, taken) for name, column in made.items()}
    if decoding.mode != "FAILFAST":
        batch, late = _without_too_large_times(batch)
        for row in late:
            reasons.setdefault(row, []).append("its timestamp is too large for microseconds")
    rows = sorted(row for row in reasons if row < taken)
    if not rows:
        return taken, batch, made
    texts = ["; ".join(reasons[row]) for row in rows]
    first = _error(batch, rows[0], texts[0])
    if decoding.mode == "FAILFAST":
        raise first
    log.warning("mode=%s: %d records of %d are bad. The first one: %s", decoding.mode, len(rows), batch.num_rows, first)
    is_bad = _is_one_of(rows, batch)
    if on_bad is not None:
        on_bad(batch.filter(is_bad), texts)
    if decoding.mode == "PERMISSIVE":
        return taken, batch, made
    kept = pc.invert(is_bad)
    return taken, batch.filter(kept), {name: column.filter(kept) for name, column in made.items()}


def _without_too_large_times(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Return the records with null for timestamps that are too large, and the rows of such timestamps."""
    index = batch.schema.get_field_index("timestamp")
    if index < 0 or not pa.types.is_timestamp(batch.schema.field(index).type):
        return batch, []
    times = batch.column(index)
    is_late = pc.equal(times.cast(pa.int64()), TOO_LARGE)
    if not pc.any(is_late).as_py():
        return batch, []
    kept = pc.if_else(is_late, pa.scalar(None, times.type), times)
    field = batch.schema.field(index).with_nullable(True)
    return batch.set_column(index, field, kept), pc.indices_nonzero(is_late).to_pylist()


def _is_one_of(rows: Sequence[int], batch: pa.RecordBatch) -> pa.Array:
    return pc.is_in(pa.array(range(batch.num_rows), pa.int64()), pa.array(rows, pa.int64()))


def _error(batch: pa.RecordBatch, row: int, reason: str) -> UnreadableRecordError:
    return UnreadableRecordError(
        topic=batch.column("topic")[row].as_py(),
        partition=batch.column("partition")[row].as_py(),
        offset=batch.column("offset")[row].as_py(),
        reason=f"{reason}. mode=PERMISSIVE reads this value as null, and mode=DROPMALFORMED drops the record",
    )


class _Decoder:
    """A decoder of a column, which fetches new writer schemas from the registry.

    Args:
        key: The decoding, and the column's current schema, if decoded values are resolved to this schema.
    """

    def __init__(self, key: tuple[ColumnDecoding, ReaderSchema | None]) -> None:
        decoding, now = key
        self._decoding, self._type = decoding, decoding.type
        wanted = decoding.type if now is None and pa.types.is_struct(decoding.type) else None
        self._header_ids: HeaderIds | None = None
        if decoding.has_ids_in_headers:
            self._header_ids = HeaderIds(decoding.reader.column, has_indexes=decoding.reader.format == "protobuf")
        framing = "confluent" if decoding.has_ids_in_headers else decoding.framing
        self._kernel = decoding.reader.decoder(
            framing=framing, wanted=wanted, max_decoded_bytes=decoding.max_decoded_bytes
        )
        # The reasons for ids whose writer schemas can never be used.
        self._unreadable: dict[int, str] = {}
        self._into_now: Callable[[pa.Array], pa.Array] | None = None
        if now is not None:
            self._into_now = current_column(decoding.reader, now, decoding.type)
        if decoding.framing in FRAMINGS_WITHOUT_REGISTRY and isinstance(self._kernel, AvroDecoder):
            text = decoding.reader.text
            number = fingerprint(text) if decoding.framing == "single-object" else _UNNAMED
            self._kernel.add_writer_schema(number, text)
        # The kernel's decoder is for one thread at a time.
        self._lock = threading.Lock()

    def decode(
        self, raw: pa.Array, headers: pa.Array | None = None, patience: float | None = None
    ) -> tuple[pa.Array, list[_Bad]]:
        """Return the decoded column and its bad values. If the first rows fill a batch, return only these rows.

        For `patience` see `Registry.by_ids`.
        """
        with self._lock:
            if self._header_ids is not None and headers is not None:
                raw = self._header_ids.framed(raw, headers)
            problems, rows = self._learn(raw, patience)
            decoded = self._kernel.decode(raw.slice(0, rows), batch_bytes=self._decoding.batch_bytes)
        bad = [self._bad(row, n, (n is not None and problems.get(n)) or why) for row, n, why in decoded.bad]
        if self._into_now is None:
            return pa.array(Retyped(decoded, self._type)), bad
        column = self._into_now(pa.array(decoded))
        return pa.array(Retyped(column, self._type)), bad

    def _learn(self, raw: pa.Array, patience: float | None) -> tuple[dict[int, str], int]:
        """Add the writer schemas that the native kernel does not know.

        Returns:
            The reason for each unusable schema, and the number of rows whose schemas fit into the kernel.

        Raises:
            ApplicationRecoverableError: See `_check_newest`.
        """
        problems = dict[int, str]()
        unknown, rows = self._kernel.missing_ids(raw)
        missing = [number for number in unknown if number not in self._unreadable]
        writers = self._find(missing, patience)
        self._check_newest({number for number, found in writers.items() if isinstance(found, RegisteredSchema)})
        for number, found in writers.items():
            if isinstance(found, RegisteredSchema):
                problem = self._add(number, found)
                if problem is not None:
                    self._unreadable[number] = problem
            else:
                problems[number] = found.reason
        return problems | self._unreadable, rows

    def _add(self, number: int, writer: RegisteredSchema) -> str | None:
        """Add a writer schema to the native kernel, and return why it cannot be used; None: it can be used."""
        reader = self._decoding.reader
        found = writer.check(reader.format)
        if isinstance(found, Unusable):
            return found.reason
        stranger = other_record(found.text, reader.text) if found.kind == "AVRO" else None
        if stranger is not None:
            return stranger
        try:
            self._kernel.add_writer_schema(number, found.text)
        except ValueError as problem:
            return f"no value of it can be read with {reader}: {problem}"
        return None

    def _check_newest(self, new: set[int]) -> None:
        """Check that the column still has the newest schema of its subject, if values have new schema ids.

        The registry has to name the newest schema, because a higher id may belong to another subject.

        Raises:
            ApplicationRecoverableError: The subject has a newer schema, with `avroSchemaEvolutionMode=restart`.
        """
        reader = self._decoding.reader
        if not self._decoding.ends_at_newer or new <= {number for _, number in reader.newest}:
            return
        for subject, known in reader.newest:
            newest = registry_of(self._decoding.registry).newest(subject, "register it again")
            if newest.id != known:
                raise ApplicationRecoverableError(
                    f"The column {reader.column} has schema {known}, and subject {subject} has a newer one, schema "
                    f"{newest.id}, which values may have from here on. Start the query again: it then has the columns "
                    "of the newer schema (avroSchemaEvolutionMode=restart)."
                )

    def _find(self, missing: Sequence[int], patience: float | None) -> Mapping[int, RegisteredSchema | Unusable]:
        """Return the writer schemas for the schema numbers that the native kernel does not know."""
        if not missing:
            return {}
        if self._decoding.framing == "single-object":
            another = Unusable(f"its schema has another fingerprint than {self._decoding.reader}")
            return dict.fromkeys(missing, another)
        reader = self._decoding.reader
        names = {number: self._guid(number) or number for number in missing}
        of_driver = [number for _, number in reader.newest] if reader.id is None else [reader.id]
        found = registry_of(self._decoding.registry).by_ids(
            (name for name in names.values() if name != reader.id), patience=patience, read_before=of_driver
        )
        if reader.id is not None:
            # The driver sends this schema, so new workers can read its values while the registry does not answer.
            found[reader.id] = RegisteredSchema(reader.id, reader.text, reader.format.upper())
        return {number: found[name] for number, name in names.items()}

    def _bad(self, row: int, number: int | None, why: str) -> _Bad:
        guid = None if number is None else self._guid(number)
        if guid is not None:
            return _Bad(row, None, f"its schema has the GUID {guid}; {why}")
        return _Bad(row, None if self._decoding.framing in FRAMINGS_WITHOUT_REGISTRY else number, why)

    def _guid(self, number: int) -> str | None:
        return None if self._header_ids is None else self._header_ids.guid(number)


_decoders = ProcessCache(_Decoder)
