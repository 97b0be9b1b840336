"""Nothing is loaded that nobody asked for: not on executors, and not in a user's pytest."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING or name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""


def python(code: str, *, missing: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh Python that lacks these libraries."""
    return subprocess.run(
        [sys.executable, "-c", f"MISSING = {missing!r}\n{WITHOUT}\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def loaded(modules: str) -> set[str]:
    """The top-level names of everything that a fresh Python has loaded after it imported these modules."""
    done = python(f"import {modules}\nprint(*{{name.partition('.')[0] for name in sys.modules}})")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["kafka_source.datasource", "kafka_source.source.read_task", "kafka_source.sink.writer"]
)
def test_executors_load_no_library_of_the_command_line(module: str) -> None:
    seen = loaded(module)
    assert "pyspark" in seen
    assert seen & {"typer", "click", "rich", "cryptography", "pytest", "pandas", "matplotlib"} == set()
    assert seen & {"prometheus_client", "opentelemetry"} == set()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # Spark starts a process to look the format up, and one to ask for its schema.
        ("kafka_source.datasource", {"pyarrow", "numpy", "kafka"}),
        ("kafkagroup", {"pyspark", "pyarrow", "kafka", "confluent_kafka", "assignors"}),
        ("kafka_source", {"pyspark", "pyarrow", "kafka", "confluent_kafka", "assignors"}),
        *(
            (f"kafka_source.{part}", {"pyspark", "kafka"})
            for part in ("kafka_client", "fetch", "group", "transactions")
        ),
        ("kafkagroup.arrow", {"pyspark", "kafka", "polars", "pandas", "duckdb", "tqdm"}),
        ("kafkagroup.embedded", {"pyspark", "pyarrow", "kafka", "confluent_kafka", "pytest"}),
        ("kafkagroup.embedded.pytest_plugin", {"pyspark", "pyarrow", "kafka", "confluent_kafka"}),
        ("assignors", {"pyspark", "pyarrow", "kafka", "confluent_kafka", "kafka_source", "kafkagroup"}),
    ],
)
def test_what_needs_no_spark_and_no_client_loads_none(module: str, heavy: set[str]) -> None:
    assert loaded(module) & (heavy - {module}) == set()


@pytest.mark.parametrize("module", ["datasource", "source.batch", "source.stream", "sink.writer"])
def test_the_registrys_client_is_loaded_only_where_values_are_decoded(module: str) -> None:
    done = python(
        f"import sys, kafka_source.{module}\nprint([one for one in sys.modules if 'kafka_source.values' in one])"
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ["register", "KafkaGroupSource", "FORMAT", "pinned"])
@pytest.mark.parametrize(
    ("missing", "what"),
    [("pyspark", "has none"), ("pyspark.sql.datasource", r"has an older version \(No module named '\S+'\)")],
    ids=["no pyspark", "a pyspark without data sources"],
)
def test_a_missing_spark_is_one_line_that_says_what_to_install(name: str, missing: str, what: str) -> None:
    done = python(
        f"import kafkagroup\ntry:\n    kafkagroup.{name}\nexcept ImportError as error:\n    print(error)",
        missing=(missing,),
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        rf"kafkagroup needs pyspark 4\.0 or newer, and \S+ {what}\. Run `pip install 'kafkagroup\[spark\]'`; for "
        r"Spark Connect alone `pip install pyspark-client`; Databricks and databricks-connect include pyspark\.\n",
        done.stdout,
    ), done.stdout


def test_the_command_line_and_the_admin_calls_need_no_spark() -> None:
    done = python(
        "import sys\nimport assignors, kafkagroup.admin, kafkagroup.embedded\n"
        "from kafkagroup.cli import main\nsys.argv = ['kafkagroup', 'options']\nmain()",
        missing=("pyspark",),
    )
    assert done.returncode == 0, done.stderr
    assert "subscribe" in done.stdout


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_the_command_line_names_the_extra_that_it_lacks(library: str) -> None:
    done = python("from kafkagroup.cli import main\nmain()", missing=(library,))
    assert done.returncode == 1
    assert done.stderr == f"The command kafkagroup needs {library}: pip install 'kafkagroup[cli]'\n"


def test_pictures_of_samples_need_no_spark() -> None:
    done = python("from kafkagroup import plots\nfrom kafkagroup.metrics import read_samples", missing=("pyspark",))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("library", "code", "extra"),
    [
        ("prometheus_client", "metrics.start(None, prometheus='127.0.0.1:0')", "metrics"),
        ("opentelemetry", "metrics.start(None, otlp='http://127.0.0.1:1')", "otel"),
        ("opentelemetry", "metrics.start(None, meter_provider=object())", "otel"),
        ("matplotlib", "import kafkagroup.plots", "plots"),
    ],
)
def test_metrics_and_pictures_name_the_extra_that_they_lack(library: str, code: str, extra: str) -> None:
    done = python(
        "from kafkagroup import metrics\nfrom kafka_source.errors import InvalidConfigurationError\n"
        f"try:\n    {code}\nexcept InvalidConfigurationError as error:\n    print(error)",
        missing=(library,),
    )
    assert done.returncode == 0, done.stderr
    assert f"pip install 'kafkagroup[{extra}]'" in done.stdout


def test_a_pkcs12_store_names_the_extra_that_it_lacks(tmp_path: Path) -> None:
    # The tag of a sequence, as every PKCS12 store begins.
    store = tmp_path / "trust.p12"
    store.write_bytes(b"\x30\x82\x01\x00" + bytes(256))
    done = python(
        "from kafka_source.client_config import Settings, librdkafka_config\n"
        "from kafka_source.errors import OptionError\n"
        f"values = {{'bootstrap.servers': 'here:1', 'security.protocol': 'SSL', 'ssl.truststore.type': 'PKCS12',"
        f" 'ssl.truststore.location': {str(store)!r}, 'ssl.truststore.password': 'hidden'}}\n"
        "try:\n    librdkafka_config(Settings(values))\nexcept OptionError as error:\n    print(error)",
        missing=("cryptography",),
    )
    assert done.returncode == 0, done.stderr
    assert "kafka.ssl.truststore.location" in done.stdout
    assert "pip install 'kafkagroup[pkcs12]'" in done.stdout


def fixtures(folder: Path) -> str:
    """The fixtures that pytest offers in a folder, with every plugin that the environment brings."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--fixtures", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "tmp_path" in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_pytest_has_our_fixtures_only_where_they_are_asked_for(tmp_path: Path) -> None:
    assert not [point for point in entry_points(group="pytest11") if point.value.startswith("kafkagroup")]
    assert "kafkagroup_broker" not in fixtures(tmp_path)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kafkagroup.embedded.pytest_plugin"]\n')
    offered = fixtures(tmp_path)
    assert all(name in offered for name in ("kafkagroup_broker", "kafkagroup_topic", "kafkagroup_cluster"))
