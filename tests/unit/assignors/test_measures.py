"""The user data of `lag-balanced`: compact, and nothing in them makes a leader fail."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import Measures, StickyUserData, TopicPartition, encode_sticky_user_data
from assignors.lag_balanced import decode_measures, encode_measures

CLAIM = StickyUserData((TopicPartition("clicks", 3), TopicPartition("orders", 0), TopicPartition("orders", 7)), 12)


@settings(max_examples=50)
@given(st.floats(1e-3, 1e9), st.lists(st.none() | st.floats(0, 1e12), min_size=3, max_size=3))
def test_what_is_encoded_is_decoded(speed: float, rates: list[float | None]) -> None:
    known = {tp: rate for tp, rate in zip(CLAIM.partitions, rates, strict=True) if rate is not None}
    said = decode_measures(encode_measures(Measures(speed, known), CLAIM))
    assert said.claim == CLAIM
    assert said.measures.speed == pytest.approx(speed, rel=1e-6)
    assert said.measures.rates.keys() == known.keys()
    for tp, rate in known.items():
        assert said.measures.rates[tp] + 1 == pytest.approx(rate + 1, rel=0.002)


def test_a_rate_of_zero_is_known_and_rates_of_other_partitions_are_not_sent() -> None:
    rates = {CLAIM.partitions[0]: 0.0, TopicPartition("orders", 1): 5.0}
    said = decode_measures(encode_measures(Measures(None, rates), CLAIM))
    assert said.measures == Measures(None, {CLAIM.partitions[0]: 0.0})


def test_a_partition_costs_six_bytes() -> None:
    partitions = [TopicPartition("orders", number) for number in range(200)]
    data = encode_measures(Measures(1000.0, dict.fromkeys(partitions, 10.0)), StickyUserData(partitions, 1))
    assert len(data) < 200 * 6 + 40


def test_the_layout_of_version_1() -> None:
    tp = TopicPartition("t", 1)
    claim = encode_sticky_user_data([tp], 5)
    expected = struct.pack(">bfi", 1, 2.5, len(claim)) + claim + struct.pack(">H", 1 + round(256 * math.log2(8)))
    assert encode_measures(Measures(2.5, {tp: 7.0}), StickyUserData([tp], 5)) == expected


def test_a_later_version_may_append_fields() -> None:
    data = encode_measures(Measures(7.0, {CLAIM.partitions[0]: 3.0}), CLAIM)
    assert decode_measures(b"\x02" + data[1:] + b"more") == decode_measures(data)


@pytest.mark.parametrize("speed", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_a_speed_that_cannot_be_is_unknown(speed: float) -> None:
    data = encode_measures(Measures(1.0), CLAIM)
    said = decode_measures(data[:1] + struct.pack(">f", speed) + data[5:])
    assert said.measures.speed is None
    assert said.claim == CLAIM


@settings(max_examples=100)
@given(st.none() | st.binary(max_size=60))
def test_any_bytes_are_decoded(data: bytes | None) -> None:
    said = decode_measures(data)
    assert said.measures.speed is None or said.measures.speed > 0
    assert all(rate >= 0 for rate in said.measures.rates.values())


def test_of_truncated_bytes_what_is_whole_is_known() -> None:
    data = encode_measures(Measures(7.0, dict.fromkeys(CLAIM.partitions, 3.0)), CLAIM)
    for length in range(len(data)):
        said = decode_measures(data[:length])
        assert said.claim in (CLAIM, StickyUserData((), -1))
        assert said.measures.speed in (None, 7.0)
    assert decode_measures(data[:-1]).claim == CLAIM
    assert decode_measures(data[:-1]).measures == Measures(7.0)
