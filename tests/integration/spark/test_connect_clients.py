"""The guides over a Spark Connect server, from clients of other versions of Python and of Spark, which have no JVM."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from release.matrix import find_python, pip
from release.requirements import requirements
from testbed.spark_cluster import connect_server
from tests.support.native import kernel

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
# The newest that Python 3.10 can have.
CLIENT = "pyspark-client==4.2.0"
# They make a session of their own, register the format, or are about functions.
LEFT_OUT = ("quickstart", "tuning", "map-in-arrow", "replace-a-query-with-state")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose workers run this Python."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with connect_server(tmp_path_factory.mktemp("server"), environment) as address:
        yield address


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("python", ["3.10", "3.13"])
def test_the_guides_over_spark_connect_with_another_python(python: str, server: str, tmp_path: Path) -> None:
    if (found := find_python(python)) is None:
        pytest.skip(f"there is no Python {python}")
    subprocess.run([found, "-m", "venv", str(tmp_path / "venv")], check=True)
    client = tmp_path / "venv" / "bin" / "python"
    needed = requirements(metadata.requires("kafkagroup") or (), ["test"], python)
    lines = [line for line in needed if re.split(r"[^\w-]", line)[0] != "pyspark"]
    pip(client, "install", *lines, CLIENT)
    pip(client, "install", "--no-deps", str(ROOT))
    # One wheel is for all versions of Python.
    packages = tmp_path / "venv" / "lib" / f"python{python}" / "site-packages"
    shutil.copytree(Path(kernel().__file__).parent, packages / "kafkagroup_native")
    tests = ["tests/integration/pages/test_pages_run.py", "-k", f"the_code and not {' and not '.join(LEFT_OUT)}"]
    done = subprocess.run(
        [str(client), "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-W", "default", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout[-20_000:], flush=True)
    assert done.returncode == 0, done.stdout[-5000:]
