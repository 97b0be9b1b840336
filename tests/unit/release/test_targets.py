"""pip asks for the native engine exactly where a wheel of it is built, and every wheel is built by a workflow."""

import re
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import kafkagroup
from release.targets import TARGETS, native_requirements

ROOT = Path(__file__).parents[3]
SYSTEMS = ["linux", "darwin", "win32", "freebsd14", "cygwin", "emscripten"]
MACHINES = ["x86_64", "aarch64", "arm64", "AMD64", "ARM64", "i686", "x86", "armv7l", "ppc64le", "s390x", "riscv64", ""]


def requirements() -> list[Requirement]:
    """What a release of kafkagroup requires of the native engine."""
    return [Requirement(line) for line in native_requirements(kafkagroup.__version__)]


@pytest.mark.parametrize(("system", "machine"), list(product(SYSTEMS, MACHINES)))
def test_pip_asks_for_it_exactly_where_it_has_a_wheel(system: str, machine: str) -> None:
    environment = {"sys_platform": system, "platform_machine": machine, "implementation_name": "cpython"}
    asked = [one for one in requirements() if one.marker is not None and one.marker.evaluate(environment)]
    assert len(asked) == any((system, machine) == (target.system, target.machine) for target in TARGETS)
    assert {str(one.specifier) for one in asked} <= {f"=={kafkagroup.__version__}"}


def test_other_interpreters_get_none() -> None:
    for target in TARGETS:
        environment = {"sys_platform": target.system, "platform_machine": target.machine, "implementation_name": "pypy"}
        assert not any(one.marker is None or one.marker.evaluate(environment) for one in requirements())


def test_a_workflow_builds_each_wheel() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    (linux,) = re.findall(r"\./run wheels pure ([\w\s-]+)\n      - ", workflow)
    assert set(linux.split()) == {target.triple for target in TARGETS if target.compatibility}
    named = set(re.findall(r"target: ([\w-]+)\}", workflow))
    assert named == {target.triple for target in TARGETS if target.compatibility is None}
    assert all(target.system == "linux" for target in TARGETS if target.compatibility)
