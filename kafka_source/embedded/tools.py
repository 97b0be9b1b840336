"""Kafka's own command-line tools, run from the resolved jars. No cluster of ours is needed for them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from kafka_source.embedded.class_archive import archive_options
from kafka_source.embedded.jars import kafka_jars
from kafka_source.embedded.java import find_java

#: JVM options of a short or small process: quick to start rather than fast for hours.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def class_path() -> str:
    """The jars of Kafka's broker and tools as a Java class path.

    Raises:
        JavaError: no usable Java.
        JarsError: they are not in the cache and could not be downloaded.
    """
    return os.pathsep.join(map(str, kafka_jars()))


def java_command(main_class: str, *args: str) -> list[str]:
    """The command that runs one of Kafka's tools, for one that is to run in the background.

    Args:
        main_class: for instance `org.apache.kafka.tools.consumer.ConsoleConsumer`.
        args: as on its command line. Other users of the machine can see them: secrets belong into a file
            (`--command-config`).
    """
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return jvm_command("-Xmx256m", *QUICK_START, quiet, main_class=main_class, args=args)


def jvm_command(*options: str, main_class: str, args: Sequence[str]) -> list[str]:
    """The command that runs a class of Kafka's jars with these JVM options."""
    java, jars = find_java(), class_path()
    return [str(java), *archive_options(java, jars), *options, "-cp", jars, main_class, *args]


def run_java(main_class: str, *args: str, stdin: str = "", timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's tools to its end.

    Args:
        main_class: for instance `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`.
        args: as on its command line.
        stdin: its input.
        timeout: seconds until it is ended and `subprocess.TimeoutExpired` raised.

    Returns:
        The finished process with its output as text; its exit code is not judged.
    """
    return subprocess.run(
        java_command(main_class, *args), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )
