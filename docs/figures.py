"""The tables of README.md and index.md that compare kafkagroup with the JVM connector.

Their figures are in docs/assets/benchmark-summary.json.

`./run bench plot` draws the picture of the same file. docs/benchmarks.md says where each figure comes from.
"""

import json
from pathlib import Path
from typing import TypedDict

#: The lines of a page between which a table is written.
BEGIN, END = "<!-- figures: begin -->\n\n", "\n<!-- figures: end -->"

# `at least` is what every release must reach; `section` of docs/benchmarks.md has the command; `tuned` may be empty.
Figure = TypedDict(
    "Figure",
    {
        "what": str,
        "jvm": str,
        "tuned": str,
        "kafkagroup": str,
        "unit": str,
        "faster": str,
        "at least": str,
        "section": str,
        "readme": bool,
    },
)


def figures() -> list[Figure]:
    """Return the figures, in the order of the tables."""
    saved = Path(__file__).parent / "assets" / "benchmark-summary.json"
    found: list[Figure] = json.loads(saved.read_text())["summary"]
    return found


def table_of_readme() -> str:
    """Return the table of README.md."""
    rows = ["| measured on two cores | JVM connector | tuned | kafkagroup |", "| --- | --- | --- | --- |"]
    rows += [f"| {' | '.join(_measured(one, 'docs/'))} |" for one in figures() if one["readme"]]
    return "\n".join(rows) + "\n"


def table_of_home() -> str:
    """Return the table of docs/index.md."""
    rows = ["| | JVM connector | tuned | kafkagroup | faster by | at least |", "| --- | --- | --- | --- | --- | --- |"]
    for one in figures():
        row = " | ".join((*_measured(one, ""), one["faster"], one["at least"]))
        rows.append(f"| {row.rstrip()} |")
    return "\n".join(rows) + "\n"


def _measured(one: Figure, folder: str) -> tuple[str, ...]:
    what = f"[{one['what']}]({folder}benchmarks.md#{one['section']})"
    times = (f"{time} {one['unit']}" if time else "not tried" for time in (one["jvm"], one["tuned"], one["kafkagroup"]))
    return (what, *times)
