"""Bad input to commands: an unknown group, no rights, a wrong password: one line and an exit code each."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from kafkagroup.cli.app import app
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.commands import Command, connecting, one_of_each
from tests.support.records import Topic

PASSWORD = "correct-horse-battery"
# Brokers hide what a user may not see, and answer with nothing; `brokers` needs no right.
SHOWS_WHAT_IT_MAY = {"groups"}
COMMANDS = sorted(connecting())


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    """Alice may read the group and the topic; Bob may do nothing."""
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", {"alice": PASSWORD, "bob": PASSWORD}, acls=True)) as kafka:
        kafka.create_topic("orders", 1)
        kafka.allow("alice", "READ", "DESCRIBE", resource="group", name="billing")
        kafka.allow("alice", "READ", "DESCRIBE", resource="topic", name="orders")
        yield kafka


@pytest.fixture(scope="module")
def billing(secured: EmbeddedKafka) -> None:
    """A group with a committed offset."""
    file = secured.java_client_file("alice")
    connection = ("--command-config", str(file), "-b", secured.bootstrap_servers)
    made = CliRunner().invoke(app, ["create", "billing", "-t", "orders", "--to", "earliest", "--yes", *connection])
    assert made.exit_code == 0, made.output


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the login of the commands that follow."""

    def set_login(user: str, password: str = PASSWORD) -> None:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        monkeypatch.setenv("KAFKAGROUP_KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
        monkeypatch.setenv("KAFKAGROUP_KAFKA_SASL_MECHANISM", "PLAIN")
        monkeypatch.setenv(
            "KAFKAGROUP_KAFKA_SASL_JAAS_CONFIG", f'{module} required username="{user}" password="{password}";'
        )

    return set_login


@pytest.mark.usefixtures("billing")
def test_a_file_of_kafkas_own_tools_is_enough(secured: EmbeddedKafka) -> None:
    file = secured.java_client_file("alice")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--command-config", str(file), "-b", secured.bootstrap_servers])

    shown = run("group", "billing", "-o", "json")
    assert json.loads(shown.stdout)["group"][0]["lag"] == 0
    assert "billing" in run("groups").stdout


@pytest.mark.usefixtures("billing")
def test_a_context_is_enough(secured: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "contexts.ini").write_text(
        f"[secured]\nbootstrap.servers = {secured.bootstrap_servers}\nsecurity.protocol = SASL_PLAINTEXT\n"
        "sasl.mechanism = PLAIN\nsasl.username = alice\nsasl.password = ${env:ALICES_PASSWORD}\n"
    )
    monkeypatch.setenv("KAFKAGROUP_CONTEXTS", str(tmp_path / "contexts.ini"))
    monkeypatch.setenv("ALICES_PASSWORD", PASSWORD)
    shown = CliRunner().invoke(app, ["group", "billing", "--context", "secured", "-o", "json"])
    assert json.loads(shown.stdout)["group"][0]["group"] == "billing"


@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "brokers"])
def test_a_user_without_rights_is_one_line(
    secured: EmbeddedKafka, login: Callable[..., None], name: str, tmp_path: Path
) -> None:
    login("bob")
    arguments = one_of_each("billing", "orders", tmp_path)[name]
    command = Command(secured.bootstrap_servers)
    if name in SHOWS_WHAT_IT_MAY:
        assert command.json(name) == []
        return
    line = command.refused(*name.split(), *arguments)
    assert "AUTHORIZATION_FAILED" in line or "authoriz" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rewind", "other", "--to", "latest", "-t", "orders"), "GROUP_AUTHORIZATION_FAILED"),
        (("quota", "brokers", "--client-id", "etl", "--consumer-bytes", "1000", "--yes"), "CLUSTER_AUTHORIZATION"),
    ],
    ids=["another group", "a quota"],
)
@pytest.mark.usefixtures("billing")
def test_a_right_that_is_missing_is_one_line(
    secured: EmbeddedKafka, login: Callable[..., None], arguments: tuple[str, ...], says: str
) -> None:
    login("alice")
    assert says in Command(secured.bootstrap_servers).refused(*arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_password_is_one_line(
    secured: EmbeddedKafka, login: Callable[..., None], name: str, tmp_path: Path
) -> None:
    login("alice", "not-her-password")
    line = Command(secured.bootstrap_servers).refused(*name.split(), *one_of_each("billing", "orders", tmp_path)[name])
    assert "refuses the credentials" in line
    assert "not-her-password" not in line


def test_an_unknown_group_is_one_line(kafka: EmbeddedKafka, group: str, topic: Topic) -> None:
    orders, unknown = topic("orders", partitions=2, records=20), f"{group}-not"
    Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).create(group, {TopicPartition(orders, 0): 3})
    command = Command(kafka.bootstrap_servers)
    for arguments in (
        ("group", unknown),
        ("group", unknown, "--members"),
        ("group", unknown, "--rate", "0.1"),
        ("watch", unknown, "-n", "1"),
        ("rewind", unknown, "--to", "latest", "-t", orders),
        ("rewind", group, "--to-group", unknown, "-t", orders),
        ("delete", unknown, "--yes"),
        ("offsets", "delete", unknown, "-t", orders),
        ("offsets", "export", unknown),
        ("offsets", "clone", unknown, "somebody"),
        ("plan", "range", "--group", unknown),
    ):
        assert unknown in command.refused(*arguments), arguments


def test_an_unknown_topic_is_one_line(kafka: EmbeddedKafka, group: str) -> None:
    command, unknown = Command(kafka.bootstrap_servers), "no-such-topic"
    for arguments in (
        ("topics", "-t", unknown),
        ("peek", unknown),
        ("export", unknown, "--to", "-", "--format", "csv"),
        ("create", group, "-t", unknown),
        ("plan", "range", "-t", unknown, "--slots", "2"),
        ("transactions", "repair", "-p", "etl", "-t", unknown),
    ):
        assert unknown in command.refused(*arguments), arguments
