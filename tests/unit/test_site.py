"""The site of the documentation builds without a warning, so no link and no heading that a page names is missing."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import figures
from kafka_source.options import OPTIONS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning of MkDocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = name.parent if name.name in ("index", "README") else name
        assert (site / folder / "index.html").is_file(), page


def test_every_page_for_users_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text()
    for page in sorted((ROOT / "docs" / "guides").glob("*.md")):
        assert f'href="guides/{page.stem}/"' in home, page


def test_the_home_page_has_two_buttons(site: Path) -> None:
    assert len(re.findall(r'class="md-button"', (site / "index.html").read_text())) == 2


def test_the_pages_say_that_no_index_has_it_until_it_is_released() -> None:
    released = re.search(r"^## \[.+\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    for page in ("README.md", "docs/quickstart.md", "docs/install.md"):
        assert ("on no index yet" in (ROOT / page).read_text()) == (released is None), page


def test_readme_and_home_have_the_figures_of_the_benchmarks() -> None:
    readme, home, benchmarks = (
        (ROOT / page).read_text() for page in ("README.md", "docs/index.md", "docs/benchmarks.md")
    )
    assert figures.BEGIN + figures.table_of_readme() + figures.END in readme, "run: ./run docs"
    assert figures.BEGIN + figures.table_of_home() + figures.END in home, "run: ./run docs"
    for one in figures.figures():
        measured = rf"^\|.* {re.escape(one['jvm'])} .* {re.escape(one['kafkagroup'])} .*\|$"
        assert re.search(measured, benchmarks, re.MULTILINE), one


def test_diagrams_are_drawn_without_another_host(site: Path) -> None:
    page = (site / "concepts" / "index.html").read_text()
    ours = page.index('<script src="../assets/mermaid/mermaid.tiny.js"></script>')
    assert page.count('<div class="kg-diagram"') == (ROOT / "docs" / "concepts.md").read_text().count("```mermaid")
    assert ours < page.index("assets/javascripts/bundle."), "the theme's script would load another Mermaid"
    assert (site / "assets" / "mermaid" / "mermaid.tiny.js").stat().st_size > 1_000_000
    assert "mermaid.tiny.js" not in (site / "index.html").read_text(), "a page without a diagram loads it too"


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


def test_pages_load_nothing_from_another_host(site: Path) -> None:
    scripts = re.compile(r'<(?:script|img|iframe)[^>]+src="https?:')
    styles = re.compile(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+https?:')
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not scripts.search(text), page
        assert not styles.search(text), page


def test_a_plain_build_asks_for_no_list_of_versions(site: Path) -> None:
    home = (site / "index.html").read_text()
    settings = re.search(r'<script id="__config" type="application/json">(.*?)</script>', home)
    assert settings is not None
    assert json.loads(settings[1])["version"]["provider"] == ""


def test_json_at_the_end_of_a_cell_is_shown(site: Path) -> None:
    row = re.search(r"`assign` \| JSON such as (\{.*?\}) \|", (ROOT / "docs" / "options.md").read_text())
    assert row is not None
    assert row[1] in html.unescape(re.sub("<[^>]+>", "", (site / "options" / "index.html").read_text()))


def test_a_phone_can_show_the_cells_of_a_wide_table_below_each_other(site: Path) -> None:
    page = (site / "options" / "index.html").read_text()
    row = page[page.index('<a id="kafka-group-id">') :]
    labels = re.findall(r'<td data-label="([^"]+)">', row[: row.index("</tr>")])
    assert labels == ["takes", "default", "where", "what it does"]


def test_programs_and_lists_come_after_the_pages_in_a_search(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    boosts = {entry["location"].partition("#")[0]: entry.get("boost", 1) for entry in found}
    assert boosts["options/"] > boosts["guides/stream/"] > boosts["migrating/"] > boosts["public-api/"]
    assert boosts["api/"] > boosts["repository/examples/demo.py/"]


def test_each_option_has_an_anchor(site: Path) -> None:
    page = (site / "options" / "index.html").read_text()
    anchors = re.findall(r'<a id="([^"]+)">', page)
    assert len(anchors) == len(set(anchors)) == len(OPTIONS)
    assert (
        set(re.findall(r'href="#([^"]+)"', page))
        >= {"kafka-group-id", "startingoffsets", "commit-group"}
        <= set(anchors)
    )


def test_search_finds_exactly_once(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    locations = {entry["location"] for entry in found if "exactly once" in f"{entry['title']} {entry['text']}".lower()}
    assert {"concepts/#exactly-once", "sink/#exactly-once"} <= locations


def test_the_reference_has_the_docstrings_of_public_names(site: Path) -> None:
    page = (site / "api" / "index.html").read_text()
    for name in ("pinned", "register", "Groups", "LagListener", "EmbeddedKafka", "GenericMember", "check_assignor"):
        assert re.search(rf'<h\d id="[\w.]*\.{name}"', page), name


def test_files_beside_the_pages_are_shown(site: Path) -> None:
    assert (site / "repository" / "CHANGELOG" / "index.html").is_file()
    assert "class FewestBytesAssignor" in re.sub(
        "<[^>]+>", "", (site / "repository" / "examples" / "my_assignor.py" / "index.html").read_text()
    )


def test_every_notebook_is_listed_and_shown(site: Path) -> None:
    listed = (site / "notebooks" / "index.html").read_text()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        assert f'href="../repository/notebooks/{path.name}/"' in listed
        title, *_, last = json.loads(path.read_text())["cells"]
        shown = re.sub("<[^>]+>", "", (site / "repository" / "notebooks" / path.name / "index.html").read_text())
        assert "".join(title["source"]).partition("\n")[0].removeprefix("# ") in shown
        assert "".join(last["source"]).partition("\n")[0] in shown
        page = (site / "repository" / "notebooks" / path.name / "index.html").read_text()
        assert '<img alt="What this cell draws" src="data:image/png;base64,' in page


def test_the_table_of_kips_has_each_kip_that_the_code_names() -> None:
    """KIPs of the embedded Kafka are its own business: the table is about the clients."""
    page = (ROOT / "docs" / "compatibility.md").read_text()
    table = page[page.index("<!-- kips: begin -->") : page.index("<!-- kips: end -->")]
    listed = {
        number
        for line in table.splitlines()
        if re.match(r"\| \d", line)
        for number in re.findall(r"\d+", line.split("|")[1])
    }
    named = {
        number
        for folder in ("kafka_source", "kafkagroup", "assignors", "native/src")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".rs") and "embedded" not in path.parts
        for number in re.findall(r"KIP-(\d+)", path.read_text())
    }
    assert len(named) > 30
    assert named <= listed, sorted(named - listed, key=int)
