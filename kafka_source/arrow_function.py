"""The user's function over record batches: its input, and the checks of its result.

The contract is that of Spark's `DataFrame.mapInArrow`: a function from an iterator of record batches to another
iterator. This module needs no Spark.
"""

import importlib
import os
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.model.arrow_schema import Retyped

ArrowFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]

PLACE = ("topic", "partition", "offset")
"""The columns that errors need, besides the function's columns."""

_MARK = "_is_kafkagroup_arrow_function"
_F = TypeVar("_F", bound=ArrowFunction)
# Limits the length of a traceback in the driver's log, because a recursive function has many frames.
_MOST_CHARACTERS = 20_000
_MOST_PARTITIONS = 5
# Arrow counts the bytes of a column in 32 bits, unless its type is large.
_MOST_BYTES = (1 << 31) - 1


def arrow_function(function: _F) -> _F:
    """Allow `map.function` to name this function; the option calls only decorated functions.

    @kafkagroup.arrow_function
    def lengths(batches):
        for batch in batches:
            yield pa.record_batch({"size": pc.binary_length(batch["value"])})
    """
    setattr(function, _MARK, True)
    return function


def function_named(name: str) -> ArrowFunction:
    """Return the function `module:function`.

    Raises:
        InvalidConfigurationError: The module cannot be imported, or the name is not an `arrow_function`.
    """
    module, _, attribute = name.partition(":")
    try:
        found: ArrowFunction | None = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise InvalidConfigurationError(f"The module of the function {name} cannot be imported: {error}.") from None
    if found is None or getattr(found, _MARK, False) is not True:
        raise InvalidConfigurationError(
            f"{name} is not decorated by kafkagroup.arrow_function; map.function calls only decorated functions."
        )
    return found


@dataclass(frozen=True, slots=True)
class Mapping:
    """A function and the rows that it returns.

    Attributes:
        open: Returns the function; called in the process that runs it.
        columns: The columns of the function's input. The task reads these columns, and those of `PLACE` for errors.
        schema: The columns of the returned rows; None: any columns.
        batch_rows: The maximum number of rows in a batch of the result.
        batch_bytes: The approximate maximum size of a batch of the result; a larger row is a batch of its own.
    """

    open: Callable[[], ArrowFunction] = field(repr=False)
    columns: tuple[str, ...]
    schema: pa.Schema | None
    batch_rows: int
    batch_bytes: int

    def rows(self, batches: Iterator[pa.RecordBatch], count: Callable[[int], None] | None = None) -> "_Rows":
        """Yield the rows that the function returns, in batches with exactly the schema.

        Args:
            batches: The batches that are read.
            count: Called with the number of rows of each batch before it is yielded.

        Raises:
            InvalidConfigurationError: The function fails, or does not return rows of the schema.
            BaseException: The error of reading, even if the function has caught it.
        """
        given, process = _Given(batches, self.columns), os.getpid()
        returned: Iterator[object] | None = None
        try:
            while True:
                try:
                    if returned is None:
                        returned = _iterator(self.open()(given))
                    batch = next(returned, _END)
                except (GeneratorExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    # Also catch SystemExit, which would end Spark's worker without an error.
                    _end_copy_of(process)
                    given.check()
                    raise _failed(error, given) from error
                _end_copy_of(process)
                given.check()
                if batch is _END:
                    return
                for part in self._parts(batch):
                    if count is not None:
                        count(part.num_rows)
                    yield part
        finally:
            _close(returned, given)

    def _parts(self, batch: object) -> Iterator[pa.RecordBatch]:
        if not isinstance(batch, pa.RecordBatch):
            raise _wrong(f"an iterator of {_type_name(batch)}, and not of pyarrow.RecordBatch")
        if not batch.num_rows and self.schema is not None:
            _conform(batch, self.schema)
        for part in _cut(batch, self.batch_rows, self.batch_bytes):
            yield part if self.schema is None else _conform(part, self.schema)


def _end_copy_of(process: int) -> None:
    """End this process if the function has forked it, because a copy must not write to Spark's connection."""
    if os.getpid() != process:
        os._exit(1)


_END = object()
_Rows: TypeAlias = "Generator[pa.RecordBatch, None, None]"


class _Given:
    """The function's input. The function may read the input in threads of its own, and may catch errors of reading."""

    def __init__(self, batches: Iterator[pa.RecordBatch], columns: tuple[str, ...]) -> None:
        self._batches, self._columns = batches, list(columns)
        self._failure: BaseException | None = None
        self._last: pa.RecordBatch | None = None
        # A generator can be neither continued nor closed while it runs.
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            self.check()
            try:
                batch = next(self._batches)
            except StopIteration:
                raise
            except BaseException as error:
                self._failure = error
                raise
            self._last = batch
        return batch if batch.schema.names == self._columns else batch.select(self._columns)

    def check(self) -> None:
        """Raise the error of reading."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the reading, after the read under way; later reads find the end."""
        close = getattr(self._batches, "close", None)
        self._batches = iter(())
        if close is not None:
            with self._lock:
                close()

    def place(self) -> str:
        """Return the partitions and offsets of the last batch, in words."""
        if self._last is None:
            return "before the first record"
        if any(name not in self._last.schema.names for name in PLACE):
            return "after its first records"
        table = pa.Table.from_batches([self._last.select(PLACE)])
        found = table.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        words = [f"{row['topic']}-{row['partition']} [{row['offset_min']}, {row['offset_max'] + 1})" for row in found]
        more = len(words) - _MOST_PARTITIONS
        shown = ", ".join(sorted(words)[:_MOST_PARTITIONS]) + (f" and {more} more partitions" if more > 0 else "")
        return f"its last batch had the offsets {shown}"


def _iterator(returned: object) -> Iterator[object]:
    if isinstance(returned, Iterable):
        return iter(returned)
    raise _wrong(f"{_type_name(returned)}, and not an iterator of pyarrow.RecordBatch")


def _close(returned: Iterator[object] | None, given: _Given) -> None:
    """End the function, so that its `finally` runs, and then end the reading."""
    close = getattr(returned, "close", None)
    try:
        if close is not None:
            close()
    except Exception as error:
        raise _failed(error, given) from error
    finally:
        given.close()


def _failed(error: BaseException, given: _Given) -> KafkaGroupError:
    if isinstance(error, KafkaGroupError):
        return error
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = "".join(traceback.TracebackException(type(error), error, trace).format())
    return InvalidConfigurationError(
        f"The function of the read has failed with {type(error).__name__}; {given.place()}. The traceback:\n"
        f"{lines[-_MOST_CHARACTERS:]}"
    )


def _wrong(what: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"The function of the read has returned {what}.")


def _type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    )


