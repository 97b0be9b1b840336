"""The command line, `kafkagroup`, which needs the extra `cli`."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command `kafkagroup`; without typer and rich, name the extra that brings them and exit with 1."""
    try:
        for library in ("typer", "rich"):
            # Help and JSON need no rich, and `--help` should not take the time to import it.
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        from kafkagroup.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(f"The command kafkagroup needs {missing.name}: pip install 'kafkagroup[cli]'")
    app(prog_name="kafkagroup")
