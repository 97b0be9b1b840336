"""docs/faults.md: each fault and invariant has a row, and each row names a test that exists and that CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text()
ROWS = {match[1]: match[2] for match in re.finditer(r"^\| ([FI]\d+) \| (.+) \|$", PAGE, re.MULTILINE)}
# With the text up to the next test: it says there what runs with `-m long` only.
TESTS = re.compile(r"`([\w/]+\.py)::(test_\w+)`([^`]*)")


def collected(*options: str) -> Collection[tuple[str, str]]:
    """The file and the name of each test that pytest finds in the files that the page names."""
    files = sorted({f"tests/{file}" for file, _, _ in TESTS.findall(PAGE)})
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", *options]
    # Options of the run that this test is part of may change what is printed, and which tests are collected.
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, *files], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return set(re.findall(r"^tests/(\S+?\.py)::(?:\w+::)*(test_\w+)", done.stdout, re.MULTILINE))


@pytest.fixture(scope="module")
def of_ci() -> Collection[tuple[str, str]]:
    """As `./run test` collects them."""
    return collected()


@pytest.fixture(scope="module")
def long_ones(of_ci: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
    """Those that run with `-m long` only."""
    return set(collected("-m", "long")) - set(of_ci)


def test_each_fault_and_each_invariant_has_a_row() -> None:
    assert list(ROWS) == [*(f"F{n}" for n in range(1, 45)), *(f"I{n}" for n in range(1, 13))]


# Without it the modules that are about it have no tests.
@pytest.mark.requires_native
@pytest.mark.parametrize("name", ROWS)
def test_each_row_names_tests_that_exist_and_one_that_ci_runs(
    name: str, of_ci: Collection[tuple[str, str]], long_ones: Collection[tuple[str, str]]
) -> None:
    tests = TESTS.findall(ROWS[name])
    if not tests:
        assert ROWS[name].endswith("| the same"), f"{name} names no test"
        return
    for file, test, text in tests:
        assert (file, test) in {*of_ci, *long_ones}, f"{name}: {test} does not exist"
        # A test may have a long form too.
        assert "(long" in text or (file, test) in of_ci, f"{name}: {test} is long, and the page does not say so"
    assert any((file, test) in of_ci for file, test, _ in tests), f"{name}: CI runs none of its tests"
