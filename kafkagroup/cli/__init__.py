"""The command line, `kafkagroup`, which needs the extra `cli`."""

import shlex
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command `kafkagroup`. If a library is missing, name the extra that installs it and exit with 1."""
    try:
        for library in ("typer", "rich"):
            # Help and JSON need no rich, and `--help` must not take the time to import rich.
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        _run()
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich", "pyarrow"):
            raise
        sys.exit(f"The command kafkagroup needs {missing.name}: pip install 'kafkagroup[cli]'")


def _run() -> None:
    from kafkagroup.cli.app import app, refuse, understand

    # A shell's completion runs the command without arguments.
    typed = sys.argv[1:]
    if (refusal := refuse(typed)) is not None:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(2)
    words = understand(typed)
    if words != typed:
        sys.stderr.write(f"Understood as: kafkagroup {shlex.join(map(_without_secret, words))}\n")
    app(words, prog_name="kafkagroup")


def _without_secret(word: str) -> str:
    from kafka_source.client_config.settings import HIDDEN, is_secret, shown

    # In `--config=name=value` the second part is the name.
    parts = word.split("=")
    for number, name in enumerate(parts[:-1], 1):
        if is_secret(name):
            return "=".join([*parts[:number], HIDDEN])
    return str(shown("", word))
