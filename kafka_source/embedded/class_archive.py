"""The broker's classes, loaded and checked once and kept (dynamic class data sharing, JEP 350).

Half of a broker's start is Java reading classes: with the archive (48 MB in the cache) it takes 2 s instead of 4.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kafka_source.embedded.errors import EmbeddedKafkaError
from kafka_source.embedded.file_lock import file_lock
from kafka_source.embedded.jars import Progress, cache_dir
from kafka_source.embedded.java import java_version_text

log = logging.getLogger(__name__)


def archive_path(java: Path, class_path: str) -> Path:
    """Where the archive for this Java and these jars is or will be."""
    identity = f"{java.resolve()}\n{java_version_text(java)}\n{class_path}"
    return cache_dir() / "classes" / f"kafka-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def archive_options(java: Path, class_path: str) -> tuple[str, ...]:
    """JVM options that use the archive; none if there is none."""
    path = archive_path(java, class_path)
    if not path.is_file() or path.stat().st_size == 0:
        return ()
    # A JVM that cannot use it goes on without; it must not say so between a tool's lines.
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds*=off")


def prepare_archive(java: Path, class_path: str, train: Callable[[Path], None], report: Progress) -> None:
    """Makes the archive if there is none. A Java that cannot make one is noted, and not asked again.

    Args:
        java: that will use it.
        class_path: that it will use.
        train: runs a broker with `-XX:ArchiveClassesAtExit` naming the given path.
        report: is told when this takes a while.
    """
    path = archive_path(java, class_path)
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path, train, report)
    except OSError as error:
        # A cache that can only be read serves as well, just slower.
        log.debug("No class archive: %s", error)


def _make(path: Path, train: Callable[[Path], None], report: Progress) -> None:
    waiting = partial(report, "Waiting for another process that prepares the broker's classes")
    with file_lock(path.with_suffix(".lock"), waiting):
        if path.exists():
            return
        report("Preparing the broker's classes for quick starts (once, about 10 s)")
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        try:
            train(unfinished)
        except EmbeddedKafkaError as error:
            log.debug("No class archive: %s", error)
        if unfinished.is_file():
            unfinished.rename(path)
        else:
            path.touch()
