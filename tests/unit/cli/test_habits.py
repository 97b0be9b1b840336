"""What people type by habit from other tools is understood; what is right already is not changed."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from kafka_source.version import __version__
from kafkagroup.cli.app import understand


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("version", "--version"),
        ("group list", "groups"),
        ("groups list --lag", "groups --lag"),
        ("group describe billing -b b:1", "group billing -b b:1"),
        ("groups describe billing", "group billing"),
        ("groups billing", "group billing"),
        ("describe billing", "group billing"),
        ("lag billing", "group billing"),
        ("list", "groups"),
        ("--list -b b:1", "groups -b b:1"),
        ("--describe --group billing -b b:1", "group --group billing -b b:1"),
        ("--bootstrap-server b:1 --describe --group g --offsets", "group --bootstrap-server b:1 --group g"),
        (
            "--reset-offsets --group g --topic t --to-earliest --execute",
            "rewind --group g --topic t --to earliest --yes",
        ),
        ("rewind g -t t --to-latest --dry-run", "rewind g -t t --to latest"),
        ("rewind g -t t --to latest --execute --dry-run", "rewind g -t t --to latest"),
        ("delete g --yes --dry-run", "delete g"),
        ("rewind g -t t --to beginning", "rewind g -t t --to earliest"),
        ("seek g --to end", "rewind g --to latest"),
        ("reset g -t t --to-current", "rewind g -t t --to current"),
        ("delete g --execute", "delete g --yes"),
        ("topics list", "topics"),
        ("topics --list", "topics"),
        ("topics --describe --topic t", "topics --topic t"),
        ("topics describe orders", "topics orders"),
        ("topic orders", "topics orders"),
        ("peek t --from-beginning", "peek t --from earliest"),
        ("peek t --from beginning", "peek t --from earliest"),
        ("peek t -o beginning", "peek t --from earliest"),
        ("consume t", "peek t"),
        ("tail t", "peek --follow t"),
    ],
)
def test_a_habit_is_understood(typed: str, ours: str) -> None:
    assert understand(shlex.split(typed)) == shlex.split(ours)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "--version",
        "group describe",
        "group --group list",
        "group billing --summary -o json",
        "groups --lag -o csv",
        "topics -t orders",
        "peek orders -o json -n 5",
        "rewind billing --topic orders --to earliest --yes",
        "rewind billing --to-offset 5",
        "offsets export billing",
        "watch billing",
    ],
)
def test_what_is_right_is_not_changed(line: str) -> None:
    assert understand(shlex.split(line)) == shlex.split(line)


def test_the_version_is_printed_and_a_habit_is_said() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkagroup.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert run("--version").stdout == run("-V").stdout == run("version").stdout == f"{__version__}\n"
    assert run("group", "list", "--help").stderr == "Understood as: kafkagroup groups --help\n"
