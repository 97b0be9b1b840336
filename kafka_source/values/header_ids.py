"""The schemas that are named in the headers of records, by their GUIDs, as Confluent's serializers write them there.

The header has a byte 1, the GUID of 16 bytes and, with Protobuf, the indexes of the message. A record without it has
the id of its schema in front of the value, as Confluent's deserializers read it.
"""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafka_source.options.kinds import DecodedColumn

_GUID_FOLLOWS = 1
_INDEXES_AT = 17

# A number that stands for a GUID. An id of the registry has 31 bits.
_FIRST = 1 << 31

# A topic has a few GUIDs. Broken headers may name another one in each record.
_MAX_KNOWN = 10_000


def header_of(column: DecodedColumn) -> str:
    """Return the name of the header that names the schema of a column."""
    return f"__{column}_schema_id"


def parse_header(header: bytes | None) -> tuple[str, bytes] | None:
    """Return the GUID that a header names, and the message indexes after it; None: it names none."""
    if header is None or len(header) < _INDEXES_AT or header[0] != _GUID_FOLLOWS:
        return None
    return str(UUID(bytes=header[1:_INDEXES_AT])), header[_INDEXES_AT:]


class HeaderIds:
    """Puts the ids that are in headers where they are in Confluent's other framing, each GUID as a number.

    Args:
        column: The column.
    """

    def __init__(self, column: DecodedColumn) -> None:
        self._header = header_of(column)
        self._numbers = count(_FIRST)
        self._guids: dict[int, str] = {}
        self._heads: dict[bytes, bytes] = {}

    def framed(self, raw: pa.Array, headers: pa.Array) -> pa.Array:
        """Return the values with a zero byte and 4 bytes in front of each that has the header."""
        entries, rows = headers.flatten(), pc.list_parent_indices(headers)
        is_id = pc.equal(entries.field("key"), self._header)
        # Of several headers the last one counts, as for Java's deserializers.
        found = dict(zip(rows.filter(is_id).to_pylist(), entries.field("value").filter(is_id).to_pylist(), strict=True))
        if not found:
            return raw
        if len(self._guids) > _MAX_KNOWN:
            # A GUID that comes again gets another number.
            self._guids, self._heads = {}, {}
        heads = [self._head(found.get(row)) for row in range(len(raw))]
        return pc.binary_join_element_wise(pa.array(heads, pa.binary()), raw, pa.scalar(b"", pa.binary()))

    def guid(self, number: int) -> str | None:
        """Return the GUID for which a number stands; None: it is an id of the registry."""
        return self._guids.get(number)

    def _head(self, header: bytes | None) -> bytes:
        found = parse_header(header)
        if header is None or found is None:
            return b""
        if header not in self._heads:
            guid, indexes = found
            # Headers with other message indexes have numbers of their own; the registry's client knows their GUID.
            number = next(self._numbers)
            self._guids[number] = guid
            self._heads[header] = b"\0" + number.to_bytes(4, "big") + indexes
        return self._heads[header]
