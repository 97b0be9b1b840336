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
    "admin/checkpoints.py": "a timestamp of Spark's own, in a checkpoint that is imported",
    "cli/transactions.py": "how long ago a transaction began, for people",
    "admin/target_offsets.py": "a place that a user names as a time before now",
    "cli/peek.py": "the same",
    "client_config/tokens.py": "the time at which a token was issued, for its server",
    "doctor/examine.py": "compares the clocks of driver, executors and brokers",
    "group/rebalance_log.py": "the time at which a rebalance ended, for metrics",
    "kafka_client/oauth.py": "tokens expire by the wall clock (RFC 7519)",
    "metrics/listener.py": "the time of a sample",
    "metrics/transaction_watch.py": "the age of an open transaction, for metrics",
    "sink/produce/accumulator.py": "the timestamp of a record that has none, as Kafka's producers set it",
    "source/micro_batches.py": "the time at which latest offsets were looked up, for metrics",
    "source/owner_events.py": "the time of a commit, for metrics",
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
    package = ROOT / "kafka_source"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "embedded" not in path.parts and any(looks(path))
    }
    assert found == set(LOOK_AT_THE_CLOCK)
