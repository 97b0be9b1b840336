"""The public API: what docs/public-api.md lists is there, and examples, docs and the notebook import nothing else."""

import ast
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "public-api.md"

PUBLIC_MODULES = [
    "kafkagroup",
    "kafkagroup.admin",
    "kafkagroup.doctor",
    "kafkagroup.embedded",
    "kafkagroup.metrics",
    "assignors",
    "assignors.testing",
]
OURS = ("kafkagroup", "kafka_source", "assignors", "pyspark_kafkagroup", "kafkagroup_native")


def public_names(module: str) -> set[str]:
    return set(import_module(module).__all__)


def provisional_names() -> dict[str, set[str]]:
    """The names by module that the page lists as provisional."""
    (table,) = re.findall(r"^## Provisional\n(.*)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, set[str]] = {}
    for module, cell in re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", table, re.MULTILINE):
        names.setdefault(module, set()).update(re.findall(r"`(\w+)`", cell))
    return names


PROVISIONAL = provisional_names()


def sources() -> Iterator[tuple[str, str]]:
    """Everything that shows users how to import, as (where, Python code)."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text()
    docs = ROOT / "docs"
    for path in [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted(docs.glob("guides/*.md"))]:
        blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks):
            yield f"{path.name} block {number + 1}", block
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(cells):
            # A line of IPython's own is no Python.
            yield f"{path.name} cell {number + 1}", re.sub(r"^%.*$", "", "".join(cell["source"]), flags=re.MULTILINE)


SOURCES = dict(sources())


def parsed(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError:
        # A part of an expression, such as a line of `.option(…)`: it has no import, and is checked by that.
        assert not re.search(r"^\s*(from|import) ", code, re.MULTILINE), f"it has imports and is no Python: {code}"
        return ast.Module([], [])


def used(code: str) -> Iterator[tuple[str, str]]:
    """Each (module, name) of ours that the code imports, or reads from an imported module."""
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] in OURS)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OURS:
            yield node.value.id, node.attr


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_resolves(module: str) -> None:
    names = public_names(module)
    assert names
    assert {name for name in names if not hasattr(import_module(module), name)} == set()


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_the_page_names_every_public_name(module: str) -> None:
    sections = dict(re.findall(r"^### `([\w.]+)`.*?\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    assert public_names(module) <= set(re.findall(r"`(\w+)[`(]", sections[module]))


@pytest.mark.parametrize("module", PROVISIONAL)
def test_every_provisional_name_resolves_and_is_not_public(module: str) -> None:
    assert {name for name in PROVISIONAL[module] if not hasattr(import_module(module), name)} == set()
    if module in PUBLIC_MODULES:
        assert PROVISIONAL[module] & public_names(module) == set()
    else:
        assert PROVISIONAL[module] == public_names(module), "a module of its own has provisional names only"


def test_the_reference_has_all_public_and_provisional_modules() -> None:
    listed = set(re.findall(r"^::: ([\w.]+)", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    one_by_one = {f"{module}.{name}" for module in PUBLIC_MODULES for name in PROVISIONAL.get(module, set())}
    assert listed == {*PUBLIC_MODULES, *PROVISIONAL, *(one_by_one - {"kafkagroup.FORMAT", "kafkagroup.progress"})}


def test_the_page_lists_these_modules_only() -> None:
    assert re.findall(r"^### `([\w.]+)`", PAGE.read_text(), re.MULTILINE) == PUBLIC_MODULES


@pytest.mark.parametrize("where", SOURCES)
def test_examples_docs_and_notebook_use_public_names_only(where: str) -> None:
    documented = {module: PROVISIONAL.get(module, set()) for module in (*PUBLIC_MODULES, *PROVISIONAL)}
    for module in PUBLIC_MODULES:
        documented[module] = documented[module] | public_names(module)
    allowed = {(module, name) for module, names in documented.items() for name in {"", *names}}
    # `from kafkagroup import metrics`, and `kafkagroup.metrics` where it is imported.
    allowed |= {(module.rpartition(".")[0], module.rpartition(".")[2]) for module in documented}
    assert set(used(SOURCES[where])) - allowed == set()


def test_the_check_sees_internal_names() -> None:
    code = "from kafkagroup.cli import show\nimport kafkagroup\nkafkagroup.datasource.FORMAT\nkafkagroup.pinned"
    assert sorted(used(code)) == [
        ("kafkagroup", ""),
        ("kafkagroup", "datasource"),
        ("kafkagroup", "pinned"),
        ("kafkagroup.cli", "show"),
    ]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kafkagroup' has no attribute 'nothing'"):
        _ = import_module("kafkagroup").nothing
