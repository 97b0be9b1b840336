"""Choose the version of Kafka, and get jars from the cache folder or (with pyspark's Ivy) from a Maven repository."""

import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import pwd
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, cast
from xml.sax.saxutils import quoteattr

from kafkagroup.embedded.java import JarsError, find_java


@contextlib.contextmanager
def file_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an advisory lock on a file, which is created if it does not exist.

    The operating system releases the lock when the process ends, even by SIGKILL.

    Args:
        path: The lock file.
        on_wait: Called once if another process holds the lock.
    """
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


log = logging.getLogger(__name__)

#: The version of Kafka's tools, and of brokers by default.
KAFKA_VERSION = "4.3.1"

#: The environment variable with the version of Kafka that brokers run.
VERSION_VARIABLE = "KAFKAGROUP_KAFKA_VERSION"

#: The environment variable with the path of an Ivy settings file (a mirror, credentials). Without it, Ivy uses Maven
#: Central.
IVY_SETTINGS_VARIABLE = "KAFKAGROUP_IVY_SETTINGS"

#: The environment variable with the path of the cache folder.
CACHE_VARIABLE = "KAFKAGROUP_CACHE"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Dependency:
    group: str
    artifact: str
    version: str
    transitive: bool
    # The classifier of a zip archive; empty: the dependency is a jar.
    classifier: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.{'zip' if self.classifier else 'jar'}"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}" + (f":{self.classifier}" if self.classifier else "")


def _kafka(version: str) -> tuple[_Dependency, ...]:
    return (
        _Dependency("org.apache.kafka", "kafka_2.13", version, True),
        # The command-line tools. Common tools do not need the dependencies of kafka-tools (Connect, a web server).
        _Dependency("org.apache.kafka", "kafka-tools", version, False),
        # The broker writes its log through slf4j, whose backends are not among Kafka's dependencies.
        _Dependency("org.slf4j", "slf4j-simple", "1.7.36", False),
    )


def broker_version() -> str:
    """Return the version of Kafka that brokers run by default: `$KAFKAGROUP_KAFKA_VERSION`, else the newest version."""
    return os.environ.get(VERSION_VARIABLE) or KAFKA_VERSION


def cache_dir() -> Path:
    """Return `$KAFKAGROUP_CACHE`, else `$XDG_CACHE_HOME/kafkagroup`, else `~/.cache/kafkagroup`."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "kafkagroup"
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(home) / ".cache" / "kafkagroup"


def kafka_jars(version: str = KAFKA_VERSION, *, on_progress: Progress | None = None) -> list[Path]:
    """Return the jars of the broker and its tools (47 files, 45 MB), downloaded at the first call.

    Args:
        version: The version of Kafka.
        on_progress: Called with each line about a download. The lines are also logged at INFO.

    Raises:
        JavaError: No usable Java was found.
        JarsError: The jars are not in the cache and could not be downloaded.
    """
    return _resolve(_kafka(version), on_progress)


def resolve(coordinates: Sequence[str], transitive: bool = False, *, on_progress: Progress | None = None) -> list[Path]:
    """Return the jar files of Maven coordinates, and download them if they are not in the cache.

    If several processes need the same jars, one process downloads the jars and the others wait.

    Args:
        coordinates: Artifacts as `group:artifact:version`.
        transitive: Resolve the artifacts' runtime dependencies too.
        on_progress: Called with each line about a download. The lines are also logged at INFO.

    Returns:
        The jars, sorted by name.

    Raises:
        ValueError: A coordinate is not `group:artifact:version`.
        JavaError: No usable Java was found.
        JarsError: The jars are not in the cache and could not be downloaded.
    """
    return _resolve([_parse(coordinate, transitive) for coordinate in coordinates], on_progress)


def unpacked(coordinate: str, classifier: str, *, on_progress: Progress | None = None) -> Path:
    """Return the folder with the content of a zip archive, downloaded and unpacked at the first call.

    Args:
        coordinate: The artifact as `group:artifact:version`.
        classifier: The classifier of one of the artifact's archives.
        on_progress: Called with each line about a download. The lines are also logged at INFO.

    Raises:
        ValueError: The coordinate is not `group:artifact:version`.
        JavaError: No usable Java was found.
        JarsError: The archive is not in the cache and could not be downloaded.
    """
    return _resolved_folder([replace(_parse(coordinate, False), classifier=classifier)], on_progress)


def _resolve(dependencies: Sequence[_Dependency], on_progress: Progress | None) -> list[Path]:
    return sorted(_resolved_folder(dependencies, on_progress).glob("*.jar")) if dependencies else []


def _resolved_folder(dependencies: Sequence[_Dependency], on_progress: Progress | None) -> Path:
    folder = cache_dir() / "jars" / _folder_name(dependencies)
    if not folder.is_dir():
        _fill(folder, dependencies, reporter(on_progress))
    return folder


def _parse(coordinate: str, transitive: bool) -> _Dependency:
    parts = coordinate.split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"Expected group:artifact:version, got {coordinate!r}")
    group, artifact, version = parts
    return _Dependency(group, artifact, version, transitive)


