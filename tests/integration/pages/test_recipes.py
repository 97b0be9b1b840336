"""docs/recipes.md: the package reaches the executors of a cluster, and the server of Spark Connect."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from testbed.spark_cluster import SPARK, SparkCluster, free_port, server_process, until_log, without_our_paths
from tests.support.records import produce

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
COUNT = 100


def run(*command: str | Path) -> None:
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with this package, packed by venv-pack as the recipe says."""
    folder = tmp_path_factory.mktemp("archive")
    home = folder / "env"
    run(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    # Not pyspark: Spark brings it to the executors.
    run(python, "-m", "pip", "install", "-q", "venv-pack", "setuptools", "pyarrow", "confluent-kafka>=2.12,<3")
    packages = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    for name in ("kafkagroup", "kafka_source", "assignors", "pyspark_kafkagroup"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    native = importlib.util.find_spec("kafkagroup_native")
    if native is not None and native.submodule_search_locations:
        shutil.copytree(native.submodule_search_locations[0], packages / "kafkagroup_native")
    packed = folder / "environment.tar.gz"
    run(home / "bin" / "venv-pack", "-q", "-p", home, "-o", packed)
    return packed


@pytest.mark.timeout(900)
def test_a_standalone_cluster_with_an_environment_archive(
    kafka: EmbeddedKafka, topic: Callable[..., str], archive: Path, tmp_path: Path
) -> None:
    name = topic("recipe-standalone", partitions=2)
    produce(kafka.bootstrap_servers, name, COUNT)
    environment = without_our_paths()
    # The recipe for the driver's side in client mode: the same environment, unpacked at the same relative path.
    (tmp_path / "environment").mkdir()
    run("tar", "xzf", archive, "-C", tmp_path / "environment")
    with SparkCluster(tmp_path, workers=1, cores=2, environment=environment) as cluster:
        python = "./environment/bin/python"
        done = subprocess.run(
            [
                str(SPARK / "bin" / "spark-submit"), "--master", cluster.master, "--archives", f"{archive}#environment",
                "--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false",
                "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
                str(ROOT / "tests" / "apps" / "recipe_app.py"), kafka.bootstrap_servers, name, f"{name}-group",
            ],
            cwd=tmp_path, env={**environment, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert f"count {COUNT}" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
    findings = [line for line in done.stdout.splitlines() if line.startswith("finding ")]
    assert findings
    assert all(line.startswith("finding ok: executor ") for line in findings), findings


@pytest.mark.timeout(400)
def test_connect_with_the_package_on_the_server_alone(
    kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, port = topic("recipe-connect", partitions=2), free_port()
    produce(kafka.bootstrap_servers, name, COUNT)
    environment = {**without_our_paths(), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [
        str(SPARK / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]", "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1", "spark-internal",
    ]  # fmt: skip
    with server_process(command, tmp_path / "server.log", environment):
        until_log(tmp_path / "server.log", "Spark Connect server started at")
        done = subprocess.run(
            [sys.executable, "-m", "tests.apps.connect_client", f"sc://127.0.0.1:{port}",
             kafka.bootstrap_servers, name],
            cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    log = (tmp_path / "server.log").read_text(errors="replace")
    assert f"count {COUNT}" in done.stdout, done.stderr[-3000:] + log[-3000:]
