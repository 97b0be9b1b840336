"""The user data of our own assignors and Java's, as an operator reads them."""

import pytest

from assignors import Assignment, TopicPartition, load
from kafkagroup.admin.group_requests import decode_assigned_data, decode_user_data
from kafkagroup.admin.rows import UserData

HELD = (TopicPartition("orders", 0), TopicPartition("orders", 3))


@pytest.mark.parametrize(
    ("name", "options", "weight", "generation", "partitions"),
    [
        ("sticky", {}, None, 7, HELD),
        ("rack-aware", {}, None, 7, HELD),
        ("cooperative-sticky", {}, None, 7, ()),
        ("weighted", {"weight": 5}, 5, 7, HELD),
        ("redundant", {}, None, 7, HELD),
    ],
)
def test_what_a_member_reports_after_an_assignment(
    name: str, options: dict[str, object], weight: int | None, generation: int, partitions: tuple[TopicPartition, ...]
) -> None:
    assignor = load(name, options)
    assignor.on_assignment(Assignment(HELD), generation)
    found = decode_user_data(name, assignor.subscription_user_data(["orders"]))
    assert found is not None
    assert (found.weight, found.generation, found.partitions) == (weight, generation, partitions)
    assert found.size > 0


def test_a_new_member_has_no_generation() -> None:
    found = decode_user_data("weighted", load("weighted", {"weight": 2}).subscription_user_data(["orders"]))
    assert found is not None
    assert (found.weight, found.generation, found.partitions) == (2, None, ())
    assert str(found) == "weight=2"


def test_range_says_nothing() -> None:
    assert decode_user_data("range", load("range").subscription_user_data(["orders"])) is None


@pytest.mark.parametrize("name", ["sticky", "weighted", "redundant", "cooperative-sticky", "somebody's"])
@pytest.mark.parametrize("data", [b"\xff", b"\x00\x00\x00", b"\xff" * 40], ids=["a byte", "three bytes", "no sense"])
def test_bytes_without_sense_do_not_stop_anybody(name: str, data: bytes) -> None:
    found = decode_user_data(name, data)
    assert found is not None
    assert found.size == len(data)
    assert found.partitions == ()


def test_texts_are_shown() -> None:
    assert str(decode_user_data("somebody's", b"speed=5")) == "speed=5"
    assert decode_assigned_data(b"\x00\x01") == UserData(2)
    assert decode_assigned_data(None) is None
