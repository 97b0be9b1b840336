"""`kafkagroup groups`, `group`, `rewind` and `delete` on a real broker."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kafka_source.admin import Groups
from kafka_source.cli.app import app
from kafka_source.client_config import Settings
from tests.groups import everything
from tests.support import produce


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr("kafka_source.cli.common.console.width", 240, raising=False)


@pytest.fixture
def command(kafka):
    """Runs a command, and gives its exit code and output."""

    def run(*arguments):
        result = CliRunner().invoke(app, [*arguments, "-b", kafka.bootstrap_servers])
        return result.exit_code, result.output

    return run


def test_a_group_is_listed_shown_rewound_and_deleted(kafka, members, topic, group, command):
    orders = topic("orders", partitions=2)
    produce(kafka.bootstrap_servers, orders, 20)
    membership = members.make(orders, slots=2)
    joined = membership.join(30)
    membership.commit({slot.credentials.slot: dict.fromkeys(slot.partitions, 3) for slot in joined.slots})
    assert any(group in line and "Stable" in line for line in command("groups")[1].splitlines())
    code, said = command("group", group)
    assert code == 0
    assert "Stable" in said
    assert kafka.bootstrap_servers in said
    assert all(f"{group}-app-{slot}" in said for slot in (0, 1))
    for refused in (("rewind", group, "--to", "earliest", "-t", orders, "--yes"), ("delete", group, "--yes")):
        assert command(*refused)[0] == 1, "the group has members"
    membership.leave()
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    command("rewind", group, "--to", "earliest", "-t", orders)
    assert set(groups.committed(group).values()) == {3}
    command("rewind", group, "--to", "earliest", "-t", orders, "--yes")
    assert groups.committed(group) == dict.fromkeys(everything(orders, 2), 0)
    command("delete", group)
    assert groups.states()[group] == "Empty"
    assert command("delete", group, "--yes")[0] == 0
    assert group not in groups.states()
