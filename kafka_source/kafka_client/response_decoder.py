"""Decoding of responses by kafka-python's schemas, in time and memory that are linear in the response's size.

kafka-python generates a function for each message and version. Two statements in these functions let a small malformed
response occupy the event loop for seconds or hours, also before authentication: a varint may have any number of bytes,
all of which become one large number, and a structure with tagged fields copies the rest of the response. Here the
functions are generated with both statements replaced. They also refuse null where the schema does not allow it, as
Java's clients do, so that no other code has to expect it. Decoding a valid response costs the same as before.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from kafka.protocol.schemas.fields.codegen import CodegenContext

_INDENT = "    "
# The statements as kafka-python generates them; a unit test fails if a later version generates others.
_VARINT_SHIFT = re.compile(r"    (_sh\d+) \+= 7")
_TAGGED_FIELDS = re.compile(r"(_bio\d+) = _BytesIO\(bytes\(data\[pos:\]\)\)")
_SET_FIELD = re.compile(r"\w+\.(\w+) = (_val\d+)")
# The shift of the fifth and last byte of a varint of 32 bits.
_LAST_SHIFT = 28
_TYPES_WITH_NULL = ("string", "bytes", "records")

# A schema holds the class of its messages only while it generates a function.
_generating = threading.Lock()


def decode(message: Any, version: int, data: memoryview) -> Any:
    """Return the message in `data`.

    Args:
        message: kafka-python's class of the message.
        version: The message's version.
        data: The message without its header.

    Raises:
        ValueError: The bytes do not match the schema.
    """
    try:
        decoded, end = _function(message[None], version)(data, 0)
    except (IndexError, struct.error, AssertionError, OverflowError) as problem:
        raise ValueError(f"it does not match the schema: {problem or type(problem).__name__}") from None
    if end > len(data):
        # Python's slices end with the data, so the last string may be shorter than its length says.
        raise ValueError(f"it ends after {len(data)} bytes, and has {end} by its lengths")
    return decoded


@cache
def _function(message: Any, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    schema, flexible = message._struct, message.flexible_version_q(version)
    code = _LinearCode(_never_null(schema, version))
    code.lines.append("def _decode(data, pos):")
    with _generating:
        kept, schema._data_class = schema._data_class, message
        try:
            schema.emit_decode_from(code, "obj", _INDENT, version=version, compact=flexible, tagged=flexible)
        finally:
            schema._data_class = kept
    code.emit(_INDENT, "return obj, pos")
    # The source comes from the schemas of the installed kafka-python alone.
    exec(compile(code.source(), f"<{message.name} version {version}>", "exec"), code.globs)
    function: Callable[[memoryview, int], tuple[Any, int]] = code.globs["_decode"]
    return function


def _never_null(schema: Any, version: int) -> frozenset[str]:
    """Return the names of the message's fields that are null in no structure of it."""
    names: dict[str, bool] = {}

    def look(fields: Iterable[Any]) -> None:
        for field in fields:
            variable = field.is_array() or field.type_str in _TYPES_WITH_NULL
            names[field.name] = names.get(field.name, True) and variable and not field.nullable_for_version_q(version)
            if field.is_struct() or field.is_struct_array():
                look(field.untagged_fields(version))

    look(schema.untagged_fields(version))
    return frozenset(name for name, never in names.items() if never)


class _LinearCode(CodegenContext):  # type: ignore[misc]
    """Generated code in which no statement takes more time than the bytes that it reads.

    Args:
        never_null: The fields that may not be null.
    """

    def __init__(self, never_null: frozenset[str]) -> None:
        super().__init__()
        self.globs["_Rest"] = _Rest
        self._never_null = never_null

    def emit(self, indent: str, line: str) -> None:
        """Add a line, or what replaces it."""
        if tagged := _TAGGED_FIELDS.fullmatch(line):
            line = f"{tagged[1]} = _Rest(data, pos)"
        super().emit(indent, line)
        if varint := _VARINT_SHIFT.fullmatch(line):
            too_long = "raise ValueError('a varint has more than five bytes')"
            super().emit(indent, f"    if {varint[1]} > {_LAST_SHIFT}: {too_long}")
        elif (field := _SET_FIELD.fullmatch(line)) and field[1] in self._never_null:
            super().emit(indent, f"if {field[2]} is None: raise ValueError('{field[1]} is null')")


class _Rest:
    """The rest of a response as kafka-python reads tagged fields: as a file, but without a copy."""

    def __init__(self, data: memoryview, begin: int) -> None:
        self._data, self._begin, self._at = data, begin, begin

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        piece = bytes(self._data[self._at : self._at + size])
        self._at += len(piece)
        return piece

    def tell(self) -> int:
        """Return the number of bytes that were read."""
        return self._at - self._begin
