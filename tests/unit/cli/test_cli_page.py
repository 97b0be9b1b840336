"""docs/cli.md is what the command line says, and names every command."""

import re
from pathlib import Path

import typer
from jsonschema import Draft202012Validator

from docs import cli_page
from docs.json_documents import DOCUMENTS
from kafkagroup.cli.app import app

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_generated_from_the_command_line() -> None:
    assert PAGE.read_text() == cli_page.as_markdown(), "run: ./run docs"


def test_the_page_has_each_command_with_its_options() -> None:
    text = PAGE.read_text()
    for path, command in cli_page._commands(typer.main.get_command(app), ()):
        (section,) = [part for part in text.split("\n### ") if part.startswith(f"`kafkagroup {' '.join(path)}`")]
        for param in command.params:
            is_shown_once = {"--help", "--bootstrap-servers", "--command-config", "--config", "--context"}.intersection(
                param.opts
            )
            assert param.opts[0] in section or is_shown_once or param.param_type_name == "argument"


def test_what_stands_beside_other_tools_exists() -> None:
    commands = {" ".join(path): one for path, one in cli_page._commands(typer.main.get_command(app), ())}
    table = PAGE.read_text().partition("## Beside other tools")[2].partition("## Commands")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| to ", "| ---"))]
    used = [call for row in rows for call in re.findall("`([^`]+)`", row.split(" | ")[1])]
    unknown = []
    for call in used:
        words = call.split()
        name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in commands), None)
        known = {option for one in commands.values() for param in one.params for option in param.opts}
        if name is not None:
            known = {option for param in commands[name].params for option in param.opts}
        elif not call.startswith("-") and call not in ("latest",):
            unknown.append(call)
        unknown += [f"{call}: {word}" for word in words if word.startswith("-") and word not in known]
    assert len(rows) > 20
    assert unknown == []


def test_every_column_of_every_document_is_described() -> None:
    items = [line for line in PAGE.read_text().splitlines() if line.startswith("- `")]
    assert len(items) > 200
    assert [item for item in items if item.endswith(":")] == []


def test_every_document_has_a_valid_schema() -> None:
    for document in DOCUMENTS.values():
        Draft202012Validator.check_schema(document.schema())
