"""Readers and writers of the Kafka protocol's types.

Time and memory are linear in the bytes of a message: each length is compared with the remaining bytes before bytes are
read, and a varint has at most five bytes. As in Java's clients, null is refused where the schema does not allow null.
Source: Kafka's protocol guide, and KIP-482 for flexible versions.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")

NO_UUID = uuid.UUID(int=0)
"""The value of a field without a UUID."""

_INT8, _INT16, _INT32 = (struct.Struct(f">{code}") for code in "bhi")
_MAX_VARINT_BYTES = 5
_NULL = -1


class Reader:
    """Reads a message from bytes.

    Args:
        data: The bytes.
        flexible: Whether the message's version is flexible (KIP-482).
        position: Where the message begins.
    """

    __slots__ = ("_data", "_end", "flexible", "position")

    def __init__(self, data: bytes, *, flexible: bool = False, position: int = 0) -> None:
        self._data, self._end = data, len(data)
        self.flexible = flexible
        self.position = position

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return consecutive numbers."""
        begin = self.position
        self.position = begin + layout.size
        return layout.unpack_from(self._data, begin)

    def int8(self) -> int:
        """Return a number of one byte."""
        begin = self.position
        self.position = begin + _INT8.size
        value: int = _INT8.unpack_from(self._data, begin)[0]
        return value

    def int16(self) -> int:
        """Return a number of two bytes."""
        begin = self.position
        self.position = begin + _INT16.size
        value: int = _INT16.unpack_from(self._data, begin)[0]
        return value

    def int32(self) -> int:
        """Return a number of four bytes."""
        begin = self.position
        self.position = begin + _INT32.size
        value: int = _INT32.unpack_from(self._data, begin)[0]
        return value

    def unique_id(self) -> uuid.UUID:
        """Return a UUID; zeros mean no UUID."""
        return uuid.UUID(bytes=self._take(16))

    def string(self) -> str:
        """Return a string."""
        length = self._length(_INT16)
        if length == _NULL:
            raise ValueError("a string is null")
        return self._take(length).decode()

    def nullable_string(self) -> str | None:
        """Return a string or None."""
        length = self._length(_INT16)
        return None if length == _NULL else self._take(length).decode()

    def raw(self) -> bytes:
        """Return bytes."""
        length = self._length(_INT32)
        if length == _NULL:
            raise ValueError("bytes are null")
        return self._take(length)

    def nullable_raw(self) -> bytes | None:
        """Return bytes or None."""
        length = self._length(_INT32)
        return None if length == _NULL else self._take(length)

    def array(self, read: Callable[[Reader], _T]) -> tuple[_T, ...]:
        """Return the structures of an array, each read by `read`."""
        found = self.nullable_array(read)
        if found is None:
            raise ValueError("an array is null")
        return found

    def nullable_array(self, read: Callable[[Reader], _T]) -> tuple[_T, ...] | None:
        """Return the structures of an array, or None."""
        count = self._count()
        return None if count is None else tuple([read(self) for _ in range(count)])

    def strings(self) -> tuple[str, ...]:
        """Return an array of strings."""
        found = self.nullable_strings()
        if found is None:
            raise ValueError("an array is null")
        return found

    def nullable_strings(self) -> tuple[str, ...] | None:
        """Return an array of strings, or None."""
        count = self._count()
        return None if count is None else tuple([self.string() for _ in range(count)])

    def int32s(self) -> tuple[int, ...]:
        """Return an array of numbers of four bytes."""
        # Each partition of a Metadata response has three such arrays, so the usual case is written out.
        if self.flexible:
            begin = self.position
            count = self._data[begin] - 1
            if 0 <= count < _MANY:
                layout = _FEW_INT32[count]
                self.position = begin + 1 + layout.size
                return layout.unpack_from(self._data, begin + 1)
        return self._integers("i")

    def int64s(self) -> tuple[int, ...]:
        """Return an array of numbers of eight bytes."""
        return self._integers("q")

    def tags(self) -> Iterator[int]:
        """Yield the number of each tagged field; bytes that the caller does not read are skipped."""
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            end = self.position + size
            if end > self._end:
                raise ValueError("a tagged field is longer than the message")
            yield tag
            if self.position > end:
                raise ValueError("a tagged field is longer than its declared length")
            self.position = end

    def skip_tags(self) -> None:
        """Skip the tagged fields of a structure; for schemas without tagged fields."""
        data, position = self._data, self.position
        if position < self._end and data[position] == 0:
            self.position = position + 1
            return
        for _ in self.tags():
            pass

    def _integers(self, code: str) -> tuple[int, ...]:
        count = self._count()
        if count is None:
            raise ValueError("an array is null")
        layout = _FEW[code][count] if count < _MANY else struct.Struct(f">{count}{code}")
        begin = self.position
        self.position = begin + layout.size
        return layout.unpack_from(self._data, begin)

    def _count(self) -> int | None:
        count = self._length(_INT32)
        # Each element has at least one byte.
        if count > self._end - self.position:
            raise ValueError("an array has more elements than the message has bytes")
        return None if count == _NULL else count

    def _length(self, fixed: struct.Struct) -> int:
        begin = self.position
        if self.flexible:
            first = self._data[begin]
            if first < 0x80:
                self.position = begin + 1
                return first - 1
            return self._varint() - 1
        self.position = begin + fixed.size
        length: int = fixed.unpack_from(self._data, begin)[0]
        if length < _NULL:
            raise ValueError(f"a length is {length}")
        return length

    def _take(self, length: int) -> bytes:
        begin, end = self.position, self.position + length
        if end > self._end:
            raise ValueError(f"it ends after {self._end} bytes, but its lengths require {end}")
        self.position = end
        return self._data[begin:end]

    def _varint(self) -> int:
        data, position = self._data, self.position
        first = data[position]
        if first < 0x80:
            self.position = position + 1
            return first
        value = 0
        for number in range(_MAX_VARINT_BYTES):
            byte = data[position + number]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                self.position = position + number + 1
                return value
        raise ValueError(f"a varint has more than {_MAX_VARINT_BYTES} bytes")


