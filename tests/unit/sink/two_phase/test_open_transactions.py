"""Whose transactions are whose."""

from __future__ import annotations

import pytest

from kafka_source.sink.two_phase.open_transactions import is_of


@pytest.mark.parametrize(
    ("transactional_id", "expected"),
    [
        ("orders-0-0", True),
        ("orders-12-3", True),
        ("orders-driver", False),
        ("orders-2-0-0", False),  # of the sink with the prefix orders-2
        ("0-0", False),  # of somebody else altogether
        ("more-orders-0-0", False),
        ("ordersx0-0", False),
    ],
)
def test_a_sinks_transactions_are_told_by_its_whole_prefix(transactional_id: str, expected: bool) -> None:
    assert is_of("orders", transactional_id) is expected


def test_a_prefix_is_no_pattern() -> None:
    assert is_of("a.b", "a.b-0-0")
    assert not is_of("a.b", "axb-0-0")
