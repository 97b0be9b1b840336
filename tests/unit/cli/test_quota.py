"""`kafkagroup quota`: what changes something shows the change, and makes it with --yes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_source.cluster.client_quotas import CLIENT, USER, ClientQuota
from kafkagroup.cli.app import app
from kafkagroup.cli.rows import quota_changes


@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_a_quota_of_the_brokers_needs_the_client_that_it_is_for(yes: list[str]) -> None:
    done = CliRunner().invoke(app, ["quota", "brokers", "-b", "127.0.0.1:1", "--consumer-bytes", "100", *yes])
    assert done.exit_code == 2
    assert "--client-id" in done.stderr


def test_the_change_of_a_quota_has_the_value_before_and_the_value_after() -> None:
    quotas = [
        ClientQuota({CLIENT: "etl"}, {"consumer_byte_rate": 100.0, "producer_byte_rate": 5.0}),
        ClientQuota({CLIENT: "etl", USER: "alice"}, {"consumer_byte_rate": 7.0}),
        ClientQuota({CLIENT: None}, {"request_percentage": 9.0}),
    ]
    wanted = {"consumer_byte_rate": 200.0, "producer_byte_rate": None, "request_percentage": 50.0}
    rows = quota_changes(quotas, "etl", wanted).rows.records()
    assert {row["client_id"] for row in rows} == {"etl"}
    assert [(row["quota"], row["before"], row["value"]) for row in rows] == [
        ("consumer_byte_rate", 100.0, 200.0),
        ("producer_byte_rate", 5.0, None),
        ("request_percentage", None, 50.0),
    ]


def test_the_quota_of_a_query_is_written_with_yes_only(tmp_path: Path) -> None:
    file = tmp_path / "quota.json"
    arguments = ["quota", "set", str(file), "--bytes-per-second", "100"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    assert json.loads(shown.stdout) == {"bytes_per_second": 100.0}
    assert "add --yes" in shown.stderr
    assert not file.exists()
    done = CliRunner().invoke(app, [*arguments, "--yes"])
    assert (done.exit_code, done.stderr) == (0, "Done.\n")
    assert json.loads(file.read_text()) == json.loads(done.stdout) == {"bytes_per_second": 100.0}
