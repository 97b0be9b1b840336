"""Writes docs/options.md from the catalog of options: `./run docs`."""

from __future__ import annotations

from pathlib import Path

from kafka_source.options.reference import as_markdown

OPTIONS_PAGE = """# Options

`./run docs` generates this page from `kafka_source/options/catalog.py`. Names are case-insensitive. Options of Spark's
Kafka source and settings of Kafka keep their names; the connector's own options are lower case with dots. Every other
option with the prefix `kafka.` goes to the Kafka clients unchanged: see [security](security.md) for
`kafka.security.protocol` and related settings.

"""


def main() -> None:
    """Write docs/options.md."""
    docs = Path(__file__).parent
    (docs / "options.md").write_text(OPTIONS_PAGE + as_markdown())


if __name__ == "__main__":
    main()
