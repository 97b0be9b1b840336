"""The notebooks, executed from top to bottom as a person does it; the last cell of each asserts what it claims."""

import re
import shutil
from pathlib import Path

import pytest

from notebooks import execute, setting
from notebooks.execute import code_of, printed, read

NOTEBOOKS = execute.paths()

# What a reader sees, besides what the last cell asserts.
SAID = {
    "01_quickstart": [
        "2000 orders in the topic",
        "quickstart-0 has partitions [0, 1]",
        "lag: {0: 0, 1: 0, 2: 0, 3: 0}",
        "1000 orders read by group",
        "3000 new orders tonight, 0 after that",
    ],
    "02_from_format_kafka": ["read 1000 orders", "read 600 orders", "a member of a group read 400 orders"],
    "03_to_delta_exactly_once": ["The query failed.", "the table has 2000."],
    "04_one_group_many_readers": ["'Kafka consumer': ["],
    "05_exactly_once_copy": ["The query failed.", "4000 copies are committed"],
    "06_lag_board": ["orders read; lag at most"],
    "07_quotas_live": ["{500: "],
    "08_without_spark": ["60000 orders written", "60000 orders read, then 20000 new ones"],
    "09_values": [
        "500 orders with the fields ['amount', 'id']",
        "The query stopped: The column value has schema",
        "270 more records, of which 20 are bad: b'no Avro 0'",
    ],
    "10_a_function": [
        "200 rows of 4000 records, the same behind the read: True",
        "4000 records read, 200 rows returned",
    ],
}
PICTURES = {"04_one_group_many_readers": 2, "06_lag_board": 2}
DAILY = ("08_without_spark",)
NATIVE = ("09_values",)


def test_every_notebook_is_known_here() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SAID)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_short_and_stored_with_the_outputs_of_its_code(path: Path) -> None:
    notebook = read(path)
    code = code_of(notebook)
    assert notebook.metadata.executed == execute.digest(notebook), "run: ./run notebooks"
    assert [line for line in SAID[path.stem] if line not in printed(notebook)] == []
    assert len(execute.pictures(notebook)) == PICTURES.get(path.stem, 1)
    assert path.stat().st_size < 250_000
    assert not re.search(r"(/home|/root|/tmp|/Users|/work)/", path.read_text())
    assert 8 <= len(notebook.cells) <= 14
    assert re.match(r"# \S.*\n\n\S", notebook.cells[0].source), "a title, and what it shows"
    assert [cell for cell in code if cell.source.startswith(("%", "!"))] == [], "a driver may be unable to install"
    assert "assert " in code[-1].source


def test_all_begin_with_a_few_lines() -> None:
    first_cells = [code_of(read(path))[0].source for path in NOTEBOOKS]
    assert max(len(cell.splitlines()) for cell in first_cells) <= 6
    assert all("here = Setting(globals())" in cell for cell in first_cells)


def test_pictures_of_the_documentation_are_those_of_the_notebooks() -> None:
    for name, (stem, number) in execute.SHOWN.items():
        drawn = execute.pictures(read(execute.FOLDER / f"{stem}.ipynb"))[number]
        assert (execute.ASSETS / name).read_bytes() == drawn, "run: ./run notebooks"


class _Databricks:
    """The parts of `dbutils` that the notebooks use, with these values of the widgets and these secrets."""

    def __init__(self, values: dict[str, str], secrets: dict[tuple[str, str], str]) -> None:
        self.widgets = self.secrets = self
        self._shown: dict[str, str] = {}
        self._values, self._secrets = values, secrets

    def text(self, name: str, default: str, label: str) -> None:
        assert label
        self._shown[name] = self._values.get(name, default)

    def get(self, name: str, key: str | None = None) -> str:
        return self._shown[name] if key is None else self._secrets[name, key]


def test_on_databricks_widgets_and_secrets_are_the_settings() -> None:
    secrets = {("kafka", "username"): "alice", ("kafka", "password"): "hers"}
    widgets = {"servers": "broker:9092", "scope": "kafka", "folder": "/Volumes/lab"}
    names: dict[str, object] = {"dbutils": _Databricks(widgets, secrets)}
    here = setting.Setting(names)
    shutil.rmtree(here.driver_folder)
    assert here.embedded is None
    assert here.kafka == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "hers",
    }
    assert here.folder.startswith("/Volumes/lab/kafkagroup-")


def test_on_databricks_no_kafka_is_started_where_no_executor_would_reach_it() -> None:
    with pytest.raises(ValueError, match="Fill in the widgets servers and folder"):
        setting.Setting({"dbutils": _Databricks({}, {})})


def marked(path: Path) -> object:
    marks = [] if path.stem in DAILY else [pytest.mark.long]
    if path.stem in NATIVE:
        marks.append(pytest.mark.requires_native)
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", [marked(path) for path in NOTEBOOKS])
def test_it_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    notebook = read(path)
    execute.execute(notebook, tmp_path)
    said = printed(notebook)
    assert [line for line in SAID[path.stem] if line not in said] == [], said
    assert len(execute.pictures(notebook)) == PICTURES.get(path.stem, 1)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_kafka_of_ones_own_serves_too(kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    # Without the embedded Kafka there is no Java consumer: the notebook takes one of librdkafka.
    notebook = read(execute.FOLDER / "04_one_group_many_readers.ipynb")
    execute.execute(notebook, tmp_path)
    said = printed(notebook)
    assert f"Kafka at {kafka.bootstrap_servers}" in said
    assert "the consumer is one of librdkafka" in said
    assert "'Kafka consumer': [" in said
