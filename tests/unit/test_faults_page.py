"""docs/faults.md: each fault and invariant has a row, and each test that a row names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text()
ROWS = {match[1]: match[2] for match in re.finditer(r"^\| ([FI]\d+) \| (.+) \|$", PAGE, re.MULTILINE)}
TESTS = re.compile(r"`([\w/]+\.py)::(test_\w+)`")

# Who may look at the wall clock, and what for. Everything else measures time with `time.monotonic`.
LOOK_AT_THE_CLOCK = {
    "kafkagroup/admin/checkpoints.py": "a timestamp of Spark's own, in a checkpoint that is imported",
    "kafkagroup/cli/transactions.py": "how long ago a transaction began, for people",
    "kafkagroup/admin/target_offsets.py": "a place that a user names as a time before now",
    "kafkagroup/cli/peek.py": "the same",
    "kafka_source/client_config/tokens.py": "the time at which a token was issued, for its server",
    "kafkagroup/doctor/examine.py": "compares the clocks of driver, executors and brokers",
    "kafka_source/group/rebalance_log.py": "the time at which a rebalance ended, for metrics",
    "kafka_source/kafka_client/oauth.py": "tokens expire by the wall clock (RFC 7519)",
    "kafkagroup/metrics/listener.py": "the time of a sample",
    "kafkagroup/metrics/transaction_watch.py": "the age of an open transaction, for metrics",
    "kafka_source/sink/produce/accumulator.py": "the timestamp of a record that has none, as Kafka's producers set it",
    "kafka_source/source/micro_batches.py": "the time at which latest offsets were looked up, for metrics",
    "kafka_source/source/owner_events.py": "the time of a commit, for metrics",
}
CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


def test_each_fault_and_each_invariant_has_a_row() -> None:
    assert list(ROWS) == [*(f"F{n}" for n in range(1, 43)), *(f"I{n}" for n in range(1, 13))]


@pytest.mark.parametrize("name", ROWS)
def test_each_row_names_tests_that_exist(name: str) -> None:
    tests = TESTS.findall(ROWS[name])
    assert tests or ROWS[name].endswith("| the same"), f"{name} names no test"
    for file, test in tests:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{name}: {test}"


def looks(path: Path) -> Iterator[tuple[str, str]]:
    """The clocks that a module reads."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in CLOCKS:
                yield owner, node.attr


def test_no_decision_is_made_by_the_wall_clock() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("kafkagroup", "kafka_source")
        for path in (ROOT / package).rglob("*.py")
        if "embedded" not in path.parts and any(looks(path))
    }
    assert found == set(LOOK_AT_THE_CLOCK)
