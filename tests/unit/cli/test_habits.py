"""What people type by habit from other tools is understood; what is right already is not changed."""

import shlex
import subprocess
import sys

import pytest

from kafka_source.version import __version__
from kafkagroup.cli.app import refuse, understand


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
        ("peek t -o -5", "peek t -n 5"),
        ("peek t -o 7 -c 3", "peek t --from @7 -n 3"),
        ("-C -b b:1 -t t -p 0 -p 2 -o beginning -e", "peek -b b:1 -t t:0,2 --from earliest"),
        ("peek -f t --partition 1", "peek -f t:1"),
        ("peek t --json -n 1", "peek t -o json -n 1"),
        ("topics --format jsonl", "topics -o jsonl"),
        ("list topics", "topics"),
        ("describe topic orders", "topics orders"),
        ("cluster", "brokers"),
        ("-P -b b:1 -t t", "produce -b b:1 -t t"),
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
        "peek t -c fetch.max.bytes=1",
        "export t --to x.csv --format csv",
    ],
)
def test_what_is_right_is_not_changed(line: str) -> None:
    assert understand(shlex.split(line)) == shlex.split(line)


@pytest.mark.parametrize(
    ("typed", "tool"),
    [
        ("topics create t", "kafka-topics.sh --create"),
        ("create topic t", "kafka-topics.sh --create"),
        ("delete topic t", "kafka-topics.sh --delete"),
        ("acl list", "kafka-acls.sh"),
        ("config", "kafka-configs.sh"),
        ("create shipping", None),
        ("topics orders", None),
        ("", None),
    ],
)
def test_what_this_tool_does_not_do_names_kafkas_own(typed: str, tool: str | None) -> None:
    said = refuse(shlex.split(typed))
    assert said is None if tool is None else said is not None and tool in said


def test_the_version_is_printed_and_a_habit_is_said() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkagroup.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert run("--version").stdout == run("-V").stdout == run("version").stdout == f"{__version__}\n"
    assert run("group", "list", "--help").stderr == "Understood as: kafkagroup groups --help\n"
    secrets = (
        "-X",
        "sasl.password=correct-horse",
        "--config=ssl.key.password=a=b",
        "-cschema.registry.url=http://u:p@r",
    )
    said = run("group", "list", *secrets, "--help").stderr
    shown = "-X 'sasl.password=*****' '--config=ssl.key.password=*****' '-cschema.registry.url=http://*****@r'"
    assert said == f"Understood as: kafkagroup groups {shown} --help\n"
