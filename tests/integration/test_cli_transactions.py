"""`kafkagroup transactions`: what exactly-once sinks have left open, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from kafka_source.cli import app
from kafka_source.embedded import EmbeddedKafka
from tests.integration.test_exactly_once import (
    SIGKILL,
    TASKS,
    in_a_process,
    open_transactions,
    run_batch,
    task,
    visible,
    whole,
)

Topic = Callable[..., str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_source.cli.common.console.width", 240, raising=False)


def command(kafka: EmbeddedKafka, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["transactions", *arguments, "-b", kafka.bootstrap_servers])
    assert result.exit_code == 0, result.output
    return result.output


def test_nothing_is_open(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("cli-none")
    run_batch(kafka.bootstrap_servers, name, "q", 0)
    for what in ("list", "commit", "abort"):
        assert command(kafka, what, "--prefix", name) == f"Nothing is open of {name}.\n"


def test_what_was_decided_is_committed_and_not_aborted(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("cli-decided")
    assert in_a_process(kafka.bootstrap_servers, name, "q", 3, "sink-decided") == SIGKILL
    shown = command(kafka, "list", "--prefix", name)
    assert "decided, to be committed: batch 3 of q" in shown
    assert all(f"{name}-{n}-0" in shown for n in range(TASKS))
    assert command(kafka, "abort", "--prefix", name, "--yes").count(f"{name}-") == TASKS
    assert "add --yes" in command(kafka, "commit", "--prefix", name)
    assert visible(kafka, name) == []
    assert f"Committed {TASKS} transactions of batch 3." in command(kafka, "commit", "--prefix", name, "--yes")
    assert visible(kafka, name, 60) == whole(3)
    assert command(kafka, "list", "--prefix", name) == f"Nothing is open of {name}.\n"


def test_what_nobody_decided_on_is_aborted_and_not_committed(kafka: EmbeddedKafka, topic: Topic) -> None:
    name, another = topic("cli-undecided"), topic("cli-another")
    other_sink = f"{name}-7"
    task(kafka.bootstrap_servers, name, "q", 0, 0)
    task(kafka.bootstrap_servers, another, "q", 0, 0)
    task(kafka.bootstrap_servers, name, "q", 0, 0, prefix=other_sink)
    assert f"{name}-0" in command(kafka, "list", "--prefix", name)
    assert command(kafka, "commit", "--prefix", name, "--yes") == f"Nothing is open of {name}.\n"
    assert "add --yes" in command(kafka, "abort", "--prefix", name)
    assert len(open_transactions(kafka, name)) == 1
    assert "Aborted 1 transactions." in command(kafka, "abort", "--prefix", name, "--yes")
    assert open_transactions(kafka, name) == []
    assert len(open_transactions(kafka, another)) == 1
    assert len(open_transactions(kafka, other_sink)) == 1
    assert visible(kafka, name) == []


def test_brokers_that_are_not_there_are_told() -> None:
    arguments = ["transactions", "list", "--prefix", "p", "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