# ---- the rows of the function


def _cut(batch: pa.RecordBatch, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch within these bounds. Each cut halves a part, because rows differ in size."""
    if batch.num_rows <= 1 or (batch.num_rows <= rows and batch.nbytes <= size):
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), rows, size)
    yield from _cut(batch.slice(half), rows, size)


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly this schema, which Spark requires even in names and nulls of nested fields."""
    if batch.schema.names != schema.names:
        raise _wrong(f"the columns {_names(batch.schema)}, but the schema has {_names(schema)}, in this order")
    columns = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        if not _is_shown_as(column.type, wanted.type):
            raise _wrong(f"the column {wanted.name} as {column.type}, but the schema has {wanted.type}")
        if column.type != wanted.type:
            column = pa.array(Retyped(_as_layout_of(wanted, column), wanted.type))
        if _has_null(column, wanted):
            raise _wrong(f"a null in the column {wanted.name} or a part of it, where the schema has NOT NULL")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _names(schema: pa.Schema) -> str:
    return ", ".join(schema.names) or "none"


def _is_shown_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether Spark shows both types as the same type."""
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        pairs = zip(found, wanted, strict=False)
        return found.num_fields == wanted.num_fields and all(
            one.name == other.name and _is_shown_as(one.type, other.type) for one, other in pairs
        )
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _is_shown_as(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _is_shown_as(found.key_type, wanted.key_type) and _is_shown_as(found.item_type, wanted.item_type)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return bool(found.unit == wanted.unit) and (found.tz is None) == (wanted.tz is None)
    large = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(large.get(found, found) == wanted)


def _as_layout_of(wanted: pa.Field, column: pa.Array) -> pa.Array:
    layout = _nullable(wanted.type, column.type)
    try:
        # If a slice of a nested array has no items, pyarrow's cast makes an array that pyarrow cannot write.
        return (_own(column) if pa.types.is_nested(layout) else column).cast(layout)
    except pa.ArrowInvalid:
        if column.nbytes > _MOST_BYTES:
            raise _wrong(f"a value of the column {wanted.name} that is too large for {wanted.type}") from None
    # pyarrow refuses to cast a slice of a large array because of the slice's position.
    return _own(column).cast(layout)


def _own(column: pa.Array) -> pa.Array:
    """Return a copy of a slice, without the array's other rows."""
    return pa.concat_arrays([column, column.slice(0, 0)])


def _nullable(kind: pa.DataType, found: pa.DataType) -> pa.DataType:
    """Return `kind` with nullable nested fields, because pyarrow refuses to cast `found` to nested NOT NULL fields."""
    if pa.types.is_struct(kind):
        return pa.struct([(to.name, _nullable(to.type, of.type)) for to, of in zip(kind, found, strict=True)])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type, found.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type, found.key_type), _nullable(kind.item_type, found.item_type))
    return found if pa.types.is_timestamp(kind) else kind


def _has_null(column: pa.Array, wanted: pa.Field) -> bool:
    """Return whether a column, or a nested field, has a null that the schema does not allow."""
    if column.null_count and not wanted.nullable:
        return True
    if pa.types.is_struct(wanted.type):
        return any(_has_null(one, of) for one, of in zip(column.flatten(), wanted.type, strict=True))
    if pa.types.is_list(wanted.type):
        return _has_null(column.flatten(), wanted.type.value_field)
    if pa.types.is_map(wanted.type):
        # Check the list of entries, because the keys and items of a sliced map include those of other rows.
        entries = pa.list_(pa.struct([wanted.type.key_field, wanted.type.item_field]))
        return _has_null(pa.array(Retyped(column, entries)).flatten().flatten()[1], wanted.type.item_field)
    return False
