"""Shared by all notebooks: a Kafka, a Spark session, and names that are new in each run.

KAFKA_BOOTSTRAP_SERVERS, or on Databricks a widget, names the Kafka cluster; by default it is an embedded Kafka. The
Spark session is the platform's, or a local session.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic

import kafkagroup
from kafkagroup.embedded import EmbeddedKafka, EmbeddedKafkaError, resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BESIDE_THE_CONNECTOR = (
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


class Setting:
    """Where a notebook runs.

    Args:
        names: the notebook's `globals()`. On Databricks they have `dbutils` and `spark`.

    Attributes:
        client: the settings of Kafka clients.
        kafka: the same settings as Spark options.
        run: makes the names of topics, groups and folders new in each run.
        folder: for output and checkpoints. The executors reach this folder.
        driver_folder: a folder on the driver, because files on a Databricks volume do not allow an append.
        embedded: the embedded Kafka; None with your own Kafka.
        local: whether the notebook has started the Spark session.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        servers, scope, folder = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", ""), "", tempfile.gettempdir()
        databricks = names.get("dbutils")
        if databricks is not None:
            databricks.widgets.text("servers", "", "Kafka's bootstrap servers")
            databricks.widgets.text("scope", "", "Scope of the secrets username and password")
            databricks.widgets.text("folder", "", "Folder on a volume")
            servers, scope, folder = (databricks.widgets.get(name) for name in ("servers", "scope", "folder"))
            if not servers or not folder:
                raise ValueError("Fill in the widgets servers and folder, then run this cell again.")
        self.embedded = None if servers else EmbeddedKafka(on_progress=print).start()
        if self.embedded is not None:
            servers = self.embedded.bootstrap_servers
        self.client: dict[str, str | int | float | bool] = {"bootstrap.servers": servers}
        if scope and databricks is not None:
            username, password = (databricks.secrets.get(scope, name) for name in ("username", "password"))
            self.client |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
            self.client |= {"sasl.username": username, "sasl.password": password}
        self.kafka = {f"kafka.{name}": value for name, value in self.client.items()}
        self.run = uuid.uuid4().hex[:8]
        self.folder = f"{folder}/kafkagroup-{self.run}"
        self.driver_folder = tempfile.mkdtemp()
        self.local = "spark" not in names
        self._spark: SparkSession | None = names.get("spark")
        self._topics: list[str] = []
        print("Kafka at", servers)

    def topic(self, name: str, partitions: int) -> str:
        """Create a topic, and return its name, which is new in each run."""
        topic = f"{name}-{self.run}"
        admin = AdminClient(dict(self.client))  # Keep the client until its response has arrived.
        admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result()
        self._topics.append(topic)
        return topic

    def spark(self, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None) -> SparkSession:
        """Return the Spark session; jars and settings are for a local session."""
        from pyspark.sql import SparkSession  # A notebook without Spark needs no PySpark.

        if self._spark is None:
            os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers run this Python.
            local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            local |= {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}
            local |= {"spark.sql.shuffle.partitions": "2", "spark.jars": ",".join(map(str, jars)), **(settings or {})}
            builder = SparkSession.builder.master("local[2]")
            for name, value in local.items():
                builder = builder.config(name, value)
            self._spark = builder.getOrCreate()
            self.log_level("ERROR")
        kafkagroup.register(self._spark)  # Needed if Spark does not find the format itself, as on Databricks.
        return self._spark

    def spark_with_its_own_connector(self) -> tuple[SparkSession, str]:
        """Return the session and `kafka`, or `kafkagroup` if the connector's jars are not available."""
        if not self.local:
            return self.spark(), "kafka"
        release = min(version("pyspark"), "4.2.0")  # The connector of 4.2.0 serves newer Sparks too.
        connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}"
        try:
            jars = resolve([connector, *_BESIDE_THE_CONNECTOR], on_progress=print)
        except EmbeddedKafkaError as error:
            print(f"Spark's own connector cannot be had here, so kafkagroup writes the first checkpoint too: {error}")
            return self.spark(), "kafkagroup"
        return self.spark(jars), "kafka"

    def spark_with_delta(self) -> tuple[SparkSession, str]:
        """Return the session and `delta`, or `parquet` if Delta Lake is not available."""
        if not self.local:
            return self.spark(), "delta"
        try:
            release = ".".join(version("pyspark").split(".")[:2])
            delta = f"io.delta:delta-spark_{release}_2.13:{version('delta-spark')}"
            jars = resolve([delta], transitive=True, on_progress=print)
        except (PackageNotFoundError, EmbeddedKafkaError) as error:
            print(f"Delta Lake is not available here, so the table is of Parquet files: {error}")
            return self.spark(), "parquet"
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        extension = "io.delta.sql.DeltaSparkSessionExtension"
        settings = {"spark.sql.extensions": extension, "spark.sql.catalog.spark_catalog": catalog}
        return self.spark(jars, settings), "delta"

    def log_level(self, level: str) -> None:
        """Set the log level of a local Spark session. `OFF` is for an intended crash."""
        if self.local and self._spark is not None:
            self._spark.sparkContext.setLogLevel(level)

    def clean_up(self) -> None:
        """Delete topics and files, and stop what this notebook has started."""
        admin = AdminClient(dict(self.client))
        for deleted in admin.delete_topics(self._topics).values() if self._topics else ():
            deleted.result()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.driver_folder)
        if self.local and self._spark is not None:
            self._spark.stop()
        if self.embedded is not None:
            self.embedded.stop()
