"""The matrix changes one thing at a time, and its table keeps the rest of the page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from release import matrix
from release.matrix import BASE, CELLS, Result, find_python, write_page


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_a_cell_differs_from_the_base_in_its_axis(cell: matrix.Cell) -> None:
    changed = {name for name, value in asdict(cell).items() if value != asdict(BASE)[name]} - {"axis", "name"}
    # Our floor of pyarrow needs an older Spark.
    allowed = {"pyarrow-15": {"pyarrow", "pyspark"}, "base-newest": set()}
    assert changed == allowed.get(cell.id, {cell.axis})


def test_cells_have_names_of_their_own() -> None:
    assert len({cell.id for cell in CELLS}) == len(CELLS)


def test_the_table_replaces_the_old_one_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(matrix, "PAGE", page)
    page.write_text(f"before\n\n{matrix.BEGIN}\n\nold\n\n{matrix.END}\n\nafter\n")
    result = Result("kafka-2.8.2", "3.11.7", "2.8.2", {"pyspark": "4.3.0", "engine": "native"}, "9 passed", 1.0, [])
    write_page([result])
    before, table, after = page.read_text().replace(matrix.BEGIN, matrix.END).split(matrix.END)
    assert (before, after) == ("before\n\n", "\n\nafter\n")
    assert "| kafka 2.8.2 | 3.11.7 | 4.3.0 |" in table
    assert table.rstrip().endswith("| 2.8.2 | native | 9 passed |")
    assert "old" not in table


def test_a_python_that_is_not_there_is_none() -> None:
    assert find_python("3.99") is None
