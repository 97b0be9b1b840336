"""The schema ids of JSON values: a value is read only if its schema can be used.

The kernel decodes a JSON value without the value's schema. But the schema may have rules that encrypt the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from kafkagroup_native import DecodedValues, JsonDecoder

# The number of bytes of an id, which follows a zero byte.
_ID_BYTES = {"confluent": 4, "apicurio": 8}


class JsonValues:
    """A decoder of JSON values with the methods of the kernel's decoders for other formats.

    Args:
        kernel: The kernel's decoder.
        framing: The bytes before a value. If these bytes have no schema id, all values can be decoded.
    """

    def __init__(self, kernel: JsonDecoder, framing: str) -> None:
        self._kernel, self._id_bytes = kernel, _ID_BYTES.get(framing)
        self._usable = set[int]()

    def add_writer_schema(self, schema_id: int, _schema: str) -> None:
        """Decode values with this schema id from now on."""
        self._usable.add(schema_id)

    def missing_ids(self, values: pa.Array) -> tuple[list[int], int]:
        """Return the ids of values whose schemas were not added, and the number of values."""
        ids = [] if self._id_bytes is None else self._kernel.schema_ids(values)
        return [number for number in ids if number not in self._usable], len(values)

    def decode(self, values: pa.Array, *, batch_bytes: int) -> DecodedValues:
        """Decode values; a value whose schema was not added is bad."""
        missing, _ = self.missing_ids(values)
        if missing and self._id_bytes is not None:
            heads = pc.binary_slice(values, 0, 1 + self._id_bytes)
            unusable = pa.array([number.to_bytes(1 + self._id_bytes, "big") for number in missing], heads.type)
            # A value without a text is bad, and still has its id.
            values = pc.if_else(pc.is_in(heads, unusable), heads, values)
        return self._kernel.decode(values, batch_bytes=batch_bytes)
