"""Time from `pip install` to the first row on an empty machine, beside `--packages` of the JVM connector.

    ./run wheels && ./run bench install [--rounds 3] [--pyspark 4.2.0] [--save FILE]

Each round makes a new environment and an empty home. pip has no cache and Ivy has no folder, so everything is
downloaded. kafkagroup comes from dist/, its dependencies from the index. The environment's creation is not timed.
"""

import os
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks._command import begin, parser_of
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.topics import Load, fill
from kafkagroup.embedded import EmbeddedKafka

DIST = Path(__file__).parents[1] / "dist"
SMALL = Load(100, 1000)
JVM, OURS = "jvm", "kafkagroup"
#: What a user's program does; it must know nothing of this repository.
PROGRAM = """
import sys

from pyspark.sql import SparkSession

source, servers, topic, *settings = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
reader = spark.read.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
if source == "kafkagroup":
    reader = reader.option("engine", "native")
rows = reader.load().limit(1).collect()
raise SystemExit(len(rows) != 1)
"""


def main() -> None:
    parser = parser_of(__doc__, rounds=3, saves=True)
    parser.add_argument("--pyspark", default=version("pyspark"), help="the version of pyspark and of the JVM connector")
    given = begin(parser, HEAD)
    (wheel,) = DIST.glob("kafkagroup-*.whl")
    seen: dict[str, list[dict[str, float]]] = {JVM: [], OURS: []}

    def contestant(name: str, kafka: EmbeddedKafka) -> Callable[[], float]:
        def run() -> float:
            times = install_and_read(name, given.pyspark, wheel, kafka.bootstrap_servers)
            seen[name].append(times)
            return sum(times.values())

        return run

    with EmbeddedKafka() as kafka:
        fill(kafka, SMALL)
        contestants = {name: contestant(name, kafka) for name in seen}
        figures = [in_turns(Figures("empty environment to first row"), contestants, given.rounds, warm_up=0)]
    there = {name: [one["connector"] + one["row"] for one in times] for name, times in seen.items()}
    figures.append(Figures("the same where Spark is installed", seconds=there))
    print(*figures[-1].lines(), sep="\n")
    for name, times in seen.items():
        steps = {step: median(one[step] for one in times) for step in times[0]}
        print(f"  {name}: " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in steps.items()) + " s")
    save(given, figures)


def install_and_read(source: str, spark: str, wheel: Path, servers: str) -> dict[str, float]:
    """Return the seconds of each step: install pyspark, install kafkagroup, run the program until its one row.

    The JVM connector needs no installation: Spark downloads its jars when the program starts.
    """
    with tempfile.TemporaryDirectory(prefix="kafkagroup-install-") as folder:
        home = Path(folder, "home")
        home.mkdir()
        (home / "program.py").write_text(PROGRAM)
        python = str(Path(folder, "venv", "bin", "python"))
        venv.create(Path(folder, "venv"), with_pip=True)
        # Leave out this process's packages and Python, but keep pip's and Java's settings, which may name a mirror.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        environment |= {"HOME": str(home), "PYSPARK_PYTHON": python}

        def timed(*arguments: str) -> float:
            began = time.perf_counter()
            done = subprocess.run([python, *arguments], cwd=home, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
            return time.perf_counter() - began

        pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-cache-dir")
        settings, connector = [], 0.0
        of_spark = timed(*pip, f"pyspark=={spark}")
        if source == OURS:
            connector = timed(*pip, "--find-links", str(DIST), str(wheel))
        else:
            coordinate = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}"
            settings = [f"spark.jars.packages={coordinate}", f"spark.jars.ivy={home / 'ivy'}"]
            if mirror := os.environ.get("KAFKAGROUP_IVY_SETTINGS"):
                settings.append(f"spark.jars.ivySettings={mirror}")
        row = timed("program.py", "kafka" if source == JVM else source, servers, SMALL.topic, *settings)
        return {"spark": of_spark, "connector": connector, "row": row}


if __name__ == "__main__":
    main()
