"""Help: it is there at once, complete, and readable in a terminal of 80 columns."""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kafkagroup.cli.app import app
from tests.support.programs import run_python

COLUMNS = 80
HEAVY = {"rich", "kafka", "confluent_kafka", "pyarrow", "pandas", "pyspark", "kafka_source.errors", "assignors"}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, with the groups of commands."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def help_of(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(COLUMNS), "TERMINAL_WIDTH": str(COLUMNS)})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "kafkagroup")
def test_help_fits_into_80_columns_and_says_everything(path: tuple[str, ...]) -> None:
    text = help_of(path)
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    # The help of a list of commands cuts a sentence that does not fit.
    assert "..." not in re.sub(r"\[?[A-Z:]+\]?(,\.\.\.|\.\.\.)|\[ARGS\]\.\.\.", "", text)
    for param in COMMANDS[path].params:
        if param.param_type_name == "option":
            assert param.help, f"{param.name} of {path} has no help"
            assert param.opts[0] in text


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "kafkagroup")
def test_a_cluster_is_named_as_kafkas_own_tools_do(path: tuple[str, ...]) -> None:
    options = {option for param in COMMANDS[path].params for option in param.opts}
    assert (
        "--bootstrap-servers" not in options
        or {"--bootstrap-server", "--command-config", "--context", "-b", "-c"} <= options
    )
    assert ("--bootstrap-servers" in options) == ("--command-config" in options)


def test_every_command_that_shows_rows_has_all_forms_of_output() -> None:
    without = {" ".join(path) for path, one in COMMANDS.items() if not hasattr(one, "commands")} - {
        " ".join(path) for path, one in COMMANDS.items() if any("--output" in param.opts for param in one.params)
    }
    documents, sentence = {"offsets export", "quota set"}, {"embedded", "export", "healthcheck", "produce", "redrive"}
    assert without == documents | sentence, "they print a JSON document, or one sentence, and nothing else"


def test_help_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys\nfrom kafkagroup.cli import main\nsys.argv = ['kafkagroup', 'rewind', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('loaded', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = run_python("-c", code)
    assert "--to-group" in done.stdout, done.stderr
    assert done.stdout.endswith("loaded []\n"), done.stdout[-300:]


def test_help_is_there_in_half_a_second_of_processor_time() -> None:
    code = "from kafkagroup.cli import main\nimport sys\nsys.argv = ['kafkagroup', '--help']\nmain()"
    least = min(processor_seconds(code) for _ in range(3))
    assert least < 0.5, f"{least:.2f} s"


def processor_seconds(code: str) -> float:
    """What a Python with this code takes; a busy machine makes it slower, and takes no more processor time."""
    before = os.times()
    assert run_python("-c", code).returncode == 0
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(shell: str) -> None:
    environment = {
        "_KAFKAGROUP_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "kafkagroup re",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "kafkagroup re",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = run_python("-m", "kafkagroup.cli", "re", environment=environment)
    assert "rewind" in done.stdout, done
