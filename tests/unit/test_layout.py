"""The tree itself: a sentence at the door of each folder, one version everywhere.

The layers, and what may import which library, are contracts in pyproject.toml that `./run lint` checks.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kafkagroup
from docs import map_of_files

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.relative_to(ROOT)
    for name in ("kafkagroup", "kafka_source", "assignors", "pyspark_kafkagroup")
    for path in (ROOT / name).rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_each_folder_says_in_one_sentence_what_it_is_for(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text()))
    assert docstring is not None
    first = docstring.split("\n\n")[0]
    assert first.endswith("."), f"not a sentence: {first}"
    assert not re.search(r"\.\s", first), f"not one sentence: {first}"


@pytest.mark.parametrize("package", [p for p in PACKAGES if p.parts[0] != "pyspark_kafkagroup"], ids=str)
def test_each_folder_of_code_is_a_package(package: Path) -> None:
    folders = {path.parent for path in (ROOT / package).glob("*/*.py")}
    assert {folder.relative_to(ROOT) for folder in folders} <= set(PACKAGES)


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
