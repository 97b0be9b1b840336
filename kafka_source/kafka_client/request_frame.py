"""The frame of requests that are encoded by hand. Header version 1, for requests before their flexible versions."""

from __future__ import annotations

import struct
from collections.abc import Sequence

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
