"""Contexts: which one a command uses, what it takes from it, and secrets that nobody sees."""

import json
import re
import stat
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer import BadParameter
from typer.testing import CliRunner

from docs.json_documents import DOCUMENTS
from kafkagroup.cli.app import app
from kafkagroup.cli.settings import Connection, contexts_path
from tests.support.programs import run_python

PASSWORD = "correct-horse-battery"
CONTEXTS = f"""
# A context for each cluster.
[default]
bootstrap.servers = default:1

[production]
bootstrap.servers = production:1
kafka.client.id = of-the-context
sasl.mechanism = PLAIN
sasl.username = alice
sasl.password = ${{env:PRODUCTION_PASSWORD}}

[staging]
command.config = staging.properties
client.id = of-the-context

[inlined]
bootstrap.servers = inlined:1
sasl.password = {PASSWORD}
"""


@pytest.fixture(autouse=True)
def file(_no_contexts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "contexts.ini"
    path.write_text(CONTEXTS)
    path.chmod(0o600)
    (tmp_path / "staging.properties").write_text("bootstrap.servers=staging:1\nclient.id=of-the-file\nretries=3\n")
    monkeypatch.setenv("KAFKAGROUP_CONTEXTS", str(path))
    return path


def servers(option: str | None = None, file: Path | None = None, context: str | None = None) -> str:
    return Connection(servers=option, config_file=file, context=context).settings()["bootstrap.servers"]


def test_a_context_is_chosen_by_option_variable_or_as_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert servers() == "default:1"
    monkeypatch.setenv("PRODUCTION_PASSWORD", PASSWORD)
    monkeypatch.setenv("KAFKAGROUP_CONTEXT", "staging")
    assert servers() == "staging:1"
    assert servers(context="production") == "production:1"


def test_without_the_option_a_context_is_used_only_if_nothing_else_names_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=file:1\n")
    monkeypatch.setenv("KAFKAGROUP_CONTEXT", "inlined")
    for settings in (
        Connection(servers="option:1").settings(),
        Connection(config=["bootstrap.servers=config:1"]).settings(),
        Connection(config_file=properties).settings(),
    ):
        assert "sasl.password" not in settings, "a password must not go to another cluster"
    monkeypatch.setenv("KAFKAGROUP_BOOTSTRAP_SERVERS", "variable:1")
    assert servers() == "variable:1"
    assert "sasl.password" not in Connection().settings()


def test_the_option_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other.properties"
    other.write_text("client.id=of-the-variable\n")
    monkeypatch.setenv("KAFKAGROUP_BOOTSTRAP_SERVERS", "variable:1")
    monkeypatch.setenv("KAFKAGROUP_COMMAND_CONFIG", str(other))
    monkeypatch.setenv("KAFKAGROUP_KAFKA_SASL_PASSWORD", PASSWORD)
    settings = Connection(context="staging").settings()
    assert (settings["bootstrap.servers"], settings["client.id"]) == ("staging:1", "of-the-context")
    assert "sasl.password" not in settings
    assert servers("option:1", context="staging") == "option:1"
    assert Connection(config=["client.id=of-the-option"], context="staging").settings()["client.id"] == "of-the-option"
    assert Connection(config_file=other, context="staging").settings()["client.id"] == "of-the-variable"


def test_the_environment_completes_a_context_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKAGROUP_CONTEXT", "staging")
    monkeypatch.setenv("KAFKAGROUP_KAFKA_CLIENT_ID", "of-the-variable")
    settings = Connection().settings()
    assert (settings["bootstrap.servers"], settings["client.id"]) == ("staging:1", "of-the-variable")


def test_a_secret_is_referenced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PRODUCTION_PASSWORD", PASSWORD)
    settings = Connection(context="production").settings()
    assert settings["sasl.password"] == PASSWORD
    assert settings["client.id"] == "of-the-context"
    assert PASSWORD not in repr(settings)
    assert capsys.readouterr().err == ""


def test_a_secret_that_is_not_there_is_one_line() -> None:
    done = CliRunner().invoke(app, ["groups", "--context", "production"])
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "${env:PRODUCTION_PASSWORD}" in line


def test_a_secret_in_a_file_that_others_can_read_is_warned_of(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Connection(context="inlined").settings()["sasl.password"] == PASSWORD
    assert capsys.readouterr().err == ""
    file.chmod(0o640)
    assert Connection(context="inlined").settings()["sasl.password"] == PASSWORD
    told = capsys.readouterr().err
    assert "sasl.password of context inlined" in told
    assert "chmod 600" in told
    assert PASSWORD not in told
    Connection(context="default").settings()
    assert capsys.readouterr().err == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_secret_in_the_command_config_of_a_context_that_others_can_read_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "staging.properties"
    properties.write_text(f"bootstrap.servers=staging:1\nkafka.sasl.password={PASSWORD}\n")
    properties.chmod(0o600)
    Connection(context="staging").settings()
    assert capsys.readouterr().err == ""
    properties.chmod(0o604)
    assert Connection(context="staging").settings()["sasl.password"] == PASSWORD
    told = capsys.readouterr().err
    assert "sasl.password of context staging" in told
    assert f"chmod 600 {properties}" in told
    assert PASSWORD not in told


def test_whether_a_context_names_a_cluster() -> None:
    assert Connection().names_cluster()
    assert Connection(context="production").names_cluster()


def test_the_contexts_are_listed_without_secrets(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("KAFKAGROUP_CONTEXT", "staging")
    done = CliRunner().invoke(app, ["contexts", "-o", "json"])
    rows = json.loads(done.stdout)
    Draft202012Validator(DOCUMENTS["contexts"].schema()).validate(rows)
    assert [row["context"] for row in rows] == ["default", "production", "staging", "inlined"]
    assert [row["context"] for row in rows if row["current"]] == ["staging"]
    by_name = {row["context"]: row for row in rows}
    assert by_name["production"] == {
        "context": "production", "current": False, "bootstrap_servers": "production:1", "command_config": None,
        "settings": ["client.id", "sasl.mechanism", "sasl.password", "sasl.username"],
    }  # fmt: skip
    assert by_name["staging"]["command_config"] == str(file.parent / "staging.properties")
    for output in ("table", "csv", "json"):
        assert PASSWORD not in CliRunner().invoke(app, ["contexts", "-o", output]).output


def test_no_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKAGROUP_CONTEXTS", str(tmp_path / "nothing.ini"))
    assert "There are no contexts" in CliRunner().invoke(app, ["contexts"]).stdout
    with pytest.raises(BadParameter, match="no broker is named"):
        servers()
    with pytest.raises(BadParameter, match="there is no context production"):
        servers(context="production")


def test_where_the_contexts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKAGROUP_CONTEXTS")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert contexts_path() == Path("/settings/kafkagroup/contexts.ini")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/alice")
    assert contexts_path() == Path("/home/alice/.config/kafkagroup/contexts.ini")


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--context", "nothing"], {}, "there is no context nothing in .*; it has default, production, staging"),
        ([], {"KAFKAGROUP_CONTEXT": "nothing"}, "KAFKAGROUP_CONTEXT: there is no context nothing"),
        (["--context", "staging"], {"KAFKAGROUP_CONTEXTS": "/"}, "cannot be read"),
    ],
)
def test_a_context_that_cannot_be_used_is_wrong_usage(
    arguments: list[str], environment: dict[str, str], says: str
) -> None:
    done = CliRunner().invoke(app, ["groups", *arguments], env=environment)
    assert done.exit_code == 2
    assert re.search(says, " ".join(done.stderr.split())), done.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[a]\nbootstrap.servers = a:1\nsasl.password: hunter2\n", 3),
        ("# no section\nsasl.password = hunter2\n", 2),
        ("[a]\nx = 1\nhunter2 = 1\nhunter2 = 2\n", 4),
        ("[hunter2]\nx = 1\n[hunter2]\n", 3),
    ],
)
def test_a_syntax_error_is_told_by_its_line_and_not_by_its_text(file: Path, text: str, line: int) -> None:
    file.write_text(text)
    done = CliRunner().invoke(app, ["groups", "--context", "a"], env={"COLUMNS": "1000"})
    assert done.exit_code == 2
    assert "hunter2" not in done.output
    assert f"line {line}" in done.output


def test_a_shell_completes_the_names() -> None:
    words = {"COMP_WORDS": "kafkagroup groups --context p", "COMP_CWORD": "3"}
    done = run_python("-m", "kafkagroup.cli", environment={"_KAFKAGROUP_COMPLETE": "complete_bash", **words})
    assert done.stdout.split() == ["production"]
