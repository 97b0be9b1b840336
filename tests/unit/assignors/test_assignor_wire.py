"""The consumer protocol's bytes: what any client may send, and what no client should."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import (
    Assignment,
    StickyUserData,
    Subscription,
    TopicPartition,
    TopicPartitions,
    WireFormatError,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
PARTITIONS = st.lists(st.builds(TopicPartition, NAMES, st.integers(-(2**31), 2**31 - 1)), max_size=30)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(NAMES, max_size=6),
    user_data=st.none() | st.binary(max_size=20),
    owned=PARTITIONS,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | NAMES,
)


@given(SUBSCRIPTIONS, st.integers(0, 3))
def test_a_subscription_comes_back(said: Subscription, version: int) -> None:
    read = decode_subscription(encode_subscription(said, version))
    assert read == Subscription(
        tuple(sorted(said.topics)),
        said.user_data,
        sorted(said.owned) if version >= 1 else (),
        said.generation if version >= 2 else -1,
        (said.rack or None) if version >= 3 else None,
    )


@given(PARTITIONS, st.none() | st.binary(max_size=20), st.integers(0, 3))
def test_an_assignment_comes_back(partitions: list[TopicPartition], user_data: bytes | None, version: int) -> None:
    read = decode_assignment(encode_assignment(Assignment(partitions, user_data), version))
    assert sorted(read.partitions) == sorted(partitions)
    assert read.user_data == user_data


@given(SUBSCRIPTIONS, st.integers(4, 2**15 - 1), st.binary(max_size=12))
def test_a_newer_version_reads_as_the_newest_known(said: Subscription, version: int, appended: bytes) -> None:
    known = encode_subscription(said)
    newer = struct.pack(">h", version) + known[2:] + appended
    assert decode_subscription(newer) == decode_subscription(known)


@given(SUBSCRIPTIONS, st.data())
def test_bytes_that_end_too_early_are_refused(said: Subscription, data: st.DataObject) -> None:
    raw = encode_subscription(said)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(WireFormatError, match=r"subscription is truncated|bytes follow"):
        decode_subscription(cut)


def test_a_negative_version_is_an_error() -> None:
    with pytest.raises(WireFormatError, match="negative version -1"):
        decode_subscription(b"\xff\xff\x00\x00\x00\x00")


def test_an_impossible_count_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(WireFormatError, match="2147483647 topics"):
        decode_subscription(b"\x00\x00\x7f\xff\xff\xff")


def test_a_member_without_an_assignment_reads_as_an_empty_one() -> None:
    assert decode_assignment(b"") == Assignment(())


def test_a_topic_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes does not fit"):
        encode_subscription(Subscription(["x" * 32768]))


def test_only_known_versions_are_written() -> None:
    with pytest.raises(ValueError, match="version 4: use 0 to 3"):
        encode_assignment(Assignment(()), 4)


@given(PARTITIONS, st.integers(0, 2**31 - 1))
def test_sticky_user_data_with_and_without_generation(partitions: list[TopicPartition], generation: int) -> None:
    newer = decode_sticky_user_data(encode_sticky_user_data(partitions, generation))
    assert (sorted(newer.partitions), newer.generation) == (sorted(partitions), generation)
    older = decode_sticky_user_data(encode_sticky_user_data(partitions, None))
    assert (sorted(older.partitions), older.generation) == (sorted(partitions), -1)


@pytest.mark.parametrize("junk", [None, b"", b"\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\x00", b"{json}"])
def test_user_data_of_another_assignor_holds_no_claim(junk: bytes | None) -> None:
    assert decode_sticky_user_data(junk) == StickyUserData((), -1)


def test_cooperative_user_data_that_is_too_short_says_nothing() -> None:
    assert decode_cooperative_user_data(b"\x00\x00") == -1


@given(st.lists(st.lists(st.integers(0, 99), min_size=8, max_size=12), min_size=1, max_size=8))
def test_messages_laid_out_alike_do_not_mix(rows: list[list[int]]) -> None:
    # Equal layouts are read by a remembered one: only the numbers may differ between the messages.
    for row in rows:
        for prefix in ("topic", "tqpic"):
            partitions = [TopicPartition(f"{prefix}-{place:02d}", number) for place, number in enumerate(row)]
            assert list(decode_assignment(encode_assignment(Assignment(partitions))).partitions) == partitions


def test_columns_read_like_a_tuple() -> None:
    pairs = (TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 2))
    columns = TopicPartitions.from_pairs(iter(pairs))
    assert columns == pairs
    assert tuple(columns) == pairs
    assert columns[1].topic == "b"
    assert columns[1:] == pairs[1:]
    assert columns != pairs[:2]
    assert hash(columns) == hash(pairs)
    assert repr(columns) == repr(pairs)
    assert TopicPartition("a", 2) in columns
