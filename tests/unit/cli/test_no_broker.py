"""Every command says in one line, with exit code 1, that no broker answers."""

from pathlib import Path

import pytest

from kafka_source.kafka_client import advertised
from tests.support.commands import Command, connecting, one_of_each

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a broker that is not there."""
    monkeypatch.setattr(advertised, "ERROR_SECONDS", 0.2)


def test_all_commands_that_connect_are_tried(tmp_path: Path) -> None:
    assert set(one_of_each("billing", "orders", tmp_path)) == connecting()


@pytest.mark.parametrize("name", sorted(connecting()))
def test_a_broker_that_is_not_there_is_one_line(name: str, tmp_path: Path) -> None:
    arguments = one_of_each("billing", "orders", tmp_path)[name]
    assert NOWHERE in Command(NOWHERE).refused(*name.split(), *arguments)


def test_a_probe_need_not_fail_because_of_brokers() -> None:
    said = Command(NOWHERE).says("healthcheck", "billing", "--unreachable-ok")
    assert said.startswith("The brokers do not answer, so the progress of group billing is unknown: ")
