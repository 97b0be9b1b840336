"""The tree itself: one version and one licence everywhere, and the generated tables of its pages.

The layers, and what may import which library, are contracts in pyproject.toml that `./run lint` checks.
"""

from __future__ import annotations

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
