"""Find a Java for the broker, and refuse an old version. This module also has the errors of the embedded Kafka.

EmbeddedKafkaError
├── JavaError         Java was not found, or is too old
├── JarsError         Kafka's jars are not in the cache and could not be downloaded
└── BrokerError       a node did not start, stopped unexpectedly, or did not answer
"""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path


class EmbeddedKafkaError(RuntimeError):
    """Base of the embedded Kafka's errors; the message gives the reason and what to do."""


class JavaError(EmbeddedKafkaError):
    """No usable Java was found."""


class JarsError(EmbeddedKafkaError):
    """Jars could not be resolved."""


class BrokerError(EmbeddedKafkaError):
    """A node failed; the message contains the end of the node's log."""


#: Kafka 4's broker needs Java 17 (KIP-1013), and so does Spark 4.
MINIMUM_JAVA = 17

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_HOW_TO_POINT = "point JAVA_HOME to the folder that contains bin/java"


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else the first `java` on the PATH.

    Raises:
        JavaError: `java` was not found, does not run, or is older than `MINIMUM_JAVA`.
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
    """Return the feature release of a Java, for example 17 (8 for "1.8.0_392").

    Raises:
        JavaError: This Java does not run, or prints no version.
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
    """Return the output of `java -version`: the release, the vendor and the build.

    Raises:
        JavaError: This Java does not run, or prints no version.
    """
    try:
        result = subprocess.run([str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{executable} does not run ({error}); {_HOW_TO_POINT}.") from error
    # The text identifies an archive of classes, so leave out the options of JAVA_TOOL_OPTIONS, which the JVM prints.
    lines = (result.stderr + result.stdout).splitlines()
    output = "\n".join(line for line in lines if not line.startswith("Picked up "))
    if result.returncode != 0 or not _VERSION.search(output):
        # /usr/bin/java of macOS always exists, and only prints a message if no Java is installed.
        first_line = next(iter(output.strip().splitlines()), "it printed nothing")
        raise JavaError(f"{executable} is not a working Java ({first_line}); {_HOW_TO_POINT}.")
    return output
