"""Which strategies a group can do without, because the brokers assign its partitions."""

from __future__ import annotations

import pytest

from kafka_source.group import strategies


@pytest.mark.parametrize("name", ["copartition", "redundant", "weighted", "rack-aware", "of_ours:Own"])
def test_a_strategy_whose_promise_the_brokers_cannot_keep_is_refused(name: str) -> None:
    problem = strategies.refusal_of_conversion("g", [name])
    assert problem is not None
    assert f"strategy={name} has no effect" in str(problem)
    assert strategies.refusal_of_conversion("g", [name, "range"]) is None


def test_what_a_query_goes_on_without_is_told() -> None:
    assert "is not kept" in strategies.conversion_warning("g", ["copartition"])
    assert "is not kept" not in strategies.conversion_warning("g", ["copartition", "range"])
    assert "by range" in strategies.end_of_conversion("g", "range")


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_kafkas_own_strategies_are_not_missed(name: str) -> None:
    assert strategies.refusal_of_conversion("g", [name]) is None
    assert f"strategy={name} has no effect" in strategies.conversion_warning("g", [name])
