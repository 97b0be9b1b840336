"""An environment for each client that the project does not depend on, because the clients' requirements conflict."""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkagroup.embedded import resolve

ROOT = Path(__file__).parents[2]
FLINK_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
INSTALL_SECONDS = 900


class NotInstallableError(Exception):
    """A client cannot be installed here; the text is the end of pip's output."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of the comparison.

    Attributes:
        name: Its name in the table.
        module: Its program in `benchmarks`.
        distribution: The distribution whose version is shown.
        requirements: The requirements for an environment of its own; empty: the project's environment has the client.
        jar: The coordinate of a connector, for `$FLINK_KAFKA_JAR`.
    """

    name: str
    module: str
    distribution: str
    requirements: Sequence[str] = ()
    jar: str | None = None


CLIENTS = (
    Client("Spark, kafka", "clients.spark_kafka", "pyspark"),
    Client("Spark, kafkagroup", "clients.kafkagroup", "kafkagroup"),
    Client("PyFlink", "clients.pyflink_table", "apache-flink", ("apache-flink==2.3.0",), FLINK_CONNECTOR),
    Client("confluent-kafka", "clients.confluent_kafka_consume", "confluent-kafka"),
    Client("aiokafka", "clients.aiokafka_getmany", "aiokafka", ("aiokafka==0.14.0",)),
    Client("kafka-python", "clients.kafka_python_poll", "kafka-python"),
    Client("Quix Streams", "clients.quix_streams", "quixstreams", ("quixstreams==3.28.1",)),
)


@dataclass(frozen=True, slots=True)
class Installed:
    """A client that can be started.

    Attributes:
        client: The client.
        python: The Python of its environment.
        version: The version of its distribution there.
        variables: The environment variables of its program.
    """

    client: Client
    python: str
    version: str
    variables: Mapping[str, str] = field(default_factory=dict)


def install(client: Client, folder: Path) -> Installed:
    """Make the client's environment below `folder`, unless it exists.

    Raises:
        NotInstallableError: pip has failed, or has taken too long.
    """
    python = sys.executable
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    if client.requirements:
        home = folder / client.module
        python = str(home / "bin" / "python")
        variables = {name: value for name, value in variables.items() if not name.startswith("PYSPARK")}
        complete = home / "complete"
        if not complete.exists():
            venv.create(home, with_pip=True, clear=True)
            _pip(python, client.requirements)
            complete.touch()
    if client.jar:
        (jar,) = resolve([client.jar])
        variables["FLINK_KAFKA_JAR"] = str(jar)
    query = f"import importlib.metadata as m; print(m.version({client.distribution!r}))"
    version = subprocess.run([python, "-c", query], check=True, capture_output=True, text=True).stdout.strip()
    return Installed(client, python, version, variables)


def _pip(python: str, requirements: Sequence[str]) -> None:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstallableError(f"pip has not installed {' '.join(requirements)} in {INSTALL_SECONDS} s") from None
    if done.returncode:
        raise NotInstallableError(done.stderr.strip()[-500:])
