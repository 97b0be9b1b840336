"""Programs of Python in a process of their own, and packages for them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_python(
    *arguments: object, seconds: float = 60, environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's folder to its end; environment variables are added to those of this process."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT), **environment},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def installed(folder: Path, *packages: str) -> Path:
    """A folder with these packages, for the Python path."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run([*command, *packages], check=True, timeout=600)
    return folder
