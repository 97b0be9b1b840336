"""Run the main job and the group tests with older and newer versions. Each cell changes one version of the base.

    python -m release.matrix                        every cell, and the table in docs/compatibility.md
    python -m release.matrix pyspark python-3.13    only these axes and cells; the table keeps the others

Each cell has an environment with the tests' requirements in the folder `.matrix`, which is kept, and a run of pytest.
Without the cell's version of Python, the result is "not run".
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

from release.requirements import requirements

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("KAFKAGROUP_MATRIX", ROOT / ".matrix"))
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"

TESTS = (
    "tests/integration/spark/test_main_job.py",
    "tests/integration/read/test_read_batch_in_group.py",
    "tests/integration/group/test_sharing_a_group.py",
    "tests/integration/group/test_group_membership.py",
    "tests/integration/group/test_group_with_other_clients.py",
    "tests/integration/group/test_restart_in_a_group.py",
    "tests/integration/spark/test_other_sparks.py",
    # Features that Spark has since 4.1 or 4.2: pipelines, named sources with version 2 of the offset log, and state.
    "tests/integration/spark/test_pipelines.py",
    "tests/parity/test_checkpoints.py::test_a_named_source_is_imported_and_another_one_added",
    "tests/integration/pages/test_pages_run.py::test_the_code_of_a_page_runs[stream]",
)
#: Run two tests at a time. Warnings are no errors, because other versions have warnings of their own, for example about
#: sockets that Spark 4.0 does not close.
HOW = ("-q", "-p", "no:cacheprovider", "-W", "default", "-n", "2", "--dist", "loadfile")
#: The packages whose installed versions the table shows.
SHOWN = ("pyspark", "pyarrow", "pandas", "confluent-kafka")


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of versions. An empty requirement means the newest version that the other requirements allow.

    Args:
        axis: The package or program whose version differs from the base.
        name: The differing version.
        python: The minor version of Python.
        pyspark: The requirement of pyspark's version.
        pyarrow: The requirement of pyarrow's version.
        pandas: The requirement of pandas' version.
        kafka: The version of the brokers; empty: the version of the embedded Kafka.
    """

    axis: str
    name: str
    python: str = "3.11"
    pyspark: str = ""
    pyarrow: str = ""
    pandas: str = "<3"
    kafka: str = ""

    @property
    def id(self) -> str:
        """Return the cell's name on the command line."""
        return f"{self.axis}-{self.name}"


