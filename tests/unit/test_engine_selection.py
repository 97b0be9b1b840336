"""The handshake with the native engine: what does not fit is named where the query is planned, and `auto` goes on."""

import hashlib
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import kafkagroup
from kafka_source import engine_selection
from kafka_source.client_config import Settings
from kafka_source.datasource import KafkaGroupSource
from kafka_source.engine_selection import INTERFACE, check_engine, engine_of_tasks, is_native, why_not_native
from kafka_source.fetch.select import engine_for
from kafka_source.options import Where
from kafka_source.produce.delivery import writes_native
from kafka_source.schema import schema_for
from kafka_source.sink.target import Target
from kafka_source.sink.writer import stream_writer
from kafka_source.source.read_task import Query

ROOT = Path(__file__).parents[2]
STUB = ROOT / "native" / "kafkagroup_native.pyi"

PLAN = """
import logging
import sys

from kafka_source.client_config import Settings
from kafka_source.engine_selection import check_engine, is_native
from kafka_source.errors import InvalidConfigurationError

logging.basicConfig(format="%(levelname)s %(message)s")
servers = {"bootstrap.servers": "127.0.0.1:1"}
try:
    check_engine("native", Settings(servers))
except InvalidConfigurationError as error:
    print(error)
for number in range(3):
    check_engine("auto", Settings({**servers, "client.id": str(number)}))
assert not is_native("auto")
assert not is_native("librdkafka")
"""

ABSENT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "kafkagroup_native":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""


