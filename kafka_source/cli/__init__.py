"""The command line, `kafkagroup`, which needs the extra `cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command `kafkagroup`; without typer and rich, name the extra that brings them and exit with 1."""
    try:
        from kafka_source.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(f"The command kafkagroup needs {missing.name}: pip install 'kafkagroup[cli]'")
    app()
