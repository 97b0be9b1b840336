"""Runs Kafka's own command-line tools from the resolved jars, against any cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from kafkagroup.embedded.class_archive import archive_options
from kafkagroup.embedded.jars import KAFKA_VERSION, kafka_jars
from kafkagroup.embedded.java import find_java

#: JVM options for small or short processes: a quick start in exchange for less throughput later.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def class_path(version: str = KAFKA_VERSION) -> str:
    """Return the jars of Kafka's broker and tools as a Java class path.

    Args:
        version: The version of Kafka.

    Raises:
        JavaError: No usable Java was found.
        JarsError: The jars are not in the cache and could not be downloaded.
    """
    return os.pathsep.join(map(str, kafka_jars(version)))


def java_command(main_class: str, *args: str) -> list[str]:
    """Return the command that runs one of Kafka's tools, for example to start it in the background.

    Args:
        main_class: The tool's class, for example `org.apache.kafka.tools.consumer.ConsoleConsumer`.
        args: The tool's arguments. Other users of the machine can see them: put secrets into a file
            (`--command-config`).

    Raises:
        JavaError: No usable Java was found.
        JarsError: The jars are not in the cache and could not be downloaded.
    """
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return jvm_command("-Xmx256m", *QUICK_START, quiet, main_class=main_class, args=args)


def jvm_command(*options: str, main_class: str, args: Sequence[str], version: str = KAFKA_VERSION) -> list[str]:
    """Return the command that runs a class of Kafka's jars of this version with these JVM options."""
    java, jars = find_java(), class_path(version)
    return [str(java), *archive_options(java, jars), *options, "-cp", jars, main_class, *args]


def run_java(main_class: str, *args: str, stdin: str = "", timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools and wait until it has ended.

    Args:
        main_class: The tool's class, for example `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`.
        args: The tool's arguments.
        stdin: The tool's standard input.
        timeout: Seconds before the tool is killed.

    Returns:
        The finished process with its output as text. Check its exit code: a failed tool does not raise.

    Raises:
        subprocess.TimeoutExpired: The tool did not end in time.
    """
    return subprocess.run(
        java_command(main_class, *args), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )
