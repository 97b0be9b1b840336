"""The quickstart word for word, as an IDE, cron or systemd starts it: the environment is not activated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkagroup.embedded.jars import cache_dir

ROOT = Path(__file__).parents[3]


@pytest.mark.long
def test_the_quickstart_runs_where_nothing_is_activated(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text()
    python = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    (command,) = re.findall(r"^kafkagroup .*", page, re.MULTILINE)
    # What the page says to put in their place; and what is typed in a terminal while the program runs.
    program = python.replace('"broker:9092"', "kafka.bootstrap_servers").replace("/data/", f"{tmp_path}/")
    terminal = repr(command.replace("kafkagroup", str(Path(sys.executable).with_name("kafkagroup"))))
    program += f"import subprocess\nshell = {terminal}.replace('broker:9092', kafka.bootstrap_servers)\n"
    program += "print(subprocess.run(shell.split(), capture_output=True, text=True, check=True).stdout)\n"
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME") or (str(Path(java).resolve().parents[1]) if java else "")
    # The brokers' jars are not downloaded again.
    environment = {"PATH": "/usr/bin:/bin", "JAVA_HOME": home, "KAFKAGROUP_CACHE": str(cache_dir())}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "\n1000\n" in done.stdout
    assert re.search(r"^orders .* 0 ", done.stdout.partition("\n1000\n")[2], re.MULTILINE), done.stdout
