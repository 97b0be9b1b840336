"""Writes docs/options.md, and the table of codes in docs/errors.md: `./run docs`."""

from __future__ import annotations

from pathlib import Path

from kafka_source import errors
from kafka_source.options.reference import as_markdown

OPTIONS_PAGE = """# Options

`./run docs` generates this page from `kafka_source/options/catalog.py`. Names are case-insensitive. Options of Spark's
Kafka source and settings of Kafka keep their names; the connector's own options are lower case with dots. Every other
option with the prefix `kafka.` goes to the Kafka clients unchanged: see [security](security.md) for
`kafka.security.protocol` and related settings.

"""

_TABLE_OF_CODES = "| code | name |"


def main() -> None:
    """Write the generated parts of the pages."""
    docs = Path(__file__).parent
    (docs / "options.md").write_text(OPTIONS_PAGE + as_markdown())
    page = docs / "errors.md"
    written, _, _ = page.read_text().partition(_TABLE_OF_CODES)
    page.write_text(written + errors.table())


if __name__ == "__main__":
    main()
