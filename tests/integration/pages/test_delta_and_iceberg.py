"""Tables of Delta and Iceberg have each record once, whenever the driver dies."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import App
from tests.support.programs import installed
from tests.support.records import Topic, produce

# They download Spark 4.1, jars and libraries of some hundred megabytes.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

COUNT = 3_000
KINDS = ("delta", "delta-foreach", "iceberg")


@pytest.fixture(scope="module")
def spark_41(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment with Spark 4.1 in place of the installed one: the newest for which both formats have a jar."""
    folder = installed(tmp_path_factory.mktemp("spark"), "pyspark==4.1.1", "--no-deps")
    installed(folder, "py4j==0.10.9.9")
    here = Path(__file__).parents[3]
    return {"PYTHONPATH": os.pathsep.join((str(folder), str(here))), "SPARK_HOME": str(folder / "pyspark")}


@pytest.mark.parametrize(
    ("library", "rows"),
    [
        ("deltalake==1.6.6", 'DeltaTable("/data/delta/orders").to_pyarrow_table().num_rows'),
        ("pyiceberg[sql-sqlite]==0.12.0", 'catalog.load_table("shop.orders").scan().to_arrow().num_rows'),
    ],
    ids=["delta", "iceberg"],
)
def test_the_recipe_without_spark_appends_each_record_once(
    kafka: EmbeddedKafka,
    topic: Topic,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    library: str,
    rows: str,
) -> None:
    libraries = installed(tmp_path_factory.mktemp("libraries"), library)
    page = (Path(__file__).parents[3] / "docs" / "guides" / "delta-and-iceberg.md").read_text()
    programs = re.findall(r"```python\n(import pyarrow as pa\n.*?)```", page, re.DOTALL)
    (program,) = (one for one in programs if re.split("[=[]", library)[0] in one)
    name = topic("orders", partitions=3)
    (tmp_path / "lake").mkdir()
    count = f"print({rows})".replace("/data", str(tmp_path))
    for word, own in (
        ('"orders"', repr(name)),
        ("broker:9092", kafka.bootstrap_servers),
        ("orders-to-", f"{name}-to-"),
        ("/data", str(tmp_path)),
    ):
        assert word in program
        program = program.replace(word, own)
    dies = program.replace("        stream.commit()\n", "        raise SystemExit\n")
    path = os.pathsep.join((str(Path(__file__).parents[3]), str(libraries)))
    for number, code in enumerate((program, dies, dies, program)):
        produce(kafka.bootstrap_servers, name, 500, first=500 * number)
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\n{count}" if code is program else code],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    assert done.stdout.split()[-1] == "2000"


Lake = Callable[..., App]


@pytest.fixture
def lake(kafka: EmbeddedKafka, topic: Topic, tmp_path: Path, spark_41: Mapping[str, str]) -> tuple[str, Lake]:
    """A topic with records, and what starts the application with it."""
    name = topic("orders", partitions=3, records=COUNT)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-lake",
        "kafka.group.instance.id": f"{name}-lake",
        "kafka.session.timeout.ms": 6_000,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 300,
    }

    def start(kind: str, version: str = "1", *columns: str) -> App:
        arguments = [kind, str(tmp_path), json.dumps(options), version, *columns]
        return App([sys.executable, "-m", "tests.apps.lake_app", *arguments], tmp_path / "log", environment=spark_41)

    return name, start


@pytest.mark.parametrize("kind", [*KINDS, "delta-merge", "iceberg-merge"])
def test_a_table_has_each_record_once_though_the_driver_dies_ten_times(kind: str, lake: tuple[str, Lake]) -> None:
    _, start = lake
    for number in range(10):
        app = start(kind)
        app.wait_for("started")
        # At other moments of the start and of the micro-batches.
        time.sleep(1 + 0.7 * number)
        app.kill()
    app = start(kind)
    count = 30 if kind.endswith("merge") else COUNT
    assert app.wait_for("rows ", seconds=300) == f"rows {count} records {count}"
    app.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_with_one_more_column_adds_it_to_its_table(
    kind: str, lake: tuple[str, Lake], kafka: EmbeddedKafka
) -> None:
    name, start = lake
    app = start(kind)
    app.wait_for(f"rows {COUNT} ", seconds=300)
    app.stop()
    produce(kafka.bootstrap_servers, name, 500, first=COUNT)
    app = start(kind, "1", "timestamp")
    assert app.wait_for("rows ", seconds=300) == f"rows {COUNT + 500} records {COUNT + 500} timestamp 500"
    app.stop()


def test_with_a_new_checkpoint_delta_needs_another_application_id(lake: tuple[str, Lake], kafka: EmbeddedKafka) -> None:
    name, start = lake
    app = start("delta-foreach")
    app.wait_for(f"rows {COUNT} ", seconds=300)
    app.stop()
    produce(kafka.bootstrap_servers, name, 500, first=COUNT)
    app = start("delta-foreach", "2")
    assert app.wait_for("rows ", seconds=300) == f"rows {COUNT + 500} records {COUNT + 500}"
    app.stop()
