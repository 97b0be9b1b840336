"""CI installs the versions of `.ci/requirements.txt`; it must have all that `pyproject.toml` asks for."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.requirements import requirements

LOCK = Path(__file__).parents[3] / ".ci" / "requirements.txt"


def test_the_lock_has_each_dependency_of_development_with_hashes_and_no_address_of_an_index() -> None:
    text = LOCK.read_text()
    pinned = [Requirement(line) for line in re.findall(r"^([a-z].*?) *\\$", text, re.MULTILINE)]
    wanted = map(Requirement, requirements(metadata.requires("kafkagroup") or (), ["dev"], "3.11"))
    for one in wanted:
        versions = [
            pin
            for pin in pinned
            if canonicalize_name(pin.name) == canonicalize_name(one.name)
            and (pin.marker is None or pin.marker.evaluate({"python_full_version": "3.11.7", "python_version": "3.11"}))
        ]
        assert len(versions) == 1, f"{one} is not in {LOCK.name}: write it anew, by the command in its first lines"
        (only,) = versions[0].specifier
        assert one.specifier.contains(only.version), f"{LOCK.name} has {versions[0]}, and pyproject.toml wants {one}"
    assert len(pinned) == text.count("==") - text.count("== ") >= 100
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) >= len(pinned)
    assert "://" not in text
