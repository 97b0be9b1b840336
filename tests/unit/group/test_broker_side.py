"""Which strategies a group can do without, because the brokers assign its partitions."""

from __future__ import annotations

import pytest

from kafka_source.group import broker_side


@pytest.mark.parametrize("name", ["copartition", "redundant", "weighted", "rack-aware", "of_ours:Own"])
def test_a_strategy_whose_promise_the_brokers_cannot_keep_is_refused(name: str) -> None:
    problem = broker_side.refusal("g", [name])
    assert problem is not None
    assert f"strategy={name} has no effect" in str(problem)
    assert broker_side.refusal("g", [name, "range"]) is None


def test_what_a_query_goes_on_without_is_told() -> None:
    assert "is not kept" in broker_side.warning("g", ["copartition"])
    assert "is not kept" not in broker_side.warning("g", ["copartition", "range"])
    assert "by range" in broker_side.classic_again("g", "range")


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_kafkas_own_strategies_are_not_missed(name: str) -> None:
    assert broker_side.refusal("g", [name]) is None
    assert f"strategy={name} has no effect" in broker_side.warning("g", [name])
