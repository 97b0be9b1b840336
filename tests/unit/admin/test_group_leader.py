"""The leader of a group in the coordinator's log: where the record is, and what is in it."""

from __future__ import annotations

import struct

import pytest

from kafkagroup.admin.group_leader import group_key, leader_in, partition_of


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def compact(value: str | None) -> bytes:
    return b"\x00" if value is None else bytes([len(value) + 1]) + value.encode()


@pytest.mark.parametrize(
    ("group", "java"),
    # `"billing".hashCode()` and so on, in Java.
    [("a", 97), ("billing", -109829509), ("", 0), ("grüße-😀", 347391577), ("polygenelubricants", -(1 << 31))],
)
def test_the_partition_of_a_group_is_javas(group: str, java: int) -> None:
    # `Utils.abs(groupId.hashCode()) % partitions`; the absolute value of the least number is 0 there.
    assert partition_of(group, 50) == (0 if java == -(1 << 31) else abs(java) % 50)


def test_the_key_of_a_group() -> None:
    assert group_key("ab") == b"\x00\x02\x00\x02ab"


@pytest.mark.parametrize("leader", ["app-0-1b2c", None])
def test_the_leader_in_a_record_of_each_form(leader: str | None) -> None:
    rest = struct.pack(">qi", 0, 0)
    for version in range(4):
        value = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 7) + text("range") + text(leader)
        assert leader_in(value + rest) == leader
    flexible = struct.pack(">h", 4) + compact("consumer") + struct.pack(">i", 7) + compact("range") + compact(leader)
    assert leader_in(flexible + rest) == leader


def test_a_long_name_in_a_flexible_record() -> None:
    name = "n" * 300
    long = (301 & 0x7F | 0x80).to_bytes(1, "big") + (301 >> 7).to_bytes(1, "big") + name.encode()
    value = struct.pack(">h", 4) + compact("consumer") + struct.pack(">i", 7) + compact("range") + long
    assert leader_in(value) == name


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x03\x00", b"\x00\x04\xff", b"\x00\x00\x00\x02\xff\xfe\x00"])
def test_a_record_of_another_form_has_no_leader(value: bytes) -> None:
    assert leader_in(value) is None
