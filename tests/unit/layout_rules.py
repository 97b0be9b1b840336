"""The rule of the tree: which modules stand by themselves, and how many a folder has.

A module has two importers, or 120 lines, or a unit test of its rules; a folder has at most 15 modules. A module that a
user names is at the door and stands by itself (docs/public-api.md). `python -m tests.unit.layout_rules` prints what
breaks the rule, in all folders, and the figures of docs/design/layout.md.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median_low

ROOT = Path(__file__).parents[2]
PACKAGES = ("kafkagroup", "kafka_source", "assignors", "pyspark_kafkagroup")
# Tests do not count as users: what only they import is code that nobody needs.
USERS = (*PACKAGES, "testbed", "benchmarks", "examples", "docs", "release")
MIN_IMPORTERS, MIN_LINES, MAX_MODULES = 2, 120, 15
# Doors of folders, and of a folder that is run: Python gives their names.
DOORS = ("__init__", "__main__")


@cache
def modules() -> Mapping[str, Path]:
    """Return the file of each module of the packages, by its name; packages included."""
    return {_name_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def broken_rules() -> dict[Path, list[str]]:
    """Return what breaks the rule, by folder; a folder without an entry is in order."""
    users, tested, public = _users(), _tested(), _public()
    problems: dict[Path, list[str]] = defaultdict(list)
    counts: dict[Path, int] = defaultdict(int)
    for name, path in modules().items():
        if path.stem in DOORS:
            continue
        folder = path.parent.relative_to(ROOT)
        counts[folder] += 1
        lines, importers = len(path.read_text().splitlines()), users[name]
        if not (len(importers) >= MIN_IMPORTERS or lines >= MIN_LINES or name in tested or name in public):
            who = next(iter(importers), "nobody")
            problems[folder].append(f"{path.name}: {lines} lines, no unit test, imported by {who} only")
    for folder, count in counts.items():
        if count > MAX_MODULES:
            problems[folder].append(f"{count} modules, above {MAX_MODULES}")
    return dict(problems)


def _users() -> Mapping[str, set[str]]:
    """Return the modules that import each module: a name that a folder's door re-exports is an import of its module."""
    users: dict[str, set[str]] = defaultdict(set)
    for folder in USERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.stem != "__init__":
                for module in _imported(path):
                    users[module].add(_name_of(path))
    return users


def _tested() -> set[str]:
    return {module for path in (ROOT / "tests" / "unit").rglob("test_*.py") for module in _imported(path)}


def _public() -> set[str]:
    page = (ROOT / "docs" / "public-api.md").read_text()
    return set(re.findall(r"`(kafkagroup(?:\.\w+)+|assignors(?:\.\w+)+)`", page))


def _imported(path: Path) -> Iterator[str]:
    """Yield the modules of the packages that a file imports, each as often as it does."""
    for module, name in _imports(path):
        if f"{module}.{name}" in modules():
            yield f"{module}.{name}"
        elif module in modules():
            yield _exports(module).get(name, module)


@cache
def _exports(module: str) -> Mapping[str, str]:
    """Return the module of each name that the door of a folder re-exports."""
    path = modules()[module]
    return {name: source for source, name in _imports(path)} if path.stem == "__init__" else {}


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def _name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True)
class Figures:
    """The size of some modules. Code is what is neither blank, comment nor docstring; imports are part of it."""

    files: int
    median_lines: int
    under_50_lines: int
    code_lines: int
    import_lines: int

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Figures:
        """Count the lines of these files."""
        texts = [path.read_text() for path in paths]
        sizes = sorted(len(text.splitlines()) for text in texts)
        counts = [_code_and_import_lines(text) for text in texts]
        code, imports = (sum(column) for column in zip(*counts, strict=True))
        return cls(len(sizes), median_low(sizes), sum(size < 50 for size in sizes), code, imports)


def _code_and_import_lines(text: str) -> tuple[int, int]:
    tree = ast.parse(text)
    without_code: set[int] = set()
    imports: set[int] = set()
    for node in ast.walk(tree):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", None) or 0) + 1)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            without_code.update(lines)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(lines)
    code = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in without_code
    }
    return len(code), len(imports & code)


if __name__ == "__main__":
    for room, lines in sorted(broken_rules().items()):
        print(room, *lines, sep="\n    ")
    for part in (PACKAGES, *((package,) for package in PACKAGES)):
        print(part, Figures.of(path for path in modules().values() if path.relative_to(ROOT).parts[0] in part))
