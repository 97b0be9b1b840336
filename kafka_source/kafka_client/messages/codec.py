"""Readers and writers of the Kafka protocol's types, which the generated messages use.

Time and memory are linear in the bytes of a message: a length is checked against what is left before anything is read
or allocated for it, and a varint has at most five bytes. Null is refused where the schema does not allow it, as Java's
clients do, so that no other code has to expect it. Source: Kafka's protocol guide, and KIP-482 for flexible versions.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Generic, TypeVar

_T = TypeVar("_T")
_R_co = TypeVar("_R_co", covariant=True)

NO_UUID = uuid.UUID(int=0)
"""The UUID of a field that has none."""

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "bhiq")
_UINT16, _FLOAT64 = struct.Struct(">H"), struct.Struct(">d")
_MAX_VARINT_BYTES = 5
_NULL = -1


class Structure:
    """What generated classes derive from: objects are equal if their fields are, which are their slots."""

    __slots__: tuple[str, ...] = ()

    def _values(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.__slots__])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Structure) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({shown})"


class Request(Structure, Generic[_R_co]):
    """A request, whose type parameter is its response; generated classes derive from it.

    Attributes:
        API_KEY: The number of the API.
        name: The request's name in Kafka's protocol.
        min_version: The oldest version that the schema has.
        max_version: The newest version that this client knows.
        flexible_from: The first flexible version (KIP-482); above `max_version` if there is none.
    """

    __slots__ = ()

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]

    def encode(self, writer: Writer, version: int) -> None:
        """Write the request without its header."""
        raise NotImplementedError

    @staticmethod
    def decode_response(reader: Reader, version: int) -> _R_co:
        """Read the response without its header.

        Raises:
            ValueError: The bytes do not match the schema.
        """
        raise NotImplementedError


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
        """Return integers that stand one after another."""
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

    def uint16(self) -> int:
        """Return a number of two bytes without a sign."""
        begin = self.position
        self.position = begin + _UINT16.size
        value: int = _UINT16.unpack_from(self._data, begin)[0]
        return value

    def int32(self) -> int:
        """Return a number of four bytes."""
        begin = self.position
        self.position = begin + _INT32.size
        value: int = _INT32.unpack_from(self._data, begin)[0]
        return value

    def int64(self) -> int:
        """Return a number of eight bytes."""
        begin = self.position
        self.position = begin + _INT64.size
        value: int = _INT64.unpack_from(self._data, begin)[0]
        return value

    def float64(self) -> float:
        """Return a number of double precision."""
        begin = self.position
        self.position = begin + _FLOAT64.size
        value: float = _FLOAT64.unpack_from(self._data, begin)[0]
        return value

    def boolean(self) -> bool:
        """Return a truth value."""
        return self.numbers(_INT8)[0] != 0

    def unique_id(self) -> uuid.UUID:
        """Return a UUID; zeros mean that there is none."""
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

    def array(self, read: Callable[[Reader, int], _T], version: int) -> tuple[_T, ...]:
        """Return the structures of an array, each read by `read`."""
        found = self.nullable_array(read, version)
        if found is None:
            raise ValueError("an array is null")
        return found

    def nullable_array(self, read: Callable[[Reader, int], _T], version: int) -> tuple[_T, ...] | None:
        """Return the structures of an array, or None."""
        count = self._count()
        return None if count is None else tuple([read(self, version) for _ in range(count)])

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

    def int8s(self) -> tuple[int, ...]:
        """Return an array of numbers of one byte."""
        return self._required_integers("b")

    def int16s(self) -> tuple[int, ...]:
        """Return an array of numbers of two bytes."""
        return self._required_integers("h")

    def int32s(self) -> tuple[int, ...]:
        """Return an array of numbers of four bytes."""
        # Three of these are in each partition of a Metadata response, so the usual case is written out.
        if self.flexible:
            begin = self.position
            count = self._data[begin] - 1
            if 0 <= count < _MANY:
                layout = _FEW_INT32[count]
                self.position = begin + 1 + layout.size
                return layout.unpack_from(self._data, begin + 1)
        return self._required_integers("i")

    def nullable_int32s(self) -> tuple[int, ...] | None:
        """Return an array of numbers of four bytes, or None."""
        return self._integers("i")

    def int64s(self) -> tuple[int, ...]:
        """Return an array of numbers of eight bytes."""
        return self._required_integers("q")

    def tags(self) -> Iterator[int]:
        """Yield the number of each tagged field; what the caller does not read of it is skipped."""
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            end = self.position + size
            if end > self._end:
                raise ValueError("a tagged field is longer than the message")
            yield tag
            if self.position > end:
                raise ValueError("a tagged field is longer than it says")
            self.position = end

    def skip_tags(self) -> None:
        """Skip the tagged fields of a structure that has none in our schema."""
        data, position = self._data, self.position
        if position < self._end and data[position] == 0:
            # Nearly every structure of nearly every response.
            self.position = position + 1
            return
        for _ in self.tags():
            pass

    def _required_integers(self, code: str) -> tuple[int, ...]:
        found = self._integers(code)
        if found is None:
            raise ValueError("an array is null")
        return found

    def _integers(self, code: str) -> tuple[int, ...] | None:
        count = self._count()
        if count is None:
            return None
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
                # Nearly all lengths.
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
            raise ValueError(f"it ends after {self._end} bytes, and has {end} by its lengths")
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
_FEW = {code: [struct.Struct(f">{count}{code}") for count in range(_MANY)] for code in "bhiq"}


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

    def int8(self, value: int) -> None:
        """Write a number of one byte."""
        self._data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Write a number of two bytes."""
        self._data += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        """Write a number of two bytes without a sign."""
        self._data += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        """Write a number of four bytes."""
        self._data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """Write a number of eight bytes."""
        self._data += _INT64.pack(value)

    def float64(self, value: float) -> None:
        """Write a number of double precision."""
        self._data += _FLOAT64.pack(value)

    def boolean(self, value: bool) -> None:
        """Write a truth value."""
        self._data.append(value)

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

    def count(self, value: int) -> None:
        """Write the length of an array whose elements follow."""
        self._length(value, _INT32)

    def null_array(self) -> None:
        """Write an array that is null."""
        self._length(_NULL, _INT32)

    def strings(self, values: Sequence[str]) -> None:
        """Write an array of strings."""
        self.count(len(values))
        for value in values:
            self.string(value)

    def int8s(self, values: Sequence[int]) -> None:
        """Write an array of numbers of one byte."""
        self._integers(values, "b")

    def int16s(self, values: Sequence[int]) -> None:
        """Write an array of numbers of two bytes."""
        self._integers(values, "h")

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
        self.count(len(values))
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
