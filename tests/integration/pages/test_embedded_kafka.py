"""The embedded Kafka as its users meet it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
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
from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy
from tests.support.waiting import wait_until

PRODUCE = 0
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
    try:
        deadline = time.monotonic() + 30
        values: list[bytes] = []
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        return values
    finally:
        consumer.close()


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


def test_the_fixtures_give_a_broker_with_fresh_topics(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    first, second = topic("orders", partitions=3), topic("orders", partitions=2)
    topics = kafka.admin().list_topics(timeout=10).topics
    assert len(topics[first].partitions) == 3
    assert len(topics[second].partitions) == 2


def test_topics_are_made_with_settings_and_deleted(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
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
    wait_until(lambda: name not in kafka.admin().list_topics(timeout=10).topics, "the topic to be deleted", 30)
    with pytest.raises(KafkaException):
        kafka.delete_topic(name)


def test_kafkas_own_tools_read_the_topic_and_describe_the_group(
    kafka: EmbeddedKafka, topic: Callable[..., str]
) -> None:
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


def test_a_killed_node_is_gone_and_comes_back_with_its_data(own: EmbeddedKafka) -> None:
    own.create_topic("killed")
    produce(own.client_config(), "killed", b"kept")
    pid = own.pid()
    assert pid is not None
    own.kill()
    assert not own.is_running()
    assert not is_alive(pid)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", own.port()), timeout=5)
    before = own.bootstrap_servers
    own.restart()
    assert own.bootstrap_servers == before
    assert read(own.client_config(), "killed", 1) == [b"kept"]


def test_a_paused_node_answers_nothing_until_it_is_resumed(own: EmbeddedKafka) -> None:
    own.pause()
    try:
        assert own.is_running()
        socket.create_connection(("127.0.0.1", own.port()), timeout=5).close()
        assert not answers(own.client_config())
    finally:
        own.resume()
    own.wait_ready()
    assert answers(own.client_config(), timeout=10)


def test_a_node_moves_to_another_port_with_its_data(own: EmbeddedKafka) -> None:
    own.create_topic("moved")
    produce(own.client_config(), "moved", b"kept")
    before = own.port()
    own.restart(new_ports=True)
    assert own.port() != before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", before), timeout=5)
    assert read(own.client_config(), "moved", 1) == [b"kept"]


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
        wait_until(lambda: not is_alive(int(broker)), "the broker to end", 30)
        wait_until(lambda: not Path(folder).exists(), "its folder to be gone", 30)


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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_log_in_and_wrong_passwords_do_not(guarded: EmbeddedKafka, mechanism: str) -> None:
    config = guarded.client_config("alice", mechanism)  # type: ignore[arg-type]
    assert answers(config, timeout=10)
    refused: list[KafkaError] = []
    wrong = AdminClient({**config, "sasl.password": "wrong", "log_level": 0, "error_cb": refused.append})  # type: ignore[dict-item]  # confluent-kafka types callbacks nowhere
    wait_until(lambda: wrong.poll(0.2) > 0 and bool(refused), "a refusal", 30)
    assert refused[0].code() == KafkaError._AUTHENTICATION


def test_what_is_not_allowed_is_denied(guarded: EmbeddedKafka) -> None:
    guarded.create_topic("payroll")
    alice, bob = guarded.client_config("alice", "SCRAM-SHA-256"), guarded.client_config("bob")
    guarded.allow("alice", "READ", "WRITE", name="payroll")
    guarded.allow("alice", "READ", resource="group", name="reads-payroll")
    produce(alice, "payroll", b"100")
    assert read_as_group(alice, "payroll", 1) == [b"100"]
    assert "payroll" not in AdminClient({**bob}).list_topics(timeout=10).topics
    with pytest.raises(KafkaException) as denied:
        consumer = Consumer({**alice, "group.id": "another", "log_level": 0})
        consumer.subscribe(["payroll"])
        message = consumer.poll(15)
        raise KafkaException(message and message.error())
    assert denied.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


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


# ---- a proxy in between


def test_clients_go_through_the_proxy_that_is_advertised() -> None:
    with TcpProxy() as proxy, EmbeddedKafka(advertised_ports={1: proxy.port}) as kafka:
        proxy.connect_to(kafka.port())
        assert kafka.bootstrap_servers == f"127.0.0.1:{proxy.port}"
        kafka.create_topic("watched")
        lost: list[Frame] = []

        def lose_the_first_produce_answer(frame: Frame) -> list[bytes]:
            if frame.api_key == PRODUCE and not lost:
                lost.append(frame)
                return []
            return [frame.payload]

        proxy.on_response = lose_the_first_produce_answer
        config = {**kafka.client_config(), "enable.idempotence": "true", "socket.timeout.ms": "1000"}
        produce(config, "watched", b"once")
        assert len(lost) == 1
        # The answer was lost and the batch sent again; the broker knows it by its sequence number.
        reader = Consumer({**kafka.client_config(), "group.id": "none"})
        assert reader.get_watermark_offsets(TopicPartition("watched", 0), timeout=10) == (0, 1)
        reader.close()
        proxy.hold("response")
        assert not answers(kafka.client_config())
        proxy.release()
        assert answers(kafka.client_config(), timeout=10)


# ---- three nodes


def leader_of(kafka: EmbeddedKafka, topic: str) -> int:
    leader: int = kafka.admin().list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    return leader


@pytest.mark.long
@pytest.mark.parametrize(("version", "nodes"), [("2.8.2", 1), ("3.3.2", 3), ("3.9.1", 1), ("4.0.1", 1)])
def test_older_versions_of_kafka(version: str, nodes: int) -> None:
    with EmbeddedKafka(nodes, version=version) as kafka:
        kafka.create_topic("orders", replication_factor=nodes)
        produce({"bootstrap.servers": kafka.bootstrap_servers}, "orders", b"one", b"two")
        kafka.restart()
        consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
        )
        try:
            consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
            assert [message.value() for message in consumer.consume(2, timeout=60)] == [b"one", b"two"]
        finally:
            consumer.close()
        assert f"Kafka version: {version}" in kafka.log()


@pytest.mark.long
def test_a_cluster_survives_the_loss_and_the_move_of_a_node(cluster: EmbeddedKafka) -> None:
    assert sorted(cluster.admin().list_topics(timeout=10).brokers) == cluster.node_ids == [1, 2, 3]
    cluster.create_topic("replicated", replication_factor=3, config={"min.insync.replicas": 2})
    produce(cluster.client_config(), "replicated", b"before")
    lost = leader_of(cluster, "replicated")
    cluster.kill(lost)
    wait_until(lambda: leader_of(cluster, "replicated") not in (lost, -1), "another leader", 30)
    produce(cluster.client_config(), "replicated", b"after")
    cluster.restart(lost, new_ports=True)
    assert f"127.0.0.1:{cluster.port(lost)}" in cluster.bootstrap_servers.split(",")
    moved = {"bootstrap.servers": f"127.0.0.1:{cluster.port(lost)}"}
    assert read(moved, "replicated", 2) == [b"before", b"after"]


@pytest.mark.long
def test_a_cluster_goes_on_while_a_node_is_paused(cluster: EmbeddedKafka) -> None:
    cluster.create_topic("patient", replication_factor=3)
    paused = leader_of(cluster, "patient")
    cluster.pause(paused)
    try:
        others = ",".join(f"127.0.0.1:{cluster.port(i)}" for i in cluster.node_ids if i != paused)

        def leader() -> int:
            view = AdminClient({"bootstrap.servers": others, "log_level": 0}).list_topics("patient", timeout=10)
            return int(view.topics["patient"].partitions[0].leader)

        wait_until(lambda: leader() not in (paused, -1), "another leader", 30)
        produce({"bootstrap.servers": others}, "patient", b"value")
    finally:
        cluster.resume(paused)
    cluster.wait_ready()
    assert read(cluster.client_config(), "patient", 1) == [b"value"]


def test_the_command_runs_a_broker_with_a_login_until_ctrl_c_and_what_it_prints_connects(tmp_path: Path) -> None:
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