BASE = Cell("base", "newest")
CELLS = (
    BASE,
    *(replace(BASE, axis="pyspark", name=minor, pyspark=f"=={minor}.*") for minor in ("4.0", "4.1", "4.2")),
    # The newest Spark needs Python 3.11. An older Python gets the newest Spark that supports it.
    *(replace(BASE, axis="python", name=minor, python=minor) for minor in ("3.10", "3.12", "3.13", "3.14")),
    *(
        replace(BASE, axis="kafka", name=version, kafka=version)
        for version in ("2.8.2", "3.3.2", "3.9.1", "4.0.1", "4.4.0")
    ),
    # The oldest supported pyarrow needs a Spark that accepts it.
    replace(BASE, axis="pyarrow", name="15", pyspark="==4.0.*", pyarrow="==15.*"),
    replace(BASE, axis="pyarrow", name="18", pyarrow="==18.*"),
    replace(BASE, axis="pandas", name="3", pandas=">=3"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a cell.

    Args:
        cell: The cell's id.
        python: The version of Python.
        kafka: The version of the brokers.
        versions: The installed versions, by package.
        outcome: pytest's counts, or the reason why pytest has none.
        seconds: The duration of the tests.
        failed: The tests that failed.
    """

    cell: str
    python: str
    kafka: str
    versions: dict[str, str]
    outcome: str
    seconds: float
    failed: list[str]


def main(asked: Sequence[str]) -> int:
    """Run the requested cells, print a line for each cell, and write the table. Return 1 if a cell failed."""
    results = {result.cell: result for result in earlier()}
    bad = False
    for cell in CELLS:
        if asked and cell.id not in asked and cell.axis not in asked:
            continue
        result = results[cell.id] = run(cell)
        # If a cell is requested by its id, as in CI, it must run.
        bad |= bool(result.failed) or (cell.id in asked and "passed" not in result.outcome)
        print(f"{cell.id}: {result.outcome} in {result.seconds:.0f} s", *result.failed, sep="\n  ", flush=True)
        keep(results.values())
        write_page([results[known.id] for known in CELLS if known.id in results])
    return 1 if bad else 0


def run(cell: Cell) -> Result:
    """Create the environment of a cell, and run the tests in this environment."""
    from kafkagroup.embedded.jars import KAFKA_VERSION

    kafka = cell.kafka or KAFKA_VERSION
    python = find_python(cell.python)
    if python is None:
        return Result(cell.id, cell.python, kafka, {}, "not run: this Python is not on the machine", 0, [])
    try:
        interpreter = environment(cell, python)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        return Result(cell.id, cell.python, kafka, {}, f"not installable: {' '.join(last)}", 0, [])
    began = time.monotonic()
    report = FOLDER / f"{cell.id}.log"
    with report.open("w") as log:
        subprocess.run(
            [str(interpreter), "-m", "pytest", *HOW, *TESTS],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KAFKAGROUP_KAFKA_VERSION": kafka},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    text = report.read_text(errors="replace")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    last = re.findall(r"\d+ (?:passed|failed|skipped|errors?)\b", text.rstrip().rpartition("\n")[2])
    outcome = ", ".join(last) or "pytest did not end"
    return Result(
        cell.id, version_of(interpreter), kafka, installed(interpreter), outcome, time.monotonic() - began, failed
    )


def environment(cell: Cell, python: str) -> Path:
    """Return the interpreter of the cell's environment, and create the environment at the first call.

    Cells of the axis kafka share the environment of the base.

    Raises:
        subprocess.CalledProcessError: The versions cannot be installed together.
    """
    folder = FOLDER / (BASE.id if cell.axis == "kafka" else cell.id)
    interpreter = folder / "venv" / "bin" / "python"
    wanted = folder / "requirements.txt"
    pins = {"pyspark": cell.pyspark, "pyarrow": cell.pyarrow, "pandas": cell.pandas}
    needed = requirements(metadata.requires("kafkagroup") or (), ["test"], cell.python)
    # The cell's requirements replace the project's, so that a cell can try a version before the project allows it.
    lines = [line for line in needed if re.split(r"[^\w-]", line)[0] not in pins]
    lines += [f"{name}{pin}" for name, pin in pins.items()]
    text = "\n".join(lines) + "\n"
    if not interpreter.exists() or not wanted.exists() or wanted.read_text() != text:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True, capture_output=True, text=True)
        pip(interpreter, "install", *lines)
        wanted.write_text(text)
    native = sorted((ROOT / "dist").glob("kafkagroup_native-*.whl"))
    if native:
        # pip chooses the wheel for this platform. Without such a wheel, the tests use librdkafka.
        arguments = ["--no-index", "--find-links", str(ROOT / "dist"), "--no-deps", "--force-reinstall"]
        pip(interpreter, "install", *arguments, "kafkagroup-native")
    # Spark waits 10 s for a Python worker. On a busy machine, a worker that compiles pyspark takes longer.
    quick = [str(interpreter), "-m", "testbed.quick_spark"]
    subprocess.run(quick, cwd=ROOT, check=True, capture_output=True, text=True)
    return interpreter


def pip(interpreter: Path, *arguments: str) -> None:
    """Run pip of an environment.

    Raises:
        subprocess.CalledProcessError: pip failed; the error contains its output.
    """
    command = [str(interpreter), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)


def find_python(minor: str) -> str | None:
    """Return a working Python of this minor version from the PATH, else from pyenv or uv."""
    for candidate in candidates(minor):
        said = subprocess.run([candidate, "-c", "import ssl, venv"], capture_output=True, check=False)
        if said.returncode == 0:
            return candidate
    return None


def candidates(minor: str) -> Iterator[str]:
    """Yield interpreters that may be of this minor version."""
    name = f"python{minor}"
    if found := shutil.which(name):
        yield found
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
        yield from map(str, sorted(Path(root, "versions").glob(f"{minor}.*/bin/{name}"), reverse=True))
    if shutil.which("uv"):
        found = subprocess.run(["uv", "python", "find", minor], capture_output=True, text=True, check=False).stdout
        if found.strip():
            yield found.strip()


def version_of(interpreter: Path) -> str:
    """Return the full version of an interpreter."""
    code = "import platform; print(platform.python_version())"
    return subprocess.run([str(interpreter), "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def installed(interpreter: Path) -> dict[str, str]:
    """Return the installed versions of the packages that the table shows, and of the native engine."""
    code = (
        "import json, sys; from importlib.metadata import version\n"
        "from kafka_source.engine_selection import why_not_native\n"
        "found = {name: version(name) for name in sys.argv[1:]}\n"
        "found['engine'] = 'librdkafka' if why_not_native() else 'native'\n"
        "print(json.dumps(found))"
    )
    command = [str(interpreter), "-c", code, *SHOWN]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found: dict[str, str] = json.loads(said.stdout)
    return found


def earlier() -> Iterator[Result]:
    """Yield the results of earlier runs."""
    file = FOLDER / "results.json"
    if file.exists():
        yield from (Result(**one) for one in json.loads(file.read_text()))


def keep(results: Iterable[Result]) -> None:
    """Keep the results for later runs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "results.json").write_text(json.dumps([asdict(one) for one in results], indent=1))


def write_page(results: Sequence[Result]) -> None:
    """Write the table of results into the page, between the comments `BEGIN` and `END`."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}")


def table(results: Sequence[Result]) -> str:
    """Return the results as a table in Markdown."""
    head = ["differs from the base", "Python", *SHOWN, "broker", "engine", "tests"]
    rows = [
        [
            one.cell.replace("-", " ", 1),
            one.python,
            *(one.versions.get(name, "") for name in SHOWN),
            one.kafka,
            one.versions.get("engine", ""),
            one.outcome,
        ]
        for one in results
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
