"""What is in the bytes of a record's key and value: text, JSON, Confluent's framing, or other bytes. Pure."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from typing import Literal

Format = Literal["none", "text", "json", "binary"]
"""none: there is no key or value (a null); binary: shown as base64."""

_FRAME = struct.Struct(">bi")
_MAGIC = 0
# Schema registries count ids from 1. A larger id in five bytes that begin with 0 is rather no id.
_MOST_ID = 1 << 24


@dataclass(frozen=True, slots=True)
class Payload:
    """A key, a value, or a header's value.

    Attributes:
        format: What the bytes are; behind the frame, if they have one.
        text: The text; base64 of binary; None if there is nothing.
        size: The number of bytes, with the frame; None if there is nothing.
        schema_id: The id of the schema in the schema registry, if the bytes begin with Confluent's frame: a byte 0 and
            four bytes with the id. Avro and Protobuf follow as binary, JSON Schema as JSON.
    """

    format: Format
    text: str | None
    size: int | None
    schema_id: int | None = None

    def __str__(self) -> str:
        text = "-" if self.text is None else self.text
        framed = text if self.schema_id is None else f"[schema {self.schema_id}] {text}"
        return f"{framed} (base64)" if self.format == "binary" else framed


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    key: str
    value: Payload

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic.

    Attributes:
        topic: The topic.
        partition: The partition number.
        offset: The offset.
        timestamp: The time in ISO 8601, in UTC.
        timestamp_type: Whether the producer (create) or the broker (append) has set the time.
        key: The key.
        value: The value.
        headers: The headers, in order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: str
    timestamp_type: Literal["create", "append"]
    key: Payload
    value: Payload
    headers: tuple[Header, ...]


def view(data: bytes | None) -> Payload:
    """Return what is in the bytes of a key, a value or a header."""
    if data is None:
        return Payload("none", None, None)
    schema_id = _schema_id(data)
    body = data if schema_id is None else data[_FRAME.size :]
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or not _is_readable(text) or (schema_id is not None and not _is_json(text)):
        return Payload("binary", base64.b64encode(body).decode(), len(data), schema_id)
    return Payload("json" if _is_json(text) else "text", text, len(data), schema_id)


def _schema_id(data: bytes) -> int | None:
    if len(data) <= _FRAME.size:
        return None
    magic, schema_id = _FRAME.unpack_from(data)
    return schema_id if magic == _MAGIC and 0 < schema_id < _MOST_ID else None


def _is_readable(text: str) -> bool:
    return all(one.isprintable() or one in "\t\r\n" for one in text)


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or array; a number or a word in quotes is shown as text."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
