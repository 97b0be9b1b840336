"""The schema of a batch that is replayed after a restart, when the column has a newer schema.

As in the first run, values are resolved to the schema with which the batch was planned, and then to the column's
current schema. So newer fields have their defaults, and all runs of the batch have the same rows.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError
from kafka_source.values.reader_schema import ReaderSchema
from kafka_source.values.record_types import record_of

# Avro's promotions that keep the number and widen its type.
_WIDER = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
}


def current_column(then: ReaderSchema, now: ReaderSchema, kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return the function that makes the current column from an earlier column.

    Args:
        then: The schema with which the batch was planned.
        now: The schema of the query.
        kind: The type of the current column.

    Raises:
        InvalidConfigurationError: The current schema cannot read values of the earlier schema.
    """
    found, wanted = then.column_type(), kind
    if pa.types.is_struct(kind):
        # Each field has its whole type in the schema here; the column may have only a part of this type.
        wanted = now.column_type(pa.struct([(field.name, pa.null()) for field in kind]))
    if found == wanted:
        return lambda column: _part(column, kind)
    record = record_of(now.text)
    if not (pa.types.is_struct(found) and pa.types.is_struct(wanted) and record is not None):
        raise _not_readable(then, now, f"it was {found} and is {wanted}")
    makers = [_field(field, found, record, then, now) for field in wanted]

    def make(column: pa.Array) -> pa.Array:
        children = [maker(column) for maker in makers]
        return _part(pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null()), kind)

    return make


def _part(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the array with only those fields of its structs that the type has."""
    if pa.types.is_struct(kind):
        children = [_part(array.field(field.name), field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        children = [_part(array.values, kind.value_type)]
    elif pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        children = [pa.StructArray.from_arrays([array.keys, _part(array.items, kind.item_type)], fields=list(entries))]
    else:
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=children)


def _field(
    field: pa.Field, found: pa.DataType, record: dict[str, Any], then: ReaderSchema, now: ReaderSchema
) -> Callable[[pa.Array], pa.Array]:
    """Return the function that makes one field of the current column."""
    declared = next(one for one in record["fields"] if one["name"] == field.name)
    source = next(
        (name for name in (field.name, *declared.get("aliases", ())) if found.get_field_index(name) >= 0), None
    )
    if source is None:
        default = _default(field, record, then, now)
        return lambda column: default.take(pa.repeat(0, len(column)))
    index = found.get_field_index(source)
    old = found.field(index)
    if old.nullable and not field.nullable:
        raise _not_readable(then, now, f"field {field.name} could be null and cannot any more")
    if old.type == field.type:
        return lambda column: column.field(index)
    if field.type in _WIDER.get(old.type, ()):
        return lambda column: column.field(index).cast(field.type, safe=False)
    raise _not_readable(then, now, f"field {field.name} was {old.type} and is {field.type}")


def _default(field: pa.Field, record: dict[str, Any], then: ReaderSchema, now: ReaderSchema) -> pa.Array:
    """Return the default of a field, in one row, as the kernel decodes it for a record without the field."""
    # The whole schema, because an earlier field may define the field's type.
    decoder = now.decoder(framing="none", wanted=pa.struct([(field.name, pa.null())]))
    try:
        decoder.add_writer_schema(0, json.dumps({**record, "fields": []}))
    except ValueError:
        raise _not_readable(then, now, f"field {field.name} is new and has no default") from None
    return pa.array(decoder.decode(pa.array([b""]), batch_bytes=1)).field(0)


def _not_readable(then: ReaderSchema, now: ReaderSchema, why: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"The checkpoint has an unfinished micro-batch, for which column {now.column} was planned with {then}. The "
        f"query's {now} cannot read these values: {why}. Start the query once with {now.column}.schema.id={then.id} "
        "and Trigger.AvailableNow, then with your settings again."
    )
