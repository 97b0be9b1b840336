"""Makes the map of files in architecture.md and the index of design notes, from first lines. Pure but for reading."""

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("kafkagroup", "kafka_source", "assignors")
FIRST_LINE_OF_MAP = "**`kafkagroup/`**"
#: A colon, a comma that separates no items, or a parenthesis.
_END_OF_CLAUSE = re.compile(r"[:;.] |, (?!(?:an? )?(?:[\w`]+ )?[\w`]+(?:,| and | or ))| \(")
FIRST_LINE_OF_INDEX = "| page | what it explains |"


class NoFirstLineError(ValueError):
    """A module or page does not begin with a sentence that says what it is for."""


def map_of_files() -> str:
    """Return the list of all modules by folder, each with its key type and the first clause of its docstring.

    Raises:
        NoFirstLineError: A module has none.
    """
    parts: list[str] = []
    for package in PACKAGES:
        for folder in sorted(path.parent for path in (ROOT / package).rglob("__init__.py")):
            modules = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
            head = _filled(f"**`{folder.relative_to(ROOT)}/`** {_first_line(folder / '__init__.py')}", "")
            rows = [_filled(f"- `{one.name}`{_key_type(one)}: {_clause(_first_line(one))}", "  ") for one in modules]
            parts += [head, "", *rows, ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _clause(sentence: str) -> str:
    """Return the first clause of a sentence, without the name that it explains."""
    text, depth = re.sub(r"^`[^`]+`: ", "", sentence), 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and _END_OF_CLAUSE.match(text, place) and len(text[:place].split()) > 2:
            text = text[:place]
            break
    # A heading such as "Quotas: " says no more than the name of the file.
    text = re.sub(r"^(?:\S+ )?\S+: (?!their |its |what it |PLAIN)", "", text)
    text = re.sub("^(?:the|an?) ", "", text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:].rstrip(".")


def _key_type(module: Path) -> str:
    """Return the longest public class of a module that is no error."""
    classes = [
        node
        for node in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not node.name.endswith("Error")
    ]
    longest = max(classes, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
    return f" `{longest.name}`" if longest else ""


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
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    first = " ".join(docstring.split("\n\n")[0].split())
    if not first.endswith("."):
        raise NoFirstLineError(f"{module.relative_to(ROOT)} does not begin with a sentence")
    return first


def _first_sentence(page: Path) -> str:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n\n")
    paragraph = " ".join(rest.split("\n\n")[0].split())
    found = re.match(r"([^|#]+?[.:])(\s|$)", paragraph)
    if not title.startswith("# ") or found is None:
        raise NoFirstLineError(f"{page.relative_to(ROOT)} does not begin with a title and a sentence")
    # Links lead elsewhere from the page with the index.
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", found[1]).rstrip(":.") + "."
