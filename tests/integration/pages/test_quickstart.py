"""The quickstart word for word: as an IDE, cron or systemd starts it, under spark-submit, and in a notebook."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from kafkagroup.embedded import EmbeddedKafka
from notebooks import execute

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent


def run(*command: object, folder: Path, variables: dict[str, str], path: str) -> str:
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME") or (str(Path(java).resolve().parents[1]) if java else "")
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={"PATH": path, "JAVA_HOME": home, "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def not_activated(blocks: list[str], folder: Path, variables: dict[str, str]) -> str:
    return run(sys.executable, "-c", "".join(blocks), folder=folder, variables=variables, path="/usr/bin:/bin")


def by_spark_submit(blocks: list[str], folder: Path, variables: dict[str, str]) -> str:
    program = folder / "quickstart.py"
    program.write_text("".join(blocks))
    path = f"{BIN}:/usr/bin:/bin"
    return run(BIN / "spark-submit", program, folder=folder, variables=variables, path=path)


def in_a_notebook(blocks: list[str], folder: Path, variables: dict[str, str]) -> str:
    cells = [nbformat.v4.new_code_cell(block) for block in blocks]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        execute.execute(notebook, folder)
    return execute.printed(notebook)


@pytest.mark.long
@pytest.mark.parametrize("way", [not_activated, by_spark_submit, in_a_notebook])
def test_the_quickstart_runs(way: Callable[[list[str], Path, dict[str, str]], str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (command,) = re.findall(r"^kafkagroup group .*", page, re.MULTILINE)
    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", 4)
        variables = {"SERVERS": kafka.bootstrap_servers}
        said = way(blocks, tmp_path, variables)
        assert re.search(r"^1000$", said, re.MULTILINE), said
        shown = run("sh", "-c", command, folder=tmp_path, variables=variables, path=f"{BIN}:/usr/bin:/bin")
    assert re.search(r"^orders .* 0 ", shown, re.MULTILINE), shown
