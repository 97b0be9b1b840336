"""Run Kafka's command-line tools, and brokers with an archive of classes, from the resolved jars.

Loading classes is half of a broker's start. An archive of loaded and verified classes (Java's dynamic class data
sharing, JEP 350; 48 MB in the cache) shortens a start from 4 s to 2 s.
"""

import hashlib
import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from kafkagroup.embedded.jars import KAFKA_VERSION, Progress, cache_dir, file_lock, kafka_jars
from kafkagroup.embedded.java import EmbeddedKafkaError, find_java, java_version_text

log = logging.getLogger(__name__)


def archive_path(java: Path, class_path: str) -> Path:
    """Return the path of the archive for this Java and these jars, even if the archive does not exist."""
    identity = f"{java.resolve()}\n{java_version_text(java)}\n{class_path}"
    return cache_dir() / "classes" / f"kafka-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def archive_options(java: Path, class_path: str) -> tuple[str, ...]:
    """Return the JVM options that use the archive; empty if there is no archive."""
    path = archive_path(java, class_path)
    if not path.is_file() or path.stat().st_size == 0:
        return ()
    # A JVM that cannot use the archive runs without it. The last option hides the JVM's warning.
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds*=off")


def prepare_archive(java: Path, class_path: str, train: Callable[[Path], None], report: Progress) -> None:
    """Create the archive if it does not exist.

    If this Java cannot create an archive, create an empty file, so that later starts do not try again.

    Args:
        java: The Java that will use the archive.
        class_path: The class path for which to create the archive.
        train: Runs a broker with `-XX:ArchiveClassesAtExit` and the given path.
        report: Called with one line if the caller has to wait.
    """
    path = archive_path(java, class_path)
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path, train, report)
    except OSError as error:
        # Without the archive, brokers only start more slowly.
        log.debug("class_archive unavailable reason=%s", error)


def _make(path: Path, train: Callable[[Path], None], report: Progress) -> None:
    waiting = partial(report, "Waiting for another process, which prepares the broker's classes")
    with file_lock(path.with_suffix(".lock"), waiting):
        if path.exists():
            return
        report("Preparing the broker's classes for quick starts (once, about 10 s)")
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        try:
            train(unfinished)
        except EmbeddedKafkaError as error:
            log.debug("class_archive unavailable reason=%s", error)
        if unfinished.is_file():
            unfinished.rename(path)
        else:
            path.touch()


#: JVM options for small or short processes: a quick start in exchange for less throughput later.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def class_path(version: str = KAFKA_VERSION) -> str:
    """Return the jars of Kafka's broker and tools as a Java class path.

    Raises:
        JavaError: No usable Java was found.
        JarsError: The jars are not in the cache and could not be downloaded.
    """
    return os.pathsep.join(map(str, kafka_jars(version)))


def java_command(main_class: str, *args: str, version: str = KAFKA_VERSION) -> list[str]:
    """Return the command that runs one of Kafka's tools, for example to start it in the background.

    Args:
        main_class: The tool's class, for example `org.apache.kafka.tools.consumer.ConsoleConsumer`.
        args: The tool's arguments. Put secrets into a file (`--command-config`), because other users see arguments.
        version: The version of the tool's Kafka.

    Raises:
        JavaError: No usable Java was found.
        JarsError: The jars are not in the cache and could not be downloaded.
    """
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return jvm_command("-Xmx256m", *QUICK_START, quiet, main_class=main_class, args=args, version=version)


def jvm_command(*options: str, main_class: str, args: Sequence[str], version: str = KAFKA_VERSION) -> list[str]:
    """Return the command that runs a class of this version's jars with these JVM options."""
    java, jars = find_java(), class_path(version)
    return [str(java), *archive_options(java, jars), *options, "-cp", jars, main_class, *args]


def run_java(
    main_class: str, *args: str, stdin: str = "", timeout: float = 120.0, version: str = KAFKA_VERSION
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools and wait until it has ended.

    Args:
        main_class: The tool's class, for example `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`.
        args: The tool's arguments.
        stdin: The tool's standard input.
        timeout: Seconds before the tool is killed.
        version: The version of the tool's Kafka.

    Returns:
        The finished process with its output as text. Check the exit code, because a failed tool raises no error.

    Raises:
        subprocess.TimeoutExpired: The tool did not end in time.
    """
    command = java_command(main_class, *args, version=version)
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
