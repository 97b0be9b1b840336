"""Decode the user data of subscriptions and assignments by the name of the assignor. Pure.

Brokers do not look into these bytes, so Kafka's own tool cannot show them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from assignors.wire import (
    StickyUserData,
    WireFormatError,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
)
from kafkagroup.admin.model import UserData

_WEIGHT = struct.Struct(">i")
# Longer texts and bytes that are no text are not shown.
_LONGEST_TEXT = 500


def decode_user_data(assignor: str, data: bytes | None) -> UserData | None:
    """Return the user data of a member's subscription; None if there are none.

    Data of other assignors, and data that are not in their assignor's format, have only a size, or are a text.
    """
    if not data:
        return None
    decode = _DECODERS.get(assignor, _other)
    try:
        return decode(data)
    except (WireFormatError, struct.error):
        return _other(data)


def decode_assigned_data(data: bytes | None) -> UserData | None:
    """Return the user data of a member's assignment: a text, such as the leader's reason for assigning nothing."""
    return _other(data) if data else None


def _sticky(data: bytes) -> UserData:
    return _of(data, decode_sticky_user_data(data))


def _cooperative(data: bytes) -> UserData:
    return UserData(len(data), generation=decode_cooperative_user_data(data))


def _weighted(data: bytes) -> UserData:
    (weight,) = _WEIGHT.unpack_from(data)
    return _of(data, decode_sticky_user_data(data[_WEIGHT.size :]), weight)


def _redundant(data: bytes) -> UserData:
    """Decode an assignment with all copies, whose own user data are the primaries (see `assignors.redundant`)."""
    said = decode_assignment(data)
    return _of(data, StickyUserData(said.partitions, decode_sticky_user_data(said.user_data).generation))


def _of(data: bytes, said: StickyUserData, weight: int | None = None) -> UserData:
    known = said.generation if said.generation >= 0 else None
    return UserData(len(data), weight, known, tuple(sorted(said.partitions)))


def _other(data: bytes) -> UserData:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return UserData(len(data))
    return UserData(len(data), text=text if len(text) <= _LONGEST_TEXT and text.isprintable() else None)


_DECODERS: Mapping[str, Callable[[bytes], UserData]] = {
    "sticky": _sticky,
    "rack-aware": _sticky,
    "cooperative-sticky": _cooperative,
    "weighted": _weighted,
    "redundant": _redundant,
}