_MANY = 8
_FEW_INT32 = [struct.Struct(f">{count}i") for count in range(_MANY)]
_FEW = {code: [struct.Struct(f">{count}{code}") for count in range(_MANY)] for code in "iq"}


class Writer:
    """Writes a message into bytes.

    Args:
        flexible: Whether the message's version is flexible (KIP-482).
    """

    __slots__ = ("_data", "flexible")

    def __init__(self, *, flexible: bool = False) -> None:
        self._data = bytearray()
        self.flexible = flexible

    def written(self) -> bytes:
        """Return the bytes."""
        return bytes(self._data)

    def numbers(self, layout: struct.Struct, *values: float) -> None:
        """Write numbers one after another."""
        self._data += layout.pack(*values)

    def int8(self, value: int) -> None:
        """Write a number of one byte."""
        self._data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Write a number of two bytes."""
        self._data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Write a number of four bytes."""
        self._data += _INT32.pack(value)

    def unique_id(self, value: uuid.UUID) -> None:
        """Write a UUID."""
        self._data += value.bytes

    def string(self, value: str) -> None:
        """Write a string."""
        encoded = value.encode()
        self._length(len(encoded), _INT16)
        self._data += encoded

    def nullable_string(self, value: str | None) -> None:
        """Write a string or null."""
        if value is None:
            self._length(_NULL, _INT16)
        else:
            self.string(value)

    def raw(self, value: bytes) -> None:
        """Write bytes."""
        self._length(len(value), _INT32)
        self._data += value

    def nullable_raw(self, value: bytes | None) -> None:
        """Write bytes or null."""
        if value is None:
            self._length(_NULL, _INT32)
        else:
            self.raw(value)

    def null_array(self) -> None:
        """Write an array that is null."""
        self._length(_NULL, _INT32)

    def array(self, values: Sequence[_T], write: Callable[[_T, Writer], None]) -> None:
        """Write an array of structures, each written by `write`."""
        self._length(len(values), _INT32)
        for value in values:
            write(value, self)

    def strings(self, values: Sequence[str]) -> None:
        """Write an array of strings."""
        self._length(len(values), _INT32)
        for value in values:
            self.string(value)

    def int32s(self, values: Sequence[int]) -> None:
        """Write an array of numbers of four bytes."""
        self._integers(values, "i")

    def int64s(self, values: Sequence[int]) -> None:
        """Write an array of numbers of eight bytes."""
        self._integers(values, "q")

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """Write tagged fields, in ascending order."""
        self._varint(len(fields))
        for tag, content in fields:
            self._varint(tag)
            self._varint(len(content))
            self._data += content

    def _integers(self, values: Sequence[int], code: str) -> None:
        self._length(len(values), _INT32)
        self._data += struct.pack(f">{len(values)}{code}", *values)

    def _length(self, length: int, fixed: struct.Struct) -> None:
        if self.flexible:
            self._varint(length + 1)
        else:
            self._data += fixed.pack(length)

    def _varint(self, value: int) -> None:
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)
