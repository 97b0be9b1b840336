"""Every block of Python and shell code on the pages for users runs as it stands, or says why it is not run.

A page is one program: its blocks run in their order, in one namespace, against the embedded Kafka. Four things are
put in place of what only a reader has: the address of the brokers, the folder `/data`, `spark`, the session that a
shell of Spark has too, and `dbutils` of a Databricks notebook. An HTML comment before a block,
`<!-- not run: REASON -->`, leaves it out; it must still be valid Python.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectQuery
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from examples.setting import produce
from kafkagroup.embedded import EmbeddedKafka
from tests.support.native import kernel
from tests.support.records import write_records

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "quickstart", "concepts", "tuning", "troubleshooting")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
SERVERS, FOLDER = "broker:9092", "/data/"
# Pages with code that an older Spark has not; without them `./run matrix` skips the page.
NEEDED = {"stream": "pyspark.sql.streaming.tws_tester"}
# Those of the page about functions.
MAPPED = ("orders-packed", "orders-sealed", "orders-by-region")
# What only the native engine has. With librdkafka, `load()` looks for the library of AWS too.
NATIVE = ("value.format", ".transaction()", "AWS_MSK_IAM")
# Functions of Python, which Spark Connect runs with the server's version of Python only.
FUNCTIONS = ("foreachBatch", "StatefulProcessor", "TwsTester")

_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>[^\n]+) -->\n\n)?"
    r"^(?P<indent> *)```(?P<language>python|shell|bash)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_FENCE = re.compile(r"^ *```(?:python|shell|bash)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page; `reason` says why it is not run, if it is not."""

    line: int
    language: str
    code: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            text.count("\n", 0, match.start("code")) + 1,
            match["language"],
            re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE),
            match["reason"],
        )
        for match in _BLOCK.finditer(text)
    ]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A Kafka with orders, and with no group of another test."""
    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", partitions=4)
        for topic in (
            "greetings",
            "orders-enriched",
            "orders-shipped",
            "orders-json-schema",
            "orders-as-json",
            "orders-dead",
            *MAPPED,
        ):
            kafka.create_topic(topic, partitions=2)
        produce(kafka.bootstrap_servers, 500)
        kafka.create_topic("orders-mixed", partitions=1)
        mixed = [{"value": b'{"id": 1, "amount": 2.5}'}, {"value": b'{"id": "one"}'}]
        write_records(kafka.bootstrap_servers, "orders-mixed", mixed)
        yield kafka


@pytest.fixture
def namespace(spark: SparkSession) -> Iterator[dict[str, object]]:
    """The names that a page's code begins with; what the code leaves in the session is taken away."""
    dbutils = SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: f"{key} of {scope}"))
    names: dict[str, object] = {"__name__": "__main__", "spark": spark, "dbutils": dbutils}
    yield names
    for query in spark.streams.active:
        query.stop()
    for value in names.values():
        if isinstance(value, StreamingQueryListener):
            spark.streams.removeListener(value)
    spark.catalog.dropTempView("orders")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(
    page: Path, namespace: dict[str, object], broker: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVERS", broker.bootstrap_servers)
    if page.stem in NEEDED:
        pytest.importorskip(NEEDED[page.stem])
    if any(word in block.code for block in blocks(page) if block.reason is None for word in NATIVE):
        kernel()
    left_out = FUNCTIONS if "SPARK_REMOTE" in os.environ else ()
    for block in blocks(page):
        if block.reason is not None or any(word in block.code for word in left_out):
            continue
        code = block.code.replace(SERVERS, broker.bootstrap_servers).replace(FOLDER, f"{tmp_path}/")
        if block.language == "python":
            # The line numbers of a traceback are those of the page.
            exec(compile("\n" * (block.line - 1) + code, str(page), "exec"), namespace)
        else:
            shell(code, tmp_path, f"{page.name}:{block.line}")
        for query in [query for query in namespace.values() if isinstance(query, (StreamingQuery, ConnectQuery))]:
            if query.isActive:
                query.processAllAvailable()
            assert query.exception() is None, f"{page.name}:{block.line}"


def shell(code: str, folder: Path, where: str) -> None:
    """Run commands as a reader does who has installed kafkagroup."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_is_found_and_what_is_not_run_is_valid_python(page: Path) -> None:
    found = blocks(page)
    assert len(found) == len(_FENCE.findall(page.read_text()))
    for block in found:
        if block.reason is not None and block.language == "python":
            compile("\n" * (block.line - 1) + block.code, str(page), "exec")


def test_the_pages_are_found() -> None:
    assert {"index", "quickstart", "batch", "stream", "exactly-once-copy"} <= {page.stem for page in PAGES}
    assert sum(block.reason is None for page in PAGES for block in blocks(page)) > 30
