"""What the bytes of a key or value are shown as."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkagroup.admin.peek import Payload, payload


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, Payload("none", None, None)),
        (b"", Payload("text", "", 0)),
        (b"42", Payload("text", "42", 2)),
        ("Grüße\n".encode(), Payload("text", "Grüße\n", 8)),
        (b'{"a": 1}', Payload("json", '{"a": 1}', 8)),
        (b"[1]", Payload("json", "[1]", 3)),
        (b"{a: 1}", Payload("text", "{a: 1}", 6)),
        (b"\xff\xfe", Payload("binary", base64.b64encode(b"\xff\xfe").decode(), 2)),
        (b"a\x00b", Payload("binary", base64.b64encode(b"a\x00b").decode(), 3)),
        (b"\x00\x00\x00\x00\x2a\x06abc", Payload("binary", base64.b64encode(b"\x06abc").decode(), 9, 42)),
        (b"\x00\x00\x00\x00\x2aabc", Payload("binary", base64.b64encode(b"abc").decode(), 8, 42)),
        (b'\x00\x00\x00\x00\x07{"a": 1}', Payload("json", '{"a": 1}', 13, 7)),
        # A number of eight bytes, such as Java's LongSerializer writes.
        (b"\x00\x00\x00\x00\x00\x00\x00\x2a", Payload("binary", base64.b64encode(bytes(7) + b"\x2a").decode(), 8)),
    ],
    ids=repr,
)
def test_bytes(data: bytes | None, shown: Payload) -> None:
    assert payload(data) == shown


@given(st.binary())
def test_nothing_is_lost(data: bytes) -> None:
    shown = payload(data)
    assert shown.text is not None
    body = base64.b64decode(shown.text) if shown.format == "binary" else shown.text.encode()
    frame = b"" if shown.schema_id is None else b"\x00" + shown.schema_id.to_bytes(4, "big")
    assert frame + body == data


def test_a_line_for_people() -> None:
    assert str(payload(b"\x00\x00\x00\x00\x2a\x06")) == "[schema 42] Bg== (base64)"
    assert str(payload(None)) == "-"
