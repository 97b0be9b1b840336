"""The embedded Kafka as its users meet it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafkagroup.embedded import BrokerError, EmbeddedKafka, Security, run_java
from kafkagroup.embedded import cluster as cluster_module
from kafkagroup.embedded.server_config import free_ports
from tests.support.records import Topic
from tests.support.waiting import wait_until

SECRET = 'alice\'s "word" \\ é'


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that tests may hurt."""
    with EmbeddedKafka(data_dir=tmp_path_factory.mktemp("own")) as kafka:
        yield kafka


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def produce(config: Mapping[str, str], topic: str, *values: bytes) -> None:
    producer = Producer({**config, "log_level": 0})
    failed: list[KafkaError] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failed


def take(consumer: Consumer, count: int) -> list[bytes]:
    with closing(consumer):
        deadline = time.monotonic() + 30
        values: list[bytes] = []
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        return values


def read(config: Mapping[str, str], topic: str, count: int) -> list[bytes]:
    """What partition 0 holds, without a group."""
    consumer = Consumer({**config, "group.id": "unused", "enable.auto.commit": "false", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return take(consumer, count)


def read_as_group(config: Mapping[str, str], topic: str, count: int) -> list[bytes]:
    settings = {"group.id": f"reads-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**config, **settings})
    consumer.subscribe([topic])
    return take(consumer, count)


def answers(config: Mapping[str, str], timeout: float = 1.0) -> bool:
    try:
        AdminClient({**config, "log_level": 0}).list_topics(timeout=timeout)
    except KafkaException:
        return False
    return True


# ---- fixtures and tools


def test_topics_are_made_with_settings_and_deleted(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("compacted", config={"cleanup.policy": "compact"})
    described = run_java(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        "--describe",
        "--topic",
        name,
    )
    assert "cleanup.policy=compact" in described.stdout, described.stderr
    kafka.delete_topic(name)
    wait_until(lambda: name not in kafka.admin().list_topics(timeout=10).topics, "the topic to be deleted")
    with pytest.raises(KafkaException):
        kafka.delete_topic(name)


def test_kafkas_own_tools_read_the_topic_and_describe_the_group(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic()
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    produce(kafka.client_config(), name, b"one", b"two")
    assert read_as_group(kafka.client_config(), name, 2) == [b"one", b"two"]
    console = ("org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--topic", name, "--from-beginning")
    read = run_java(*console, "--max-messages", "2", "--timeout-ms", "20000")
    assert read.stdout.split() == ["one", "two"], read.stderr
    group_tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    described = run_java(group_tool, *server, "--describe", "--group", f"reads-{name}")
    row = next(line.split() for line in described.stdout.splitlines() if f" {name} " in line)
    assert row[2:6] == ["0", "2", "2", "0"], described.stdout  # partition, committed, end, lag


# ---- one node in trouble


def test_data_and_identity_outlive_a_stop_where_they_are_to_be_kept(own: EmbeddedKafka) -> None:
    own.create_topic("kept")
    produce(own.client_config(), "kept", b"value")
    identity = own.admin().list_topics(timeout=10).cluster_id
    own.stop()
    with pytest.raises(BrokerError, match="not started"):
        own.is_running()
    own.start()
    assert own.admin().list_topics(timeout=10).cluster_id == identity
    assert read(own.client_config(), "kept", 1) == [b"value"]


# ---- beginnings and ends

ABANDONED = """
import os, sys, time
from kafkagroup.embedded import EmbeddedKafka
kafka = EmbeddedKafka().start()
# A fork holds everything that its parent had open, and lives on.
fork = os.fork()
if fork:
    print(kafka.pid(), kafka.data_folder(), fork, flush=True)
time.sleep(300)
"""


def test_no_broker_and_no_data_is_left_when_the_parent_dies_by_kill_9() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ABANDONED], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, contextlib.ExitStack() as last:
        broker, folder, fork = parent.stdout.readline().split()
        last.callback(os.kill, int(fork), signal.SIGKILL)
        assert is_alive(int(broker))
        assert Path(folder).is_dir()
        parent.kill()
        wait_until(lambda: not is_alive(int(broker)), "the broker to end")
        wait_until(lambda: not Path(folder).exists(), "its folder to be gone")


def test_a_start_that_fails_shows_what_the_broker_said() -> None:
    kafka = EmbeddedKafka(config={"authorizer.class.name": "org.example.NoSuchAuthorizer"})
    with pytest.raises(BrokerError, match=r"(?s)Node 1 stopped while it started.*org\.example\.NoSuchAuthorizer"):
        kafka.start()
    with pytest.raises(BrokerError, match="not started"):
        _ = kafka.bootstrap_servers


def test_a_port_that_another_process_took_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        choices = iter([[taken, *free_ports(2)]])
        monkeypatch.setattr(cluster_module, "free_ports", lambda count: next(choices, None) or free_ports(count))
        with EmbeddedKafka() as kafka:
            assert next(choices, None) is None
            assert kafka.port() != taken
            assert answers(kafka.client_config(), timeout=10)


def test_settings_that_the_format_refuses_are_shown() -> None:
    with pytest.raises(BrokerError, match=r"(?s)StorageTool format failed.*num\.io\.threads"):
        EmbeddedKafka(config={"num.io.threads": "many"}).start()


def test_a_start_that_takes_too_long_is_ended() -> None:
    kafka = EmbeddedKafka(start_timeout=0.01)
    with pytest.raises(BrokerError, match="Node 1 did not start in time"):
        kafka.start()
    with pytest.raises(BrokerError, match="not started"):
        kafka.pid()


# ---- security


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    users = {"alice": SECRET, "bob": "bob-password"}
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", users=users, acls=True)) as kafka:
        yield kafka


def test_no_password_is_in_the_log_or_in_the_arguments_of_a_process(guarded: EmbeddedKafka) -> None:
    log = guarded.log()
    assert "sasl.jaas.config" in log
    assert "bob-password" not in log
    assert SECRET not in log
    arguments = subprocess.run(
        ["ps", "-ww", "-p", str(guarded.pid()), "-o", "args="], capture_output=True, text=True, check=True
    )
    assert "kafka.Kafka" in arguments.stdout
    assert "bob-password" not in arguments.stdout
    file = guarded.java_client_file("bob")
    assert file.stat().st_mode & 0o077 == 0


def test_tls_with_a_login_for_librdkafka_and_for_java() -> None:
    with EmbeddedKafka(security=Security("SASL_SSL", users={"alice": SECRET})) as kafka:
        kafka.create_topic("encrypted")
        config = kafka.client_config("alice", "SCRAM-SHA-512")
        produce(config, "encrypted", b"value")
        assert read(config, "encrypted", 1) == [b"value"]
        listed = run_java(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", kafka.bootstrap_servers, "--list"),
            *("--command-config", str(kafka.java_client_file("alice", "SCRAM-SHA-256"))),
        )
        assert "encrypted" in listed.stdout.split(), listed.stderr
        untrusting = {key: value for key, value in config.items() if key != "ssl.ca.location"}
        assert not answers(untrusting, timeout=2)


def test_the_command_runs_a_broker_with_a_login_until_ctrl_c_and_what_it_prints_connects() -> None:
    command = [sys.executable, "-m", "kafkagroup.cli", "embedded", "-t", "orders:4", "--security", "SASL_PLAINTEXT"]
    # Not the terminal's group: Ctrl-C is for this process.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        printed = ""
        while "subscribe=" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        code = printed.partition("`orders`:")[2].rpartition("    spark.read")[0]
        shown: dict[str, dict[str, str]] = {}
        exec(textwrap.dedent(code), shown)
        settings = {name.removeprefix("kafka."): value for name, value in shown["options"].items()}
        assert "password" not in printed
        with closing(Cluster(Settings(settings))) as cluster:
            found = cluster.topics({"orders"})["orders"]
            assert found is not None
            assert found.partitions == 4
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
