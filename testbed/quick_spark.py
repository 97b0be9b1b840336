"""Let Spark start quickly in tests: run `python -m testbed.quick_spark` once, in the environment of the tests.

In a test Spark lives for seconds, and most of this time goes into work that each start repeats:

- Spark's Python workers import pyspark and py4j from zips without bytecode. Each worker compiles these packages, and
  reads each zip's list of files in each task. With empty zips, workers import the installed packages, which are the
  same, and 32 tests with streams take 99 s of processor time, not 111 s.
- Spark's JVM loads and verifies 12,000 classes. An archive of these classes (Java's dynamic class data sharing, JEP
  350) halves the 14 s of processor time for a start and a first query.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import cast

#: JVM options for a process that lives for seconds. Java's second compiler would take half of the CPU time. Hadoop
#: starts a `chmod` for each file of a checkpoint, and by default Java starts a helper process for each `chmod`.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djdk.lang.Process.launchMechanism=VFORK"

#: The zips on the path of Spark's Python workers: pyspark and py4j.
_SPARK = Path(cast(ModuleSpec, find_spec("pyspark")).origin or "").parent
_ZIPS = _SPARK / "python" / "lib"
_VERSION: str = run_path(str(_SPARK / "version.py"))["__version__"]
_ARCHIVE = Path(sys.prefix, f"spark-{_VERSION}.jsa")


def jvm_options() -> str:
    """Return the JVM options for a Spark that lives for seconds. If the archive of classes exists, the options name it.

    A JVM that cannot use the archive, for example of another version, runs without it.
    """
    if not _ARCHIVE.exists():
        return _SHORT_LIVED
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={_ARCHIVE} -Xshare:auto -Xlog:cds*=off"


def checkpoint_files() -> str:
    """Return Spark's class for checkpoint files without a `readlink` process for each file, which the default starts.

    With this class and without the helper process, 22 tests with streams take 52 s of processor time, not 73 s.
    """
    later = tuple(map(int, _VERSION.split(".")[:2])) >= (4, 1)
    package = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if later else "")
    return f"{package}.FileSystemBasedCheckpointFileManager"


def empty(archive: Path) -> None:
    """Replace a zip by an empty zip."""
    zipfile.ZipFile(archive, "w").close()


def archive_classes(archive: Path) -> None:
    """Run a Spark once, and let its JVM write the loaded classes. Do nothing if the archive exists."""
    if archive.exists():
        return
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    options = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished} -Xlog:cds*=off"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable}
    program = "from testbed.quick_spark import _train; _train()"
    training = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    if training.returncode == 0 and unfinished.exists():
        unfinished.replace(archive)
    else:
        sys.stderr.write(f"Tests run without an archive of Spark's classes, only slower:\n{training.stderr}\n")


def _train() -> None:
    """Run a batch and a micro-batch with Python in the tasks, as tests do, and wait for the end of the JVM."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[2]").config(map=dict(settings)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    numbers = spark.range(10).mapInArrow(lambda batches: batches, "id bigint")
    numbers.groupBy("id").count().orderBy("id").collect()
    with tempfile.TemporaryDirectory() as folder:
        numbers.write.parquet(f"{folder}/in")
        stream = spark.readStream.schema("id bigint").parquet(f"{folder}/in").writeStream.trigger(availableNow=True)
        query = stream.format("parquet").option("checkpointLocation", f"{folder}/at").start(f"{folder}/out")
        query.awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(120)


if __name__ == "__main__":
    for _zip in _ZIPS.glob("*.zip"):
        empty(_zip)
    archive_classes(_ARCHIVE)
