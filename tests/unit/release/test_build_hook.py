"""A build from a clone depends on no native engine, because no index has it; a release does."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import kafkagroup
from release.targets import native_requirements

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("release", ["", "1"], ids=["a clone", "a release"])
def test_only_a_release_depends_on_the_native_engine(release: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        env={**os.environ, "KAFKAGROUP_RELEASE": release},
        check=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        required = message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    assert {"pyarrow>=15", "confluent-kafka<3,>=2.12"} < set(required)
    native = {one for one in required if one.startswith("kafkagroup-native")}
    assert len(native) == (len(native_requirements(kafkagroup.__version__)) if release else 0)
