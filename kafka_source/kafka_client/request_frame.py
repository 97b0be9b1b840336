"""A request's frame as bytes, for those that are encoded by hand: header version 1, before the flexible versions."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_FRAME = struct.Struct(">ihhih")  # length, API key, version, correlation id, length of the client id
_SHORT = struct.Struct(">h")


def frame(api_key: int, version: int, client_id: str, correlation_id: int, parts: Sequence[bytes]) -> bytes:
    """A request from the parts of its body, its length in front."""
    client = client_id.encode()
    size = _FRAME.size - 4 + len(client) + sum(map(len, parts))
    return b"".join((_FRAME.pack(size, api_key, version, correlation_id, len(client)), client, *parts))


def string(text: str | None) -> bytes:
    """A (nullable) string."""
    if text is None:
        return _SHORT.pack(-1)
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded
