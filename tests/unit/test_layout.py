"""The tree itself: one version and one licence everywhere, and the generated tables of its pages.

The layers, and what may import which library, are contracts in pyproject.toml that `./run lint` checks.
"""

import re
from pathlib import Path

import kafkagroup
from docs import map_of_files

ROOT = Path(__file__).parents[2]


def test_both_distributions_have_the_same_licence() -> None:
    assert (ROOT / "native" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_native_crate_has_the_same_version() -> None:
    crate = re.search(r'^version = "(.+)"$', (ROOT / "native" / "Cargo.toml").read_text(), re.MULTILINE)
    locked = re.search(
        r'^name = "kafkagroup-native"\nversion = "(.+)"$', (ROOT / "native" / "Cargo.lock").read_text(), re.MULTILINE
    )
    assert crate is not None
    assert locked is not None
    assert crate[1] == locked[1] == kafkagroup.__version__


def test_the_map_of_files_and_the_index_of_design_notes_are_current() -> None:
    """A module or a page without a first sentence fails here, too."""
    for page, table in (
        ("architecture.md", map_of_files.map_of_files()),
        ("design/README.md", map_of_files.index_of_design_notes()),
    ):
        assert (ROOT / "docs" / page).read_text().endswith(table), "run: ./run docs"


def test_each_module_that_waits_is_in_the_list_of_loops() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/design/loops.md").read_text())
    waits = re.compile(r"\b(?:time|asyncio)\.sleep\((?!0\))|\bretry(?:_async)?\(|\.pauses\(\)|LOCK_EX")
    modules = {
        str(path.relative_to(ROOT)): path.read_text()
        for package in ("kafka_source", "kafkagroup")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "retry.py" and "embedded" not in path.parts
    }
    assert [name for name in named if not any(f"/{module}".endswith(f"/{name}") for module in modules)] == []
    waiting = [module for module, text in modules.items() if waits.search(text)]
    assert [module for module in waiting if not f"/{module}".endswith(tuple(f"/{name}" for name in named))] == []
