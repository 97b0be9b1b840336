"""Execute the notebooks, and store them with their output: `./run notebooks`, or `./run notebooks 01 06`.

Three of the pictures become files of the documentation, for README.md and the pages.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
ASSETS = FOLDER.parent / "docs" / "assets"
#: The file, the notebook, and the number of the picture in the notebook.
SHOWN = {
    "assignment.png": ("04_one_group_many_readers", 0),
    "lag.png": ("06_lag_board", 0),
    "quota.png": ("07_quotas_live", 0),
}


def paths() -> list[Path]:
    """Return the notebooks in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """Return a notebook."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def code_of(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells with code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a folder as the working directory. The notebook then has their outputs."""
    imported = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), imported]))
    try:
        NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(folder)}}).execute()
    finally:
        os.environ.pop("PYTHONPATH") if imported is None else os.environ.update(PYTHONPATH=imported)


def printed(notebook: NotebookNode) -> str:
    """Return what the cells have printed."""
    outputs = [output for cell in code_of(notebook) for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def pictures(notebook: NotebookNode) -> list[bytes]:
    """Return the pictures that the cells have drawn."""
    outputs = [output.get("data", {}) for cell in code_of(notebook) for output in cell.outputs]
    return [base64.b64decode(data["image/png"]) for data in outputs if "image/png" in data]


def digest(notebook: NotebookNode) -> str:
    """Return a digest of the code that has made the outputs."""
    return hashlib.sha256("\0".join(cell.source for cell in code_of(notebook)).encode()).hexdigest()[:16]


def _keep_what_a_reader_needs(notebook: NotebookNode) -> None:
    """Remove data of this machine: the log of Spark, versions, and times of execution."""
    for cell in code_of(notebook):
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata.executed = digest(notebook)


def main(names: list[str]) -> None:
    """Execute and store the notebooks that begin with these names, or all."""
    for path in paths():
        if names and not path.stem.startswith(tuple(names)):
            continue
        print(path.stem, flush=True)
        notebook = read(path)
        execute(notebook, FOLDER)
        _keep_what_a_reader_needs(notebook)
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    for name, (stem, number) in SHOWN.items():
        (ASSETS / name).write_bytes(pictures(read(FOLDER / f"{stem}.ipynb"))[number])


if __name__ == "__main__":
    main(sys.argv[1:])
