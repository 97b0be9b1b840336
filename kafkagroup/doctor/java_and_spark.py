"""Find the Java and the Spark that a session of this Python would use; check whether Spark finds the format."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from kafkagroup.doctor.versions import Finding

OLDEST_JAVA = 17
"""The oldest Java for Spark 4 and Kafka 4."""

_FORMAT_MODULE = "pyspark_kafkagroup"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_CORE_JAR = re.compile(r"spark-core_[0-9.]+-(.+)\.jar$")


@dataclass(frozen=True, slots=True)
class JavaAndSpark:
    """The Java and the Spark of this machine.

    Attributes:
        spark: The version of pyspark; None: not installed.
        own_jars: The version of the jars in pyspark's own folder; None: no jars, as in pyspark-client.
        spark_home: The folder in the variable SPARK_HOME; empty if it is not set.
        home_jars: The version of the jars in SPARK_HOME; None: no jars.
        java: The path of the executable `java`; None: not found.
        java_from: JAVA_HOME or PATH.
        java_version: Java's feature release, for example 17; None if `java` does not run.
        workers: The Python that Spark runs: `PYSPARK_PYTHON`, or `python3` of the PATH; None: not found.
        workers_from: PYSPARK_PYTHON or PATH.
        format_found: Whether `workers` has the module by which Spark finds the format `kafkagroup` by itself.
    """

    spark: str | None
    own_jars: str | None
    spark_home: str
    home_jars: str | None
    java: str | None
    java_from: str
    java_version: int | None
    workers: str | None
    workers_from: str
    format_found: bool


def find_java_and_spark(spark: str | None) -> JavaAndSpark:
    """Look for Java and Spark.

    Args:
        spark: The version of pyspark, if there is one.
    """
    spec = util.find_spec("pyspark") if spark is not None else None
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    home = os.environ.get("SPARK_HOME", "")
    java_home = os.environ.get("JAVA_HOME", "")
    java = str(Path(java_home) / "bin" / "java") if java_home else shutil.which("java")
    chosen = os.environ.get("PYSPARK_PYTHON", "")
    workers = shutil.which(chosen or "python3")
    return JavaAndSpark(
        spark=spark,
        own_jars=None if folder is None else _version_of_jars(folder / "jars"),
        spark_home=home,
        home_jars=_version_of_jars(Path(home) / "jars") if home else None,
        java=java,
        java_from="JAVA_HOME" if java_home else "PATH",
        java_version=None if java is None else _java_version(java),
        workers=workers,
        workers_from="PYSPARK_PYTHON" if chosen else "PATH",
        format_found=workers is not None and _finds_format(workers),
    )


def java_and_spark_findings(found: JavaAndSpark) -> list[Finding]:
    """Return the findings about Java and Spark."""
    return [_spark(found), _java(found), _format(found)]


def _spark(found: JavaAndSpark) -> Finding:
    name = "spark"
    if found.spark is None:
        return Finding(name, "skipped", "pyspark is not installed.")
    if found.spark_home and found.home_jars is None:
        return Finding(
            name,
            "fail",
            f"SPARK_HOME is {found.spark_home}, which contains no Spark.",
            "Set SPARK_HOME to Spark's folder, or unset it to use the Spark of pyspark.",
        )
    jars = found.home_jars if found.spark_home else found.own_jars
    if jars is None:
        return Finding(
            name, "ok", f"pyspark {found.spark} has no jars: it connects to a Spark Connect server.",
            "Install kafkagroup in the Python of that server and of its executors.",
        )  # fmt: skip
    if jars != found.spark:
        return Finding(
            name,
            "warn",
            f"pyspark is version {found.spark}, and the jars in {found.spark_home or 'its folder'} are of {jars}.",
            "Install the pyspark of Spark's version.",
        )
    return Finding(name, "ok", f"Spark {jars}" + (f" in {found.spark_home}." if found.spark_home else " of pyspark."))


def _java(found: JavaAndSpark) -> Finding:
    name = "java"
    if found.own_jars is None and not found.spark_home:
        connect = "Spark Connect's client needs no Java."
        return Finding(
            name, "skipped", connect if found.spark else "Without pyspark it is unknown whether Java is needed."
        )
    advice = f"Install Java {OLDEST_JAVA}, and point JAVA_HOME to its folder (which contains bin/java)."
    if found.java is None:
        return Finding(name, "fail", "JAVA_HOME is not set, and there is no java on the PATH.", advice)
    where = f"{found.java} (from {found.java_from})"
    if found.java_version is None:
        return Finding(name, "fail", f"{where} does not run.", advice)
    if found.java_version < OLDEST_JAVA:
        return Finding(name, "fail", f"{where} is Java {found.java_version}.", advice)
    return Finding(name, "ok", f"Java {found.java_version}: {where}.")


def _format(found: JavaAndSpark) -> Finding:
    if found.format_found:
        return Finding("format", "ok", f'Spark finds format("kafkagroup") by itself, in {found.workers}.')
    if found.workers is None:
        return Finding(
            "format", "fail", f"Spark's workers have no Python: {found.workers_from} names none.", _workers_advice()
        )
    return Finding(
        "format",
        "warn",
        f"Spark runs {found.workers} (from {found.workers_from}), which has no module {_FORMAT_MODULE}: Spark does not "
        "find the format by itself.",
        _workers_advice(),
    )


def _workers_advice() -> str:
    return (
        f"Set PYSPARK_PYTHON={sys.executable} before the session is made, or activate the environment. With a local "
        "master, you can call kafkagroup.register(spark) in each session instead."
    )


def _finds_format(python: str) -> bool:
    """Return whether a Python finds the module, as Spark's own look-up does."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({_FORMAT_MODULE!r}) is None)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _version_of_jars(folder: Path) -> str | None:
    names = (_CORE_JAR.search(path.name) for path in folder.glob("spark-core_*.jar"))
    return next((match[1] for match in names if match), None)


def _java_version(executable: str) -> int | None:
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return None
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
