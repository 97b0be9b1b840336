"""The GUIDs of schemas in record headers, as Confluent's serializers write them.

The header has a byte 1, the GUID of 16 bytes and, with Protobuf, the indexes of the message. As for Confluent's
deserializers, a record without the header has the id of its schema in front of the value.
"""

from itertools import count
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafka_source.options.kinds import DecodedColumn

_GUID_FOLLOWS = 1
_INDEXES_AT = 17

# The first number that stands for a GUID; ids of the registry have 31 bits.
_FIRST = 1 << 31

_NUMBERS_FROM, _NUMBERS_TO = pa.scalar(b"\0\x80", pa.binary()), pa.scalar(b"\1", pa.binary())
_OF_NONE = pa.scalar(b"\0" + b"\xff" * 4, pa.binary())

# A topic has few GUIDs, but broken headers may name another GUID in each record.
_MAX_KNOWN = 10_000


def header_of(column: DecodedColumn) -> str:
    """Return the name of the header that names the schema of the column's values."""
    return f"__{column}_schema_id"


def parse_header(header: bytes | None) -> tuple[str, bytes] | None:
    """Return the GUID that a header names, and the message indexes after it; None: no GUID."""
    if header is None or len(header) < _INDEXES_AT or header[0] != _GUID_FOLLOWS:
        return None
    return str(UUID(bytes=header[1:_INDEXES_AT])), header[_INDEXES_AT:]


class HeaderIds:
    """Moves the schema ids from headers to the front of values; a GUID becomes a number.

    Args:
        column: The column.
        has_indexes: Whether the indexes of a message follow the GUID, as with Protobuf.
    """

    def __init__(self, column: DecodedColumn, *, has_indexes: bool) -> None:
        self._header, self._has_indexes = header_of(column), has_indexes
        self._next = count(_FIRST)
        self._guids: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def framed(self, raw: pa.Array, headers: pa.Array) -> pa.Array:
        """Return the values; if a record has the header, a zero byte and the GUID's number (4 bytes) precede its value.

        If a value without the header begins with such a number, a number that no GUID has replaces it.
        """
        entries, rows = headers.flatten(), pc.list_parent_indices(headers)
        is_id = pc.equal(entries.field("key"), self._header)
        # Of several headers the last counts, as for Java's deserializers.
        found = dict(zip(rows.filter(is_id).to_pylist(), entries.field("value").filter(is_id).to_pylist(), strict=True))
        if not (found or self._guids):
            return raw
        if len(self._guids) > _MAX_KNOWN:
            # A GUID that appears again gets another number.
            self._guids, self._numbers = {}, {}
        heads = pa.array([self._head(found.get(row)) for row in range(len(raw))], pa.binary())
        may_be_number = pc.and_(pc.greater_equal(raw, _NUMBERS_FROM), pc.less(raw, _NUMBERS_TO))
        is_none = pc.and_(pc.equal(pc.binary_length(heads), 0), may_be_number)
        return pc.if_else(is_none, _OF_NONE, pc.binary_join_element_wise(heads, raw, pa.scalar(b"", pa.binary())))

    def guid(self, number: int) -> str | None:
        """Return the GUID for which a number stands; None: the number is an id of the registry."""
        return self._guids.get(number)

    def _head(self, header: bytes | None) -> bytes:
        found = parse_header(header)
        if found is None:
            return b""
        guid, indexes = found
        if guid not in self._numbers:
            self._numbers[guid] = next(self._next)
            self._guids[self._numbers[guid]] = guid
        return b"\0" + self._numbers[guid].to_bytes(4, "big") + (indexes if self._has_indexes else b"")
