"""Finds the Java that runs the broker."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from kafka_source.embedded.errors import JavaError

#: Kafka 4's broker needs Java 17 (KIP-1013), and so does Spark 4.
MINIMUM_JAVA = 17

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_HOW_TO_POINT = "point JAVA_HOME to its folder (the one that holds bin/java)"


def find_java() -> Path:
    """The `java` of JAVA_HOME, else the first on the PATH, checked to be new enough.

    Raises:
        JavaError: none was found, it does not run, or it is older than `MINIMUM_JAVA`.
    """
    executable = _locate()
    version = java_version(executable)
    if version < MINIMUM_JAVA:
        raise JavaError(
            f"The embedded Kafka needs Java {MINIMUM_JAVA} or newer, but {executable} is Java {version}. "
            f"Install Java {MINIMUM_JAVA} and {_HOW_TO_POINT}."
        )
    return executable


def java_version(executable: Path) -> int:
    """The feature release of a Java, for instance 17 (8 for "1.8.0_392").

    Raises:
        JavaError: it does not run, or prints no version.
    """
    match = _VERSION.search(java_version_text(executable))
    if match is None:
        raise JavaError(f"{executable} does not print its version; {_HOW_TO_POINT}.")
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major


def _locate() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not executable.is_file():
            raise JavaError(f"JAVA_HOME is {home}, but there is no {executable}: {_HOW_TO_POINT}.")
        return executable
    found = shutil.which("java")
    if found is None:
        raise JavaError(
            "No Java was found: JAVA_HOME is not set and there is no java on the PATH. "
            f"Install Java {MINIMUM_JAVA} and {_HOW_TO_POINT}."
        )
    return Path(found)


@functools.cache
def java_version_text(executable: Path) -> str:
    """What `java -version` prints: the release, the vendor and the build.

    Raises:
        JavaError: it does not run, or prints no version.
    """
    try:
        result = subprocess.run([str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{executable} does not run ({error}); {_HOW_TO_POINT}.") from error
    # What JAVA_TOOL_OPTIONS holds is announced first, and is no part of what Java is.
    lines = (result.stderr + result.stdout).splitlines()
    output = "\n".join(line for line in lines if not line.startswith("Picked up "))
    if result.returncode != 0 or not _VERSION.search(output):
        # macOS has a /usr/bin/java that only says that there is no Java.
        first_line = next(iter(output.strip().splitlines()), "it printed nothing")
        raise JavaError(f"{executable} is no working Java ({first_line}); {_HOW_TO_POINT}.")
    return output