def _folder_name(dependencies: Sequence[_Dependency]) -> str:
    identity = "\n".join(sorted(f"{dependency} {dependency.transitive}" for dependency in dependencies))
    first = dependencies[0].file_name.removesuffix(".jar").removesuffix(".zip")
    return f"{first}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def reporter(on_progress: Progress | None) -> Progress:
    """Return a function that logs a line at INFO and passes the line to `on_progress`, if this is not None."""

    def report(line: str) -> None:
        log.info("%s", line)
        if on_progress is not None:
            on_progress(line)

    return report


def _fill(folder: Path, dependencies: Sequence[_Dependency], report: Progress) -> None:
    java = find_java()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = partial(report, "Waiting for another process, which downloads the same jars")
        with file_lock(folder.with_name(folder.name + ".lock"), waiting):
            if folder.is_dir():
                return
            # The working folder is on the file system of the cache, so that the rename is atomic.
            with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder.parent) as working:
                _retrieve(java, Path(working), dependencies, report)
                (Path(working) / "jars").rename(folder)
    except OSError as error:
        raise JarsError(
            f"The cache folder {folder.parent} cannot be written ({error}). "
            f"Set {CACHE_VARIABLE} to a folder that you can write."
        ) from error


def _retrieve(java: Path, working: Path, dependencies: Sequence[_Dependency], report: Progress) -> None:
    jars = working / "jars"
    jars.mkdir()
    ivy_file = working / "ivy.xml"
    ivy_file.write_text(_ivy_file(dependencies))
    names = ", ".join(map(str, dependencies))
    report(f"Resolving {names} into {cache_dir()} (once)")
    command = [
        str(java),
        "-Dsun.net.client.defaultConnectTimeout=15000",
        "-Dsun.net.client.defaultReadTimeout=60000",
        # Ivy must neither read nor write its default folder in the user's home.
        f"-Divy.home={working / 'ivy'}",
        *("-jar", str(_ivy_jar())),
        *(("-settings", settings) if (settings := os.environ.get(IVY_SETTINGS_VARIABLE)) else ()),
        *("-ivy", str(ivy_file), "-confs", "default", "-types", "jar", "bundle", "zip"),
        *("-retrieve", f"{jars}/[artifact]-[revision].[ext]", "-cache", str(working / "cache")),
    ]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in cast(IO[str], process.stdout):
            lines.append(line.rstrip())
            if match := re.match(r"downloading (\S+) \.\.\.", line.strip()):
                report(f"Downloading {match[1].rsplit('/', 1)[-1]}")
    complete = all((jars / dependency.file_name).is_file() for dependency in dependencies)
    if process.returncode != 0 or not complete:
        raise JarsError(_failure(names, lines))
    report(f"Resolved {len(list(jars.iterdir()))} files")
    for archive in jars.glob("*.zip"):
        with zipfile.ZipFile(archive) as content:
            content.extractall(jars)
        archive.unlink()


def _ivy_file(dependencies: Sequence[_Dependency]) -> str:
    rows = "\n".join(
        f"<dependency org={quoteattr(d.group)} name={quoteattr(d.artifact)} rev={quoteattr(d.version)}"
        f' conf="default->default" transitive="{str(d.transitive).lower()}">{_archive(d)}</dependency>'
        for d in dependencies
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="kafkagroup" module="embedded"/>\n'
        f"<dependencies>\n{rows}\n</dependencies></ivy-module>\n"
    )


def _archive(dependency: _Dependency) -> str:
    if not dependency.classifier:
        return ""
    name, classifier = quoteattr(dependency.artifact), quoteattr(dependency.classifier)
    return f'<artifact name={name} type="zip" ext="zip" m:classifier={classifier}/>'


def _ivy_jar() -> Path:
    # pyspark is located without an import, because the import takes most of a second.
    spec = importlib.util.find_spec("pyspark")
    places = [Path(p) / "jars" for p in (spec.submodule_search_locations or ())] if spec else []
    if spark_home := os.environ.get("SPARK_HOME"):
        places.append(Path(spark_home) / "jars")
    for place in places:
        for jar in sorted(place.glob("ivy-*.jar")):
            return jar
    raise JarsError(
        f"No ivy-*.jar was found in {' or '.join(map(str, places)) or 'pyspark'}. "
        "Run `pip install 'kafkagroup[embedded]'`, which installs pyspark with this jar, or set SPARK_HOME."
    )


def _failure(names: str, lines: Sequence[str]) -> str:
    # Show network errors first, because they are the cause. Ivy prints them after a line for each missing file.
    network = re.compile(r"Host .* not found|UnknownHost|Server access|timed out|refused|status code|SSL")
    other = re.compile(r"not found|FAILED|Exception|rror")
    said = [line.strip() for kind in (network, other) for line in lines if kind.search(line)]
    shown = "\n  ".join(list(dict.fromkeys(said or [line.strip() for line in lines]))[:4])
    return (
        f"{names} is not in the cache {cache_dir()} and could not be downloaded. Check the network (set Java's proxy "
        f"options in JAVA_TOOL_OPTIONS), set {IVY_SETTINGS_VARIABLE} to an Ivy settings file for your mirror, or copy "
        f"a filled cache folder to this machine and set {CACHE_VARIABLE} to it. Ivy's output:\n"
        f"  {shown}"
    )
