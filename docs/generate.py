"""Writes the docs that come from the code: the tables of options and of error codes. `./run docs`."""

from __future__ import annotations

from pathlib import Path

from kafka_source import options

OPTIONS_PAGE = """# Options

Made from `kafka_source/options.py` by `./run docs`. Names are case-insensitive. Every other option that begins with
`kafka.` goes to the Kafka clients as it is; see [security](security.md) for `kafka.security.protocol` and its kin.

"""


def main() -> None:
    """Write the generated pages."""
    docs = Path(__file__).parent
    (docs / "options.md").write_text(OPTIONS_PAGE + options.as_markdown())


if __name__ == "__main__":
    main()
