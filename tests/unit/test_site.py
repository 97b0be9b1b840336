"""The site of the documentation builds without a warning: each link and each heading that a page names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs import figures

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    loads = re.compile(r'<(?:script|img|iframe)[^>]+src="https?:|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+https?:')
    assert [page for page in tmp_path.rglob("*.html") if loads.search(page.read_text())] == []


def test_readme_and_home_have_the_figures_of_the_benchmarks() -> None:
    readme, home, benchmarks = (
        (ROOT / page).read_text() for page in ("README.md", "docs/index.md", "docs/benchmarks.md")
    )
    assert figures.BEGIN + figures.table_of_readme() + figures.END in readme, "run: ./run docs"
    assert figures.BEGIN + figures.table_of_home() + figures.END in home, "run: ./run docs"
    for one in figures.figures():
        measured = rf"^\|.* {re.escape(one['jvm'])} .* {re.escape(one['kafkagroup'])} .*\|$"
        assert re.search(measured, benchmarks, re.MULTILINE), one


def test_no_line_of_a_sequence_diagram_ends_early() -> None:
    drawn = [
        (page.name, line)
        for page in (ROOT / "docs").rglob("*.md")
        for diagram in re.findall(r"```mermaid\nsequenceDiagram\n(.*?)```", page.read_text(), re.DOTALL)
        for line in diagram.splitlines()
    ]
    assert len(drawn) > 30
    # Mermaid takes a semicolon for the end of a line, also in a text, and then draws nothing.
    assert [found for found in drawn if ";" in found[1]] == []
