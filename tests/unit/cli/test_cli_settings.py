"""Settings of a command: a file, the environment, the command line; and passwords that nobody sees."""

from pathlib import Path

import pytest
from typer import BadParameter
from typer.testing import CliRunner

from kafkagroup.cli.app import app
from kafkagroup.cli.settings import Connection, from_environment

PASSWORD = "correct-horse-battery"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "# Java's format\nbootstrap.servers = file:1\nkafka.client.id: from-file\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'   username="alice" \\\n   password="{PASSWORD}";\n'
    )
    return path


def test_a_file_in_the_format_of_javas_tools(file: Path) -> None:
    settings = Connection(config_file=file).settings()
    assert settings["bootstrap.servers"] == "file:1"
    assert settings["client.id"] == "from-file"
    assert PASSWORD in settings["sasl.jaas.config"]
    assert PASSWORD not in repr(settings)


def test_what_comes_later_wins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKAGROUP_KAFKA_CLIENT_ID", "from-environment")
    monkeypatch.setenv("KAFKAGROUP_KAFKA_BOOTSTRAP_SERVERS", "environment:1")
    assert Connection(config_file=file).settings()["client.id"] == "from-environment"
    assert Connection(config_file=file).settings()["bootstrap.servers"] == "environment:1"
    assert Connection("option:1", file, ["kafka.client.id=from-option"]).settings()["client.id"] == "from-option"
    assert Connection("option:1", file).settings()["bootstrap.servers"] == "option:1"


def test_the_environment() -> None:
    environment = {"KAFKAGROUP_KAFKA_SASL_PASSWORD": "x", "KAFKAGROUP_KAFKA_SSL_CA": "", "PATH": "/bin"}
    assert from_environment(environment) == {"sasl.password": "x"}


def test_whether_there_is_a_cluster(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Connection().names_cluster()
    assert not Connection(config=["client.id=x", "bootstrap.servers="]).names_cluster()
    assert Connection(config_file=file).names_cluster()
    assert Connection("here:1").names_cluster()
    assert Connection(config=["client.id=x", "kafka.bootstrap.servers=here:1"]).names_cluster()
    monkeypatch.setenv("KAFKAGROUP_KAFKA_BOOTSTRAP_SERVERS", "here:1")
    assert Connection().names_cluster()


def test_a_command_that_can_do_without_a_cluster_takes_it_from_config() -> None:
    config = ["-c", "bootstrap.servers=127.0.0.1:1", "-c", f"sasl.password={PASSWORD}"]
    done = CliRunner().invoke(app, ["doctor", *config, "--timeout", "0.1"])
    assert done.exit_code == 1
    assert "127.0.0.1:1" in done.stdout
    assert done.stderr.count("can be seen by other users") == 1
    done = CliRunner().invoke(app, ["import-checkpoint", "/no-checkpoint", "--group", "g", *config])
    assert done.exit_code == 1, "the checkpoint is missing, not the cluster"


def test_a_password_on_the_command_line_is_warned_of_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Connection(servers="here:1", config=[f"sasl.password={PASSWORD}"]).settings()
    told = capsys.readouterr().err
    assert "KAFKAGROUP_KAFKA_SASL_PASSWORD" in told
    assert "--command-config" in told
    assert PASSWORD not in told


def test_a_variable_of_a_provider_is_no_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORD}\n")
    provider = "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider"
    given = ["config.providers=file", provider, f"sasl.password=${{file:{secrets}:password}}"]
    assert Connection(servers="here:1", config=given).settings()["sasl.password"] == PASSWORD
    assert "other users" not in capsys.readouterr().err


@pytest.mark.parametrize("given", [["nothing"], ["a=b", "c"]])
def test_a_setting_is_a_name_and_a_value(given: list[str]) -> None:
    with pytest.raises(BadParameter, match="name=value"):
        Connection(servers="here:1", config=given).settings()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="No such file"):
        Connection(servers="here:1", config_file=tmp_path / "nothing").settings()


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups"],
        ["group", "g"],
        ["rewind", "g", "-t", "t", "--to", "latest"],
        ["topics"],
        ["peek", "t"],
        ["watch", "g"],
    ],
)
def test_a_missing_cluster_is_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert "--bootstrap-servers" in result.output
    assert "bootstrap.servers in --command-config" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["group"], "name the group"),
        (["group", "one", "--group", "two"], "another group"),
        (["rewind", "g"], "no target is given"),
        (["rewind", "g", "-t", "t", "--to", "latest", "--back", "2h"], "several targets"),
        (["rewind", "g", "-t", "t", "--to", "yesterday"], "ISO 8601"),
        (["rewind", "g", "-t", "t", "--back", "2 hours"], "2h30m"),
        (["rewind", "g", "--to", "latest"], "--all-topics"),
        (["rewind", "g", "--to", "latest", "-t", "t", "--all-topics"], "contradicts"),
        (["rewind", "g", "--to", "latest", "-t", "t:x"], "TOPIC:0,1"),
        (["rewind", "g", "--from-file", "/nothing/here"], "cannot be read"),
        (["create", "g"], "--topic"),
        (["offsets", "delete", "g"], "--topic"),
        (["groups", "--regex", "("], "not a valid regular expression"),
        (["watch"], "--regex"),
        (["peek", "t", "--from", "latest"], "@OFFSET"),
        (["peek", "t", "--from", f"@{2**63}"], "earliest"),
        (["peek", "t", "--from", "earliest", "--back", "1h"], "contradicts"),
        (["peek", "t", "-n", "0"], "-n"),
        (["plan", "range", "-t", "t=4"], "--slots"),
        (["plan", "nobody", "-t", "t=4", "--slots", "2"], "no assignor named"),
        (["plan", "range", "-t", "t=x", "--slots", "2"], "TOPIC=N"),
        (["plan", "range", "-t", "t=4", "--slots", "2", "--options", "x"], "not JSON"),
        (["plan", "range", "--slots", "2"], "topics that the members read"),
        (["groups", "-o", "yaml"], "yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_told_with_code_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, [*arguments, "-b", "127.0.0.1:1"])
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_the_registrys_settings_stand_beside_those_of_kafka(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    login = f"schema.registry.basic.auth.user.info=me:{PASSWORD}"
    path.write_text(f"bootstrap.servers=file:1\nschema.registry.url=http://there\n{login}\n")
    connection = Connection(config_file=path)
    assert list(connection.settings()) == ["bootstrap.servers"]
    found = connection.registry(None)
    assert found is not None
    assert dict(found) == {"url": "http://there", "basic.auth.user.info": f"me:{PASSWORD}"}
    assert connection.registry("http://there") == found
    # The login of one registry goes to no other.
    other = connection.registry("http://other")
    assert other is not None
    assert dict(other) == {"url": "http://other"}
    assert Connection("here:1").registry(None) is None
