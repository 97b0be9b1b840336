"""What a member measures itself, and how it tells the leader: the user data of `lag-balanced`.

Layout, version 1, big endian: int8 version; float32 speed in records per second, 0 if unknown; int32 length of the
claim; the claim, which is the member's last assignment as `sticky` user data (V1); then for each partition of the claim
a uint16 with its rate. A later version may append fields, which a leader of this version ignores.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from assignors.model import NO_GENERATION, TopicPartition
from assignors.wire import StickyUserData, decode_sticky_user_data, encode_sticky_user_data

_VERSION = 1
_HEAD = struct.Struct(">bfi")
# A rate is sent as its logarithm, in steps of 0.3 %: 2 bytes reach from 0 to more than any partition has.
_STEPS = 256
_UNKNOWN_RATE = 0
_MOST_RATE = 0xFFFF


@dataclass(frozen=True, slots=True)
class Measures:
    """What a member has measured.

    Attributes:
        speed: The number of records that the member reads and processes per second while there is more to read than it
            reads; None: unknown.
        rates: The number of records that are written per second to each of the member's partitions.
    """

    speed: float | None = None
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasuredMember:
    """What the leader reads in a member's user data: its measures, and the assignment that it had."""

    measures: Measures
    claim: StickyUserData


def encode_measures(measures: Measures, claim: StickyUserData) -> bytes:
    """Encode a member's measures and its last assignment. Rates of other partitions are left out."""
    partitions = sorted(TopicPartition(*tp) for tp in claim.partitions)
    claimed = encode_sticky_user_data(partitions, claim.generation)
    rates = [_rate_code(measures.rates.get(tp)) for tp in partitions]
    return _HEAD.pack(_VERSION, measures.speed or 0.0, len(claimed)) + claimed + struct.pack(f">{len(rates)}H", *rates)


def decode_measures(data: bytes | None) -> MeasuredMember:
    """Decode a member's user data. What is absent or malformed is unknown: no member can make the leader fail."""
    nothing = StickyUserData((), NO_GENERATION)
    if data is None or len(data) < _HEAD.size:
        return MeasuredMember(Measures(), nothing)
    version, speed, length = _HEAD.unpack_from(data)
    if version < _VERSION:
        return MeasuredMember(Measures(), nothing)
    known = speed if math.isfinite(speed) and speed > 0 else None
    end = _HEAD.size + length
    if not _HEAD.size <= end <= len(data):
        return MeasuredMember(Measures(known), nothing)
    claim = decode_sticky_user_data(data[_HEAD.size : end])
    count = len(claim.partitions)
    if len(data) - end < 2 * count:
        return MeasuredMember(Measures(known), claim)
    codes = struct.unpack_from(f">{count}H", data, end)
    pairs = zip(claim.partitions, codes, strict=True)
    rates = {TopicPartition(*tp): _rate(code) for tp, code in pairs if code != _UNKNOWN_RATE}
    return MeasuredMember(Measures(known, rates), claim)


def _rate_code(rate: float | None) -> int:
    if rate is None or not math.isfinite(rate) or rate < 0:
        return _UNKNOWN_RATE
    return min(_MOST_RATE, 1 + round(_STEPS * math.log2(1 + rate)))


def _rate(code: int) -> float:
    return float(2 ** ((code - 1) / _STEPS) - 1)
