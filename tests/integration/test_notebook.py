"""The quickstart notebook, executed from top to bottom as a person does it, with the embedded Kafka."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_kept_without_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.long
@pytest.mark.timeout(400)
def test_it_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "2000 orders in the topic" in said
    assert "2000 orders read by group" in said
    assert "quickstart-0 has partitions [0, 1]" in said
    assert "quickstart-1 has partitions [2, 3]" in said
    assert "lag: {0: 0, 1: 0, 2: 0, 3: 0}" in said
    assert "1000 orders read by group" in said
    assert "after: {0: 0, 1: 0, 2: 0, 3: 0}" in said
    assert "3000 new orders tonight" in said
    assert "0 new orders after that" in said
    assert [output for output in outputs if "image/png" in output.get("data", {})]