def plan(folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Choose an engine in a fresh Python that finds the packages of `folder` first."""
    return subprocess.run(
        [sys.executable, "-c", before + PLAN],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def packaged(folder: Path, code: str) -> Path:
    """A folder with a package `kafkagroup_native` of this code."""
    package = folder / "kafkagroup_native"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    return folder


def check(done: subprocess.CompletedProcess[str], reason: str) -> None:
    """The error of `native` and the warning of `auto` give the reason, each once, and say what to do."""
    assert done.returncode == 0, done.stderr
    version = re.escape(kafkagroup.__version__)
    install = rf"`pip install kafkagroup-native=={version}` \(in a clone: `pip install \./native`\)"
    native = rf"engine=native, but {reason}\. Run {install} there, or use engine=auto or librdkafka\.\n"
    assert re.fullmatch(native, done.stdout), done.stdout
    serves = r"the slower librdkafka engine serves \(engine=auto\)"
    assert re.fullmatch(rf"WARNING {reason}: {serves}\. Run {install} there for the native engine\n", done.stderr), (
        done.stderr
    )


def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    check(plan(tmp_path, ABSENT), r"the package kafkagroup-native is not installed in \S+ on \S+")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('__version__ = "0.0.9"', r"0\.0\.9 \(interface None\)"),
        (f'__version__ = "0.0.9"\nINTERFACE = {INTERFACE}', rf"0\.0\.9 \(interface {INTERFACE}\)"),
        (
            f'__version__ = "{kafkagroup.__version__}"\nINTERFACE = {INTERFACE + 1}',
            rf"\S+ \(interface {INTERFACE + 1}\)",
        ),
    ],
    ids=["before the handshake", "another version", "another interface"],
)
def test_a_package_of_other_sources(tmp_path: Path, code: str, found: str) -> None:
    version = re.escape(kafkagroup.__version__)
    check(
        plan(packaged(tmp_path, code)),
        rf"the package kafkagroup-native in \S+ on \S+ has version {found}, but kafkagroup {version} needs version "
        rf"{version} \(interface {INTERFACE}\)",
    )


def test_a_damaged_file(tmp_path: Path) -> None:
    packaged(tmp_path, "from .kafkagroup_native import *")
    (tmp_path / "kafkagroup_native" / "kafkagroup_native.abi3.so").write_bytes(b"\x7fELF of another machine")
    check(plan(tmp_path), r"the package kafkagroup-native in \S+ on \S+ cannot be loaded: .+")


def test_a_wheel_of_another_system(tmp_path: Path) -> None:
    # Its extension module has a name that this Python does not look for.
    packaged(tmp_path, "from .kafkagroup_native import *")
    check(plan(tmp_path), r"the package kafkagroup-native in \S+ on \S+ is not complete: .+")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ["ssl.key.password", "sasl.oauthbearer.assertion.private.key.pem"])
def test_no_secret_of_a_query_that_was_checked_is_kept(name: str, native: bool) -> None:
    """Neither in its settings, nor where librdkafka's answer to a setting of its own is known."""
    secret = "".join(["correct", "-horse"])
    before = sys.getrefcount(secret)
    check_engine("auto", Settings({"bootstrap.servers": "127.0.0.1:1", name: secret}), native=native)
    assert sys.getrefcount(secret) == before


def test_a_query_that_is_checked_again_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    for group in ("a", "a", "b", "a"):
        check_engine("librdkafka", Settings({"group.id": group, "fetch.min.byte": "1", "ssl.key.password": group}))
    texts = [record.getMessage() for record in caplog.records if record.name == "kafka_source.engine_selection"]
    assert len(texts) == 2, texts
    assert all("did you mean kafka.fetch.min.bytes?" in text for text in texts)


@pytest.mark.usefixtures("users_program")
def test_a_query_warns_where_it_is_planned_and_not_in_its_other_processes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each step is a process of its own in Spark, so each gets a reason of its own here: no warning is kept back."""

    def warnings_of(step: Callable[[], object]) -> int:
        monkeypatch.setattr(engine_selection, "why_not_native", lambda: f"no kernel for {step}")
        caplog.clear()
        step()
        return sum("the slower librdkafka engine serves" in record.getMessage() for record in caplog.records)

    read = KafkaGroupSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
    assert warnings_of(read.schema) == 0
    made: list[Query] = []
    assert warnings_of(lambda: made.append(Query.of(read.options, schema_for({}), Where.BATCH))) == 0
    (query,) = made
    assert warnings_of(lambda: check_engine(query.options.engine, query.settings)) == 1
    assert warnings_of(lambda: engine_for(query.engine, query.settings)) == 0

    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
    rows = StructType([StructField("value", BinaryType())])
    writers: list[Any] = []
    assert warnings_of(lambda: writers.append(stream_writer(given, rows, overwrite=False))) == 1
    target: Target = writers[0]._target
    assert warnings_of(lambda: writes_native(target.settings, target.options.engine)) == 0
    assert warnings_of(lambda: stream_writer(given, rows, overwrite=False, commits=True)) == 0


def test_a_task_without_the_kernel_that_its_driver_has_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine_selection, "why_not_native", lambda: None)
    engine = engine_of_tasks("auto")
    monkeypatch.setattr(engine_selection, "why_not_native", lambda: "no kernel for this executor")
    assert not is_native(engine)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["no kernel for this executor"]


@pytest.mark.requires_native
def test_the_installed_package_fits() -> None:
    assert why_not_native() is None
    assert is_native("native")
    assert is_native("auto")
    assert not is_native("librdkafka")


def test_the_kernel_and_its_caller_have_the_same_interface() -> None:
    module = (ROOT / "native" / "src" / "python" / "mod.rs").read_text()
    assert re.findall(r"^const INTERFACE: u32 = (\d+);$", module, re.MULTILINE) == [str(INTERFACE)]


# What the stub of an interface's number hashes to. If this fails, you changed the interface: raise both numbers
# (engine_selection.py, mod.rs), and put the new digest here.
DIGESTS = {10: "fa76c4f78707a5e7"}


def test_another_interface_has_another_number() -> None:
    assert interface_digest(STUB.read_text()) == DIGESTS[INTERFACE]


def test_the_digest_is_of_the_interface_and_not_of_its_text() -> None:
    stub = STUB.read_text()
    assert interface_digest(stub.replace("Skip records below", "Leave out records below") + "# a note\n") == (
        interface_digest(stub)
    )
    assert interface_digest(stub.replace("from_offset: int = 0", "from_offset: int = 1")) != interface_digest(stub)


def interface_digest(stub: str) -> str:
    """A digest of a stub's tokens without its comments and docstrings, which is the same in every version of Python."""
    code, fresh = [], True
    for token in tokenize.generate_tokens(io.StringIO(stub).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            continue
        # A string that begins a statement is a docstring.
        if not (fresh and token.type == tokenize.STRING):
            code.append(token.string)
        fresh = token.type == tokenize.NEWLINE
    return hashlib.sha256(" ".join(" ".join(code).split()).encode()).hexdigest()[:16]
