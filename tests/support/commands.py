"""Commands of the command line, for tests: run against a broker, refused in one line, checked against schemas."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from docs.json_documents import DOCUMENTS
from kafkagroup.cli.app import app


@dataclass(frozen=True)
class Command:
    """Runs commands against one broker."""

    servers: str

    def run(self, *arguments: object, code: int = 0) -> str:
        """Run a command and return its standard output; its exit code must be `code`."""
        result = CliRunner().invoke(app, [*map(str, arguments), "-b", self.servers])
        assert result.exit_code == code, result.output
        return result.stdout

    def says(self, *arguments: object, code: int = 0, given: str | None = None) -> str:
        """Run a command and return all that it prints to standard error, as one line."""
        result = CliRunner().invoke(app, [*map(str, arguments), "-b", self.servers], input=given)
        assert result.exit_code == code, result.output
        return " ".join(result.stderr.split())

    def refused(self, *arguments: object, code: int = 1) -> str:
        """Run a command that fails, and return the one line that it prints."""
        result = CliRunner().invoke(app, [*map(str, arguments), "-b", self.servers])
        assert result.exit_code == code, (arguments, result.output)
        lines = result.stderr.splitlines()
        assert len(lines) == 1, (arguments, result.output)
        return lines[0]

    def json(self, name: str, *arguments: object, code: int = 0) -> Any:
        """Return the JSON of a command, which must fit the command's schema."""
        found = json.loads(self.run(*name.split(), *arguments, "-o", "json", code=code))
        Draft202012Validator(DOCUMENTS[name].schema()).validate(found)
        return found


def connecting() -> set[str]:
    """The names of all commands that connect to a cluster; without the doctor, who reports each step."""
    found = set()

    def walk(command: Any, path: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))
        if any("--bootstrap-servers" in param.opts for param in command.params):
            found.add(" ".join(path))

    walk(typer.main.get_command(app), ())
    return found - {"doctor"}


def one_of_each(group: str, topic: str, folder: Path) -> dict[str, tuple[str, ...]]:
    """Arguments with which each command that connects has something to do.

    Args:
        group: A group.
        topic: A topic that it reads.
        folder: Where a file of offsets and a checkpoint are written.
    """
    offsets = folder / "offsets.json"
    offsets.write_text(
        json.dumps(
            {
                "version": 1,
                "group": group,
                "cluster": None,
                "topics": {topic: {"id": None, "partitions": {"0": {"offset": 0}}}},
            }
        )
    )
    checkpoint = folder / "checkpoint"
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    about = '{"batchWatermarkMs":7,"batchTimestampMs":8,"conf":{}}'
    (checkpoint / "offsets" / "0").write_text("\n".join(("v1", about, json.dumps({topic: {"0": 0}}))))
    (checkpoint / "sources" / "0" / "0").write_text("v1\n" + json.dumps({topic: {"0": 0}}))
    return {
        "groups": ("--lag",),
        "group": (group,),
        "watch": (group, "-n", "1"),
        "healthcheck": (group, "--state", str(folder / "state.json")),
        "create": (f"{group}-new", "-t", topic),
        "rewind": (group, "--to", "latest", "-t", topic),
        "stop": (group,),
        "pause": (group,),
        "resume": (group,),
        "delete": (group,),
        "offsets delete": (group, "-t", topic),
        "offsets clone": (group, f"{group}-copy"),
        "offsets export": (group,),
        "offsets import": (str(offsets),),
        "topics": ("-t", topic),
        "brokers": (),
        "peek": (topic,),
        "produce": (topic,),
        "schema": (topic,),
        "export": (topic, "--to", str(folder / "records.parquet")),
        "redrive": (topic,),
        "plan": ("range", "--group", group),
        "transactions list": ("-p", group),
        "transactions commit": ("-p", group),
        "transactions abort": ("-p", group),
        "transactions repair": ("-p", group, "-t", topic),
        "quota brokers": (),
        "import-checkpoint": (str(checkpoint), "--group", group),
    }
