"""Frames of the Kafka protocol: a length of four bytes, then a message.

The length is checked before memory is allocated for the message. If the peer does not speak the Kafka protocol, the
length can be any number. For example, a TLS alert begins with a length of 352 MB, and "HTTP" is 1.2 GB (KAFKA-4090).
"""

import socket
import struct
import time
from collections.abc import Iterator, Sequence

HANDSHAKE_BYTES = 1024 * 1024
"""The maximum size of a response before authentication is complete; until then brokers send only a few kB."""

RESPONSE_BYTES = 256 * 1024 * 1024
"""The maximum size of a response after authentication, unless a connection sets another maximum."""

_LENGTH = struct.Struct(">i")
# A response begins with its correlation id.
_MIN_BYTES = 4
# The first two bytes of a TLS record: the type (alert or handshake) and the major version, which is always 3.
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")


class FrameError(ValueError):
    """The peer sent bytes that are not a frame of the Kafka protocol, or a frame that is too long."""


class StreamEnded(ConnectionError):  # noqa: N818 - what happened, not a kind of error
    """The peer closed the connection before it had sent all expected bytes."""


def frame_size(head: bytes, max_bytes: int) -> int:
    """Return the size of a response from its first four bytes.

    Raises:
        FrameError: A response cannot have this size. The message names the kind of server that seems to answer.
    """
    size: int = _LENGTH.unpack(head)[0]
    if _MIN_BYTES <= size <= max_bytes:
        return size
    if head[:2] in _TLS_RECORDS:
        raise FrameError("it is a TLS listener: set kafka.security.protocol to SSL or SASL_SSL")
    if head == b"HTTP":
        raise FrameError("an HTTP server answers there: check the hosts and ports of kafka.bootstrap.servers")
    raise FrameError(
        f"it announced a response of {size} bytes, but a response has {_MIN_BYTES} to {max_bytes} bytes: it is no "
        "Kafka listener, or the response is damaged"
    )


def read_frame_size(sock: socket.socket, max_bytes: int, *, until: float) -> int:
    """Read the length of the next response from a blocking socket.

    Args:
        sock: The socket; its timeout is changed.
        max_bytes: The maximum size of a response.
        until: The time (`time.monotonic()`) at which the response must be complete.

    Raises:
        FrameError: The size is not valid, see `frame_size`.
        OSError: The connection was closed, or the response was not complete in time.
    """
    head = bytearray(_LENGTH.size)
    read_into(sock, memoryview(head), until=until)
    return frame_size(bytes(head), max_bytes)


def read_frame(sock: socket.socket, max_bytes: int, *, until: float) -> bytes:
    """Read the next response from a blocking socket, without its length prefix; for the rest see `read_frame_size`."""
    frame = bytearray(read_frame_size(sock, max_bytes, until=until))
    read_into(sock, memoryview(frame), until=until)
    return bytes(frame)


def read_into(sock: socket.socket, view: memoryview, *, until: float) -> None:
    """Fill `view` from a blocking socket.

    The time limit is for all bytes together, so that a peer that sends a byte now and then cannot block the caller.

    Raises:
        OSError: The connection was closed, or the view is not full at `until`.
    """
    while view:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response was not complete in time")
        sock.settimeout(left)
        count = sock.recv_into(view)
        if not count:
            raise StreamEnded("it closed the connection")
        view = view[count:]


class FrameBuffer:
    """Splits a stream of bytes into responses.

    Args:
        max_bytes: The maximum size of a response; it may be changed later.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield each response that is now complete, without its length prefix.

        Raises:
            FrameError: A size is not valid, see `frame_size`.
        """
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            body = start + _LENGTH.size
            end = body + frame_size(bytes(self._buffer[start:body]), self.max_bytes)
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[body:end])
            start = end
        del self._buffer[:start]


_FRAME = struct.Struct(">ihhih")  # length, API key, version, correlation id, length of the client id
_SHORT = struct.Struct(">h")


def frame(api_key: int, version: int, client_id: str, correlation_id: int, parts: Sequence[bytes]) -> bytes:
    """Return a request with its length prefix and header, from the parts of its body."""
    client = client_id.encode()
    size = _FRAME.size - 4 + len(client) + sum(map(len, parts))
    return b"".join((_FRAME.pack(size, api_key, version, correlation_id, len(client)), client, *parts))


def string(text: str | None) -> bytes:
    """Return a string in the protocol's encoding; None is the null string."""
    if text is None:
        return _SHORT.pack(-1)
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded


NO_TAGS = b"\0"
"""The end of a structure in flexible versions: no tagged fields (KIP-482)."""


def compact(length: int) -> bytes:
    """Return a length or count in the encoding of flexible versions (KIP-482): increased by 1, as a varint."""
    rest, found = length + 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
