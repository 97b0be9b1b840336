"""What a watched document says."""

import pytest

from kafka_source.quota.bounds import UNBOUNDED, Bounds, read_document

OPTIONS = Bounds(100.0, 10.0)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, OPTIONS),
        ({"bytes_per_second": 5}, Bounds(5.0, 10.0)),
        ({"records_per_second": None}, Bounds(100.0, None)),
        ({"enabled": False}, UNBOUNDED),
        ({"clients": {"etl": {"enabled": False}}}, UNBOUNDED),
        ({"enabled": False, "clients": {"etl": {"enabled": True}}}, OPTIONS),
        ({"bytes_per_second": 5, "clients": {"etl": {"bytes_per_second": 7}}}, Bounds(7.0, 10.0)),
        ({"bytes_per_second": 5, "clients": {"other": {"enabled": False}}}, Bounds(5.0, 10.0)),
    ],
)
def test_the_clients_own_entry_goes_before_the_whole(document, expected):
    assert read_document(document, "etl", OPTIONS) == expected


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"bytes": 5},
        {"bytes_per_second": 0},
        {"bytes_per_second": "5"},
        {"bytes_per_second": True},
        {"bytes_per_second": float("nan")},
        {"enabled": 1},
        {"clients": []},
        {"clients": {"etl": 5}},
    ],
)
def test_anything_else_is_refused(document):
    with pytest.raises(ValueError):
        read_document(document, "etl", OPTIONS)


def test_a_share():
    assert OPTIONS.share(0.25) == Bounds(25.0, 2.5)
    assert UNBOUNDED.share(0.5) == UNBOUNDED
