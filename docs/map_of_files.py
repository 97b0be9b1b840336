"""Makes the map of files in architecture.md and the index of design notes, from first lines. Pure but for reading."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("kafkagroup", "kafka_source", "assignors")
FIRST_LINE_OF_MAP = "| file | what it does |"
FIRST_LINE_OF_INDEX = "| page | what it explains |"


class NoFirstLineError(ValueError):
    """A module or page does not begin with a sentence that says what it is for."""


def map_of_files() -> str:
    """Return the table of all modules, folder by folder, each with the first line of its docstring.

    Raises:
        NoFirstLineError: A module has none.
    """
    rows = [FIRST_LINE_OF_MAP, "| --- | --- |"]
    for package in PACKAGES:
        for folder in sorted(path.parent for path in (ROOT / package).rglob("__init__.py")):
            rows.append(f"| **`{folder.relative_to(ROOT)}/`** | **{_first_line(folder / '__init__.py')}** |")
            modules = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
            rows += [f"| `{path.name}` | {_first_line(path)} |" for path in modules]
    crate = ROOT / "native" / "src"
    for folder in sorted({path.parent for path in crate.rglob("*.rs")}):
        door = folder / ("lib.rs" if folder == crate else "mod.rs")
        rows.append(f"| **`{folder.relative_to(ROOT)}/`** | **{_first_line(door)}** |")
        rows += [f"| `{path.name}` | {_first_line(path)} |" for path in sorted(folder.glob("*.rs")) if path != door]
    return "\n".join(rows) + "\n"


def index_of_design_notes() -> str:
    """Return the table of the design notes, each with the first sentence below its title.

    Raises:
        NoFirstLineError: A page has none.
    """
    rows = [FIRST_LINE_OF_INDEX, "| --- | --- |"]
    pages = sorted(page for page in (ROOT / "docs" / "design").glob("*.md") if page.name != "README.md")
    rows += [f"| [{page.stem}]({page.name}) | {_first_sentence(page)} |" for page in pages]
    return "\n".join(rows) + "\n"


def _first_line(module: Path) -> str:
    text = module.read_text(encoding="utf-8")
    if module.suffix == ".rs":
        found = re.match(r"//! (.+)", text)
        docstring = found[1] if found else ""
    else:
        docstring = ast.get_docstring(ast.parse(text)) or ""
    first = " ".join(docstring.split("\n\n")[0].split())
    if not first.endswith("."):
        raise NoFirstLineError(f"{module.relative_to(ROOT)} does not begin with a sentence")
    return first.replace("|", "\\|")


def _first_sentence(page: Path) -> str:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n\n")
    paragraph = " ".join(rest.split("\n\n")[0].split())
    found = re.match(r"([^|#]+?[.:])(\s|$)", paragraph)
    if not title.startswith("# ") or found is None:
        raise NoFirstLineError(f"{page.relative_to(ROOT)} does not begin with a title and a sentence")
    # Links lead elsewhere from the page with the index.
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", found[1]).rstrip(":.") + "."
