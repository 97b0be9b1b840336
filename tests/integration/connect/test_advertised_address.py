"""Brokers that advertise an address at which no client reaches them: the first mistake with containers."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import BootstrapError, KafkaGroupError
from kafka_source.kafka_client import ConnectionLost, Deadline, Endpoint, KafkaClient, advertised
from kafkagroup import arrow
from kafkagroup.cli.app import app
from kafkagroup.embedded import EmbeddedKafka, TcpProxy
from kafkagroup.embedded.server_config import LOOPBACK
from tests.support.records import running

Use = Callable[[SparkSession, dict[str, str]], object]


@pytest.fixture(params=["refused", "closed", "silent"])
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedKafka, str]]:
    """A broker, and the address that it advertises and that does not answer."""
    with ExitStack() as stack:
        if request.param == "refused":
            # Bound without a listener: connections are refused, and no broker of another test can take the port.
            bound = stack.enter_context(socket.socket())
            bound.bind((LOOPBACK, 0))
            port = bound.getsockname()[1]
        elif request.param == "closed":
            port = stack.enter_context(TcpProxy()).port
        else:
            port = stack.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1]
        kafka = stack.enter_context(EmbeddedKafka(advertised_ports={1: port}))
        kafka.create_topic("orders", 1)
        advertised._answered.clear()
        yield kafka, f"{LOOPBACK}:{port}"


def read(spark: SparkSession, options: dict[str, str]) -> None:
    spark.read.format("kafkagroup").options(**options, subscribe="orders").load().collect()


def stream(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.readStream.format("kafkagroup").options(**options, subscribe="orders").load()
    with running(rows.writeStream.format("noop").start()) as query:
        query.awaitTermination()


def read_in_group(spark: SparkSession, options: dict[str, str]) -> None:
    stream(spark, {**options, "kafka.group.id": "shipping"})


def write(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.createDataFrame([("a",)], "value string")
    rows.write.format("kafkagroup").mode("append").options(**options, topic="orders").save()


def bare(options: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("kafka."): value for name, value in options.items()}


def read_arrow(_: SparkSession, options: dict[str, str]) -> None:
    pa.table(arrow.read("orders", bare(options)))


def write_arrow(_: SparkSession, options: dict[str, str]) -> None:
    arrow.write("orders", pa.table({"value": [b"a"]}), bare(options))


def command(*words: str) -> Use:
    def run(_: SparkSession, options: dict[str, str]) -> None:
        done = CliRunner().invoke(app, [*words, "-b", options["kafka.bootstrap.servers"]])
        assert done.exit_code
        raise KafkaGroupError(done.output)

    return run


USES: dict[str, Use] = {
    "batch": read,
    "stream": stream,
    "group": read_in_group,
    "sink": write,
    "arrow.read": read_arrow,
    "arrow.write": write_arrow,
    "peek": command("peek", "orders"),
    "topics": command("topics", "orders"),
    "groups": command("groups"),
    "group command": command("group", "shipping"),
}


@pytest.mark.parametrize("engine", ["librdkafka", pytest.param("native", marks=pytest.mark.requires_native)])
def test_each_use_ends_with_both_addresses_and_the_setting(
    kafka: tuple[EmbeddedKafka, str], spark: SparkSession, engine: str
) -> None:
    broker, address = kafka
    servers = f"{LOOPBACK}:{broker.port(1)}"
    for name, use in USES.items():
        advertised._answered.clear()
        with pytest.raises(Exception, match="has answered, but the brokers cannot be reached") as failed:
            use(spark, {"kafka.bootstrap.servers": servers, "engine": engine})
        message = str(failed.value)
        assert f"{servers} of kafka.bootstrap.servers" in message, name
        assert f"broker 1 advertises {address}" in message, name
        assert "Set advertised.listeners" in message, name
        assert "security.protocol" not in message, name


def test_a_warning_comes_before_the_error(kafka: tuple[EmbeddedKafka, str], caplog: pytest.LogCaptureFixture) -> None:
    broker, address = kafka
    client = KafkaClient(Settings({"bootstrap.servers": f"{LOOPBACK}:{broker.port(1)}"}))
    with closing(client), caplog.at_level(logging.WARNING):
        client.run(client.metadata((), Deadline(30)))
        # The warning comes before the error.
        with pytest.raises(ConnectionLost, match=r"advertised\.listeners"):
            client.run(client.reach_broker(Deadline(advertised.WARNING_SECONDS)))
    assert f"broker 1 advertises {address}" in caplog.text


def test_brokers_that_have_answered_this_process_may_restart(kafka: tuple[EmbeddedKafka, str]) -> None:
    broker, address = kafka
    host, port = address.split(":")
    advertised.note_answer(Endpoint(host, int(port)))
    settings = {"bootstrap.servers": f"{LOOPBACK}:{broker.port(1)}", "default.api.timeout.ms": "10000"}
    with closing(Cluster(Settings(settings))) as cluster, pytest.raises(BootstrapError) as failed:
        orders = [TopicPartition("orders", 0)]
        cluster.bounds(orders, orders, read_committed=False)
    assert "advertised.listeners" not in str(failed.value)
