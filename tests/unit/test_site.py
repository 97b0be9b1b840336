"""The site of the documentation builds without a warning, and its search finds recipes by what people type."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import figures

ROOT = Path(__file__).parents[2]


# What people type, and the page and section that answers.
RECIPES = {
    "skip or repeat records and keep the state": "stream/#edit-a-checkpoint-skip-or-repeat-records-and-keep-the-state",
    "edit checkpoint": "stream/#edit-a-checkpoint-skip-or-repeat-records-and-keep-the-state",
    "exactly once into Delta or Iceberg, with Spark and without": "delta-and-iceberg/",
    "window never closes": "late-rows/#a-window-never-closes-or-a-partition-is-idle",
    "idle partition": "late-rows/#a-window-never-closes-or-a-partition-is-idle",
    "rows dropped by watermark": "late-rows/",
    "late data after restart": "late-rows/",
    "small files": "stream/#small-files",
    "one topic before another": "limit-a-query/#one-topic-before-another",
    "scale to zero": "scale-by-lag/#scale-to-zero",
    "read a topic's last hour": "batch/#read-a-topics-last-hour",
    "which records are bad": "bad-records/",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|iframe)[^>]+src="https?:|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+https?:')
    assert [page for page in site.rglob("*.html") if loads.search(page.read_text())] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="the site's search is a program for Node or a browser")
def test_the_search_finds_a_recipe_first_by_the_words_that_people_type(site: Path) -> None:
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    command = ["node", str(Path(__file__).with_name("search.js")), str(worker), str(site / "search/search_index.json")]
    asked = json.dumps(list(RECIPES))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=100, check=True)
    assert dict(zip(RECIPES, done.stdout.split(), strict=True)) == {
        words: f"guides/{place}" for words, place in RECIPES.items()
    }


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
