"""pip asks for the native engine exactly where a wheel of it is built, and every wheel is built by a workflow."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import kafkagroup
from release.targets import TARGETS

ROOT = Path(__file__).parents[3]
SYSTEMS = ["linux", "darwin", "win32", "freebsd14", "cygwin", "emscripten"]
MACHINES = ["x86_64", "aarch64", "arm64", "AMD64", "ARM64", "i686", "x86", "armv7l", "ppc64le", "s390x", "riscv64", ""]


def native_requirements() -> list[Requirement]:
    """The lines of pyproject.toml about the native engine."""
    project = (ROOT / "pyproject.toml").read_text()
    return [Requirement(line) for line in re.findall(r'^    "(kafkagroup-native==.*)",$', project, re.MULTILINE)]


@pytest.mark.parametrize(("system", "machine"), list(product(SYSTEMS, MACHINES)))
def test_pip_asks_for_it_exactly_where_it_has_a_wheel(system: str, machine: str) -> None:
    environment = {"sys_platform": system, "platform_machine": machine, "implementation_name": "cpython"}
    asked = [one for one in native_requirements() if one.marker is not None and one.marker.evaluate(environment)]
    assert len(asked) == any((system, machine) == (target.system, target.machine) for target in TARGETS)
    assert {str(one.specifier) for one in asked} <= {f"=={kafkagroup.__version__}"}


def test_other_interpreters_get_none() -> None:
    for target in TARGETS:
        environment = {"sys_platform": target.system, "platform_machine": target.machine, "implementation_name": "pypy"}
        assert not any(one.marker is None or one.marker.evaluate(environment) for one in native_requirements())


def test_a_workflow_builds_each_wheel() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "./run wheels" in workflow
    named = set(re.findall(r"target: ([\w-]+)\}", workflow))
    assert named == {target.triple for target in TARGETS if target.compatibility is None}
    assert all(target.system == "linux" for target in TARGETS if target.compatibility)
