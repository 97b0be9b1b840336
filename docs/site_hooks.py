"""What the site needs beyond plain Markdown: `mkdocs.yml` loads these hooks.

The pages link to files of the repository as they do on a forge (`../CHANGELOG.md`, `../examples/batch.py`). The site
has no repository beside it, so each file that a page links to becomes a page of the site, below `repository/`.

The theme would load Mermaid, which draws the diagrams, from another host. The site brings its own copy, so that readers
need no other host. It is large, so only pages with a diagram load it.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from html import escape, unescape
from itertools import cycle
from pathlib import Path
from runpy import run_path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
SHOWN = "repository"
#: `dist/mermaid.tiny.js` of the npm package @mermaid-js/tiny 11.12.0, unchanged (MIT, see LICENSE beside it).
#: The theme does not know the marks of later versions: their arrows are dark on dark.
MERMAID = "assets/mermaid/mermaid.tiny.js"

# A link of Markdown, without links to other sites and to headings of the same page.
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_BUTTON = re.compile(r"<strong><a (href=[^>]+>.*?</a>)</strong>")
_CELL = re.compile(r"(?<=<t[dh]>).*?(?=</t[dh]>)", re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<\n]+(?=</code>)")
# Where a long name may break: after a sign between words, and before a capital.
_BETWEEN_WORDS = re.compile(r"(?<=[\w)][._=(/])(?=\w)|(?<=[a-z])(?=[A-Z])")
_FLAG = re.compile(r"(?<![^ ])--?[\w-]+")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
# How much a page counts in a search; a guide counts twice, because it says how a thing is done.
_BOOST = {"options.md": 3, "benchmarks.md": 0.5, "cli.md": 0.5, "public-api.md": 0.3}
_BOOST |= {"api.md": 0.1, "architecture.md": 0.1}
_WIDE = 4  # Columns of a table that is too wide for a phone.
_DIAGRAM = re.compile(r'<pre class="mermaid">.*?</pre>', re.DOTALL)
_THEME_SCRIPT = re.compile(r'<script src="[^"]*assets/javascripts/bundle\.[^"]*"')
_LANGUAGES = {".py": "python", ".pyi": "python", ".toml": "toml", ".yml": "yaml", ".rs": "rust", ".json": "json"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave pages out of the navigation that do not exist, add the notebooks, and name the version in the header."""
    notebooks = [_page_of(f"notebooks/{path.name}") for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    start, guides, *others = (_existing(part) for part in config.nav or [])
    config.nav = [start, guides, {"Notebooks": ["notebooks.md", *notebooks]}, *others]
    if not config.extra["version"]["provider"]:  # The selector of versions shows it else.
        config.site_name += f" {run_path(str(ROOT / 'kafka_source/version.py'))['__version__']}"
    if not config.repo_url:
        config.edit_uri = None
    return config


def _existing(part: dict[str, list[str]]) -> dict[str, list[str]]:
    return {title: [page for page in pages if (ROOT / DOCS / page).exists()] for title, pages in part.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to, and those that these link to."""
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        source = waiting.pop()
        for target in _targets(source):
            page = _page_of(target)
            if not page.startswith(f"{SHOWN}/") or files.get_file_from_path(page) is not None:
                continue
            files.append(File.generated(config, page, content=_shown(target)))
            waiting.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where the site has their targets."""
    source = page.file.src_uri
    # In a search the page that explains a word comes before programs and lists that have it.
    beside = source.startswith((f"{SHOWN}/", "design/"))
    page.meta["search"] = {"boost": 0.02 if beside else _BOOST.get(source, 2 if source.startswith("guides/") else 1)}
    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _relative(source, link), part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lay out what Markdown cannot: buttons (bold links of the home page), diagrams, and where names break."""
    if page.file.src_uri == "index.md":
        html = _BUTTON.sub(r'<a class="md-button" \1', html)
    html = _CELL.sub(lambda cell: _CODE.sub(lambda code: _BETWEEN_WORDS.sub("<wbr>", code[0]), cell[0]), html)
    html = _CODE.sub(lambda code: _FLAG.sub(r'<span class="kg-flag">\g<0></span>', code[0]), html)
    html = _TABLE.sub(lambda table: _stackable(table[0]), html)
    return _DIAGRAM.sub(lambda diagram: _scrolled(diagram[0]), html)


def _stackable(table: str) -> str:
    """Name the column of each cell of a wide table, which a phone shows cell below cell."""
    names = [re.sub("<[^>]+>", "", name) for name in re.findall(r"<th[^>]*>(.*?)</th>", table)]
    if len(names) < _WIDE:
        return table
    label = cycle(names)
    labelled = re.sub("<td", lambda _: f'<td data-label="{escape(unescape(next(label)))}"', table)
    return labelled.replace("<table", "<table data-stacked", 1)


def _scrolled(diagram: str) -> str:
    """Keep a diagram of many participants at a size that can be read, and let it scroll."""
    width = 9 * diagram.count("participant ")
    return f'<div class="kg-diagram" data-search-exclude><div style="min-width: {width}rem">{diagram}</div></div>'


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """Take the edit link from pages that are not files of docs/."""
    if page.file.src_uri.startswith(f"{SHOWN}/"):
        page.edit_url = None
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load our Mermaid before the theme's script, which then loads none, on pages that have a diagram."""
    if 'class="mermaid"' not in output:
        return output
    ours = f'<script src="{get_relative_url(MERMAID, page.url)}"></script>'
    found = _THEME_SCRIPT.search(output)
    if found is None:
        raise PluginError(f"{page.file.src_uri}: no script of the theme is found, before which Mermaid can be loaded")
    return f"{output[: found.start()]}{ours}{output[found.start() :]}"


def _relative(source: str, link: re.Match[str]) -> str:
    target = _resolve(source, link[1])
    if target is None:
        return link[0]
    return posixpath.relpath(_page_of(target), posixpath.dirname(source) or ".") + (link[2] or "")


def _targets(source: str) -> Iterator[str]:
    """Yield the paths in the repository to which a page links."""
    path = ROOT / _origin(source)
    if path.suffix != ".md":
        return
    for text in _FENCED.split(path.read_text(encoding="utf-8"))[::2]:
        for link in _LINK.finditer(text):
            if target := _resolve(source, link[1]):
                yield target


def _resolve(source: str, link: str) -> str | None:
    """Return the file in the repository that a link of a page means.

    None leaves the link as it is: to a picture beside the page, or to what does not exist, which MkDocs reports.
    """
    target = posixpath.normpath(posixpath.join(posixpath.dirname(_origin(source)), link))
    if (ROOT / target).is_dir():
        target = posixpath.join(target, "README.md")
    beside = target.startswith(f"{DOCS}/") and not target.endswith((".md", ".py"))
    return None if beside or target.startswith("..") or not (ROOT / target).is_file() else target


def _origin(page: str) -> str:
    """Return the path in the repository of what a page shows."""
    if page.startswith(f"{SHOWN}/"):
        origin = page.removeprefix(f"{SHOWN}/")
        return origin if (ROOT / origin).is_file() else origin.removesuffix(".md")
    return f"{DOCS}/{page}"


def _page_of(target: str) -> str:
    """Return the page of the site that shows a file of the repository."""
    inside = target.removeprefix(f"{DOCS}/")
    if inside != target and target.endswith(".md"):
        return inside
    return f"{SHOWN}/{target}" if target.endswith(".md") else f"{SHOWN}/{target}.md"


def _shown(target: str) -> str:
    path = ROOT / target
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return _notebook(json.loads(text), target)
    return f"# {path.name}\n\n`{target}`\n\n````{_LANGUAGES.get(path.suffix, '')}\n{text}````\n"


def _notebook(notebook: dict[str, Any], target: str) -> str:
    """Return the cells of a notebook as a page, in their order, with their outputs."""
    title, *cells = notebook["cells"]
    parts = ["".join(title["source"]), f"`{target}`"]
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"````python\n{source}\n````", *_outputs(cell)]
    return "\n\n".join(parts) + "\n"


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    """Yield what a cell has printed and drawn."""
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield f'````text title="Output"\n{"".join(output["text"])}\n````'
        elif "image/png" in output["data"]:
            yield f'<img alt="What this cell draws" src="data:image/png;base64,{output["data"]["image/png"].strip()}">'
