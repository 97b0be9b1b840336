"""Our table of settings and the jar's: the same names, clients, types and lower bounds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_source.client_config.java_settings import JAVA, SECTIONS, Handling, Role, Type
from kafkagroup.embedded import run_java

ORACLE = Path(__file__).with_name("SettingsOracle.java")
NUMBERS = (Type.INT, Type.LONG, Type.SHORT)


@dataclass
class Found:
    """A setting of the jar."""

    roles: Role
    type: Type
    validator: str


@pytest.fixture(scope="module")
def java() -> Mapping[str, Found]:
    done = run_java(str(ORACLE))
    assert done.returncode == 0, done.stderr
    found: dict[str, Found] = {}
    for line in done.stdout.splitlines():
        client, name, kind, validator = line.split("\t", 3)
        known = found.setdefault(name, Found(Role(0), Type[kind], validator))
        known.roles |= Role[client]
    assert len(found) > 100
    return found


def test_no_setting_is_missing_and_none_is_too_much(java):
    assert {"missing": sorted(java.keys() - JAVA), "too much": sorted(JAVA.keys() - java)} == {
        "missing": [],
        "too much": [],
    }


def test_each_belongs_to_the_clients_that_have_it(java):
    wrong = {name: (one.roles, java[name].roles) for name, one in JAVA.items() if one.roles != java[name].roles}
    assert wrong == {}


def test_types_and_lower_bounds_are_those_of_java(java):
    wrong = {}
    for name, one in JAVA.items():
        found = re.match(r"\[(-?\d+),\.\.\.(,\d+)?\]$", java[name].validator)
        bound = int(found[1]) if found and one.type in NUMBERS else None
        if (one.type, one.minimum) != (java[name].type, bound):
            wrong[name] = ((one.type.name, one.minimum), (java[name].type.name, bound))
    assert wrong == {}


def test_each_setting_is_declared_once_and_says_what_a_user_needs():
    declared = [one for section in SECTIONS.values() for one in section]
    assert len(declared) == len(JAVA)
    for one in declared:
        assert not one.does.endswith(".")
        if Handling.UNUSED in (one.native, one.librdkafka) or one.refused_for:
            assert one.does
