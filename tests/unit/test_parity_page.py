"""docs/design/parity.md names, for every case of Spark's own Kafka suites, the tests that are about it, or a reason."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "parity.md"
MARKER = "spark_test"

Case = tuple[str, str]
"""A suite of Spark's, and the name of one of its cases."""

SUITES = {
    "KafkaMicroBatchSourceSuite",
    "KafkaRelationSuite",
    "KafkaSinkSuite",
    "KafkaDontFailOnDataLossSuite",
    "KafkaOffsetReaderSuite",
    "KafkaOffsetRangeCalculatorSuite",
}


def marked() -> dict[Case, set[str]]:
    """The names of the tests that are marked as a case of Spark's, by case."""
    found: dict[Case, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if f"mark.{MARKER}(" in path.read_text() and path != Path(__file__):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for case, test in _cases_in(module):
                found.setdefault(case, set()).add(test)
    return found


def _cases_in(module: ModuleType) -> Iterator[tuple[Case, str]]:
    for name, test in vars(module).items():
        for mark in getattr(test, "pytestmark", []) if name.startswith("test_") else []:
            if mark.name == MARKER:
                yield mark.args, name
            for value in mark.args[1] if mark.name == "parametrize" else ():
                yield from ((one.args, name) for one in getattr(value, "marks", ()) if one.name == MARKER)


def described() -> dict[Case, str]:
    """The last column of the page's tables, by suite and case."""
    found: dict[Case, str] = {}
    suite = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            suite = line.removeprefix("## ")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 2 and cells[0] not in ("case", "---"):
            assert (suite, cells[0]) not in found, f"{cells[0]} is there twice"
            found[suite, cells[0]] = cells[1]
    return found


def test_each_case_names_its_tests_or_a_reason() -> None:
    page, tests = described(), marked()
    assert {suite for suite, _ in page} >= SUITES
    assert tests.keys() - page.keys() == set(), "marked and not on the page"
    for case, text in page.items():
        named = set(re.findall(r"`(test_\w+)`", text))
        assert named == tests.get(case, set()), case
        assert named or len(text) > 20, f"{case} has neither a test nor a reason"


@pytest.mark.parametrize("suite", sorted(SUITES))
def test_no_suite_is_without_tests(suite: str) -> None:
    assert any(of == suite for of, _ in marked())
