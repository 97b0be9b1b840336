"""docs/recipes.md: the package reaches the executors of a cluster, and the server of Spark Connect."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import yaml

from kafkagroup.embedded import EmbeddedKafka
from testbed.kubernetes_cluster import KubernetesCluster, reason_against_kubernetes
from testbed.spark_cluster import LOOPBACK, SPARK, SparkCluster, connect_server, without_our_paths
from testbed.yarn_cluster import YarnCluster
from tests.support.programs import run_python
from tests.support.records import Topic

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "recipes.md"
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


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark with its archives of pyspark and py4j, which `testbed.quick_spark` has emptied in the installed one."""
    home = tmp_path_factory.mktemp("spark")
    for name in ("bin", "jars"):
        (home / name).symlink_to(SPARK / name)
    (home / "python" / "lib").mkdir(parents=True)
    for archive in (SPARK / "python" / "lib").glob("*.zip"):
        package = SPARK.parent / re.split("[-.]", archive.name)[0]
        with zipfile.ZipFile(home / "python" / "lib" / archive.name, "w") as packed:
            for path in (*package.rglob("*.py"), *package.rglob("*.json")):
                packed.write(path, path.relative_to(package.parent))
    return home


def follow(start: str, changes: Mapping[str, str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run the first commands after a line that begins so, and return what they print."""
    code = re.findall(rf"^{re.escape(start)}.*?^```shell\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    for word, own in changes.items():
        assert word in code
        code = code.replace(word, own)
    path = os.pathsep.join((str(SPARK / "bin"), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-ec", code], cwd=folder, env={**environment, "PATH": path},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mode", "master", "cluster"),
    [
        ("**Client mode", "spark://master:7077", partial(SparkCluster, workers=1, cores=2)),
        ("**Cluster mode", "yarn", YarnCluster),
    ],
    ids=["standalone", "yarn"],
)
def test_a_cluster_with_an_environment_archive(
    kafka: EmbeddedKafka,
    topic: Topic,
    archive: Path,
    distribution: Path,
    tmp_path: Path,
    mode: str,
    master: str,
    cluster: Callable[..., SparkCluster | YarnCluster],
) -> None:
    name = topic("recipe", partitions=2, records=COUNT)
    shutil.copy(archive, tmp_path)
    settings = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.ui.enabled": "false",
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
        "spark.yarn.stagingDir": str(tmp_path),
    }
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    environment = without_our_paths() | {"SPARK_HOME": str(distribution)}
    environment |= {"SPARK_CONF_DIR": str(conf), "HADOOP_CONF_DIR": str(conf)}
    with cluster(tmp_path, environment=environment) as running:
        job = f"{ROOT / 'tests' / 'apps' / 'recipe_app.py'} {kafka.bootstrap_servers} {name} {name}-group"
        told = follow(mode, {f"--master {master}": f"--master {running.master}", "job.py": job}, tmp_path, environment)
        # YARN's containers write there.
        told += "".join(path.read_text(errors="replace") for path in (tmp_path / "logs").glob("*/*/std*"))
    assert f"count {COUNT}" in told, told[-6000:]
    findings = [line for line in told.splitlines() if line.startswith("finding ")]
    assert findings
    assert all(line.startswith("finding ok: executor ") for line in findings), findings


@pytest.mark.timeout(400)
def test_connect_with_the_package_on_the_server_alone(kafka: EmbeddedKafka, topic: Topic, tmp_path: Path) -> None:
    name = topic("recipe-connect", partitions=2, records=COUNT)
    environment = {**without_our_paths(), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with connect_server(tmp_path, environment) as server:
        done = run_python("-m", "tests.apps.connect_client", server, kafka.bootstrap_servers, name, seconds=200)
    log = (tmp_path / "server.log").read_text(errors="replace")
    assert f"count {COUNT}" in done.stdout, done.stderr[-3000:] + log[-3000:]


@pytest.mark.timeout(3600)
def test_kubernetes_with_pods_that_are_processes(kafka: EmbeddedKafka, topic: Topic, tmp_path: Path) -> None:
    if reason := reason_against_kubernetes():
        pytest.skip(reason)
    name = topic("recipe-kubernetes", partitions=2, records=COUNT)
    settings = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    }
    with KubernetesCluster(tmp_path) as running:
        running.allow("spark", ["pods", "services", "configmaps", "persistentvolumeclaims"])
        settings["spark.kubernetes.driver.master"] = running.inner_address
        (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        environment = without_our_paths() | {"SPARK_CONF_DIR": str(tmp_path), "KUBECONFIG": str(running.kubeconfig)}
        (probe,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        deployments = "/apis/apps/v1/namespaces/default/deployments?dryRun=All&fieldValidation=Strict"
        running.ask(deployments, yaml.safe_load(probe))
        arguments = f"job.py {kafka.bootstrap_servers} {name} {name}-group"
        changes = {"https://kubernetes.example.com:6443": running.address, "job.py": arguments, "=4": "=2"}
        told = follow("## Kubernetes", changes, tmp_path, environment) + running.logs()
    assert f"count {COUNT}" in told, told[-6000:]
    findings = [line for line in told.splitlines() if line.startswith("finding ")]
    assert findings
    assert all(line.startswith("finding ok: executor ") for line in findings), findings
