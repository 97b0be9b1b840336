"""`kafkagroup doctor` beside real brokers with and without security, and beside servers that are no brokers."""

import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from kafka_source.client_config import Settings
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.two_phase.open_transactions import describe
from kafka_source.transactions.open_transaction import initialise
from kafkagroup.admin import Groups
from kafkagroup.cli.app import app
from kafkagroup.doctor import Finding, examine
from kafkagroup.embedded import EmbeddedKafka, Frame, Security, TcpProxy
from tests.support.memberships import Memberships
from tests.support.native import reason_to_skip
from tests.support.records import Topic

PASSWORD, WRONG = "correct-horse-battery", "incorrect-donkey-socket"
ALL, NOTHING = "alice", "bob"
TOPIC = "payroll"
METADATA = 3


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """SASL_PLAINTEXT with ACLs: alice may do what a query does, bob may do nothing."""
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", {ALL: PASSWORD, NOTHING: PASSWORD}, acls=True)) as kafka:
        kafka.create_topic(TOPIC, 2)
        kafka.allow(ALL, "READ", "WRITE", name=TOPIC)
        kafka.allow(ALL, "READ", resource="group")
        kafka.allow(ALL, "WRITE", "DESCRIBE", resource="transactional_id")
        yield kafka


@pytest.fixture(scope="module")
def encrypted() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security=Security("SASL_SSL", {ALL: PASSWORD})) as kafka:
        yield kafka


@pytest.fixture
def http_server() -> Iterator[str]:
    """host:port of an HTTP server."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def with_password(config: Mapping[str, str], password: str) -> dict[str, str]:
    assert PASSWORD in config["sasl.jaas.config"]
    return {**config, "sasl.jaas.config": config["sasl.jaas.config"].replace(PASSWORD, password)}


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    text = "\n".join(map(str, findings))
    assert PASSWORD not in text
    assert WRONG not in text
    return {finding.name: finding for finding in findings}


def bootstrap(config: Mapping[str, str]) -> Finding:
    """The finding about the way to the only bootstrap server."""
    findings = by_name(examine(config, seconds=3))
    return findings[f"bootstrap server {config['bootstrap.servers']}"]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_an_open_broker_is_healthy_from_the_driver_and_the_executors(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic
) -> None:
    name = topic("doctor", partitions=1, records=1)
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    Groups(Settings(config)).committed(name)
    with closing(KafkaClient(Settings(config))) as client:
        client.run(initialise(client, f"{name}-0", 60_000, Deadline(30)))
    found = by_name(
        examine(config, spark=spark, topics=[name], output_topics=[name], group=name, transactional_id=name)
    )
    if reason_to_skip() is not None:
        assert found.pop("engine").state == "warn"
    assert {finding.state for finding in found.values()} <= {"ok", "skipped"}, found
    broker = f"broker 1 at {kafka.bootstrap_servers}"
    there = f"executor {socket.gethostname()}"
    for each in (broker, f"{there}: {broker}", f"{there}: packages", f"rights: topic {name}", f"rights: group {name}",
                 f"rights: transactional id {name}-driver", f"rights: transactional id {name}-doctor"):  # fmt: skip
        assert found[each].state == "ok", found[each]


def test_the_brokers_clock_is_compared_after_a_commit(kafka: EmbeddedKafka, topic: Topic, members: Memberships) -> None:
    name = topic("doctor-clock", partitions=1)
    membership = members.make(name, slots=1)
    (slot,) = membership.join(30).slots
    membership.commit({slot.credentials.slot: dict.fromkeys(slot.partitions, 0)})
    found = by_name(examine({"bootstrap.servers": kafka.bootstrap_servers}))
    assert found["clocks"].state == "ok", found["clocks"]


def test_to_ask_for_rights_changes_nothing(kafka: EmbeddedKafka, topic: Topic) -> None:
    prefix = topic("doctor-asks", partitions=1)
    settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
    with closing(KafkaClient(settings)) as client:
        held = client.run(initialise(client, f"{prefix}-driver", 60_000, Deadline(30)))
        before = client.run(describe(client, held.transactional_id, Deadline(30)))
        found = by_name(examine(settings, group=prefix, transactional_id=prefix))
        assert found[f"rights: transactional id {prefix}-driver"].state == "ok"
        assert client.run(describe(client, held.transactional_id, Deadline(30))) == before
        assert before.transaction == held


def test_a_new_cluster_is_asked_as_any_other(encrypted: EmbeddedKafka) -> None:
    found = by_name(examine(encrypted.java_client_config(ALL), group="g", transactional_id="sink"))
    rights = [finding for name, finding in found.items() if name.startswith("rights: ")]
    assert len(rights) == 9
    assert {finding.state for finding in rights} == {"ok"}, rights


def test_a_missing_topic_is_found(kafka: EmbeddedKafka) -> None:
    found = by_name(examine({"bootstrap.servers": kafka.bootstrap_servers}, topics=["no-such-topic"]))
    finding = found["rights: topic no-such-topic"]
    assert finding.state == "fail"
    assert "does not exist" in finding.happened


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_user_with_all_rights_has_them(guarded: EmbeddedKafka, mechanism: str) -> None:
    config = guarded.java_client_config(ALL, mechanism)  # type: ignore[arg-type]
    found = by_name(examine(config, topics=[TOPIC], output_topics=[TOPIC], group="g", transactional_id="sink"))
    rights = {name: finding.state for name, finding in found.items() if name.startswith("rights: ")}
    assert set(rights.values()) <= {"ok"}, found
    assert len(rights) == 10


def test_each_missing_right_is_named(guarded: EmbeddedKafka) -> None:
    config = guarded.java_client_config(NOTHING)
    found = by_name(examine(config, topics=[TOPIC], group="g", transactional_id="sink"))
    for resource, missing in (
        (f"topic {TOPIC}", "no READ"),
        ("group g", "no READ"),
        ("transactional id g-doctor", "no WRITE and no DESCRIBE"),
        ("transactional id sink-driver", "no WRITE and no DESCRIBE"),
        ("group g-read-by-doctor", "no READ"),
        ("group g-rejoined-doctor", "no READ"),
        ("group g-kafkagroup-halt", "no READ"),
        ("group g-kafkagroup-idle", "no READ"),
        ("group sink-ledger", "no READ"),
        ("group sink-finished", "no READ"),
    ):
        finding = found[f"rights: {resource}"]
        assert finding.state == ("warn" if " g-" in resource else "fail"), finding
        assert missing in finding.happened
        assert resource in finding.advice
    assert found["clocks"].state == "skipped"


def test_a_wrong_password_fails_at_the_login(guarded: EmbeddedKafka) -> None:
    finding = bootstrap(with_password(guarded.java_client_config(ALL, "SCRAM-SHA-512"), WRONG))
    assert finding.state == "fail"
    assert finding.happened.startswith("the SASL login failed")


@pytest.mark.parametrize(
    ("protocol", "step", "advice"),
    [
        ("PLAINTEXT", "the request for the cluster's metadata", "requires a login"),
        ("SSL", "the TLS handshake", "speaks Kafka without TLS"),
        ("SASL_SSL", "the TLS handshake", "SASL_PLAINTEXT or PLAINTEXT"),
    ],
)
def test_the_wrong_protocol_at_a_plaintext_listener_is_named(
    guarded: EmbeddedKafka, protocol: str, step: str, advice: str
) -> None:
    finding = bootstrap({**guarded.java_client_config(ALL), "security.protocol": protocol})
    assert finding.happened.startswith(f"{step} failed"), finding
    assert advice in finding.advice


def test_a_login_where_none_is_wanted_is_named(kafka: EmbeddedKafka, guarded: EmbeddedKafka) -> None:
    config = {**guarded.java_client_config(ALL), "bootstrap.servers": kafka.bootstrap_servers}
    finding = bootstrap(config)
    assert finding.happened.startswith("the SASL login failed"), finding
    assert "kafka.security.protocol" in finding.advice


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_the_wrong_protocol_at_a_tls_listener_is_named(encrypted: EmbeddedKafka, protocol: str) -> None:
    finding = bootstrap({**encrypted.java_client_config(ALL), "security.protocol": protocol})
    assert finding.happened.startswith("the first request (ApiVersions) failed"), finding
    assert "The listener uses TLS" in finding.advice


def test_tls_shows_the_certificates_names_and_its_end(encrypted: EmbeddedKafka) -> None:
    config = encrypted.java_client_config(ALL)
    found = by_name(examine(config))
    finding = found[f"bootstrap server {config['bootstrap.servers']}: certificate"]
    assert finding.state == "ok"
    assert "localhost, 127.0.0.1" in finding.happened
    assert found[f"broker 1 at {config['bootstrap.servers']}"].state == "ok"


def test_a_certificate_that_is_not_trusted_is_named(encrypted: EmbeddedKafka) -> None:
    config = encrypted.java_client_config(ALL)
    del config["ssl.truststore.location"]
    finding = bootstrap(config)
    assert finding.happened.startswith("the TLS handshake failed"), finding
    assert "kafka.ssl.truststore.location" in finding.advice


def test_a_certificate_for_another_name_is_shown_with_its_names(encrypted: EmbeddedKafka) -> None:
    # Another way to write 127.0.0.1, for which the certificate is not valid.
    config = {**encrypted.java_client_config(ALL), "bootstrap.servers": f"127.1:{encrypted.port()}"}
    finding = bootstrap(config)
    assert finding.happened.startswith("the TLS handshake failed"), finding
    assert "valid for localhost, 127.0.0.1" in finding.advice


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_an_http_server_is_named(http_server: str, protocol: str) -> None:
    finding = bootstrap({"bootstrap.servers": http_server, "security.protocol": protocol})
    assert finding.state == "fail"
    assert "An HTTP server answers" in finding.advice


def test_a_port_where_nobody_listens_and_a_name_that_does_not_exist() -> None:
    refused = bootstrap({"bootstrap.servers": f"127.0.0.1:{closed_port()}"})
    assert refused.happened.startswith("TCP failed"), refused
    unknown = bootstrap({"bootstrap.servers": "no-such-host.invalid:9092"})
    assert unknown.happened.startswith("the host's name failed"), unknown
    assert "bootstrap.servers" in unknown.advice


def test_one_bootstrap_server_of_two_is_enough(kafka: EmbeddedKafka) -> None:
    dead = f"127.0.0.1:{closed_port()}"
    found = by_name(examine({"bootstrap.servers": f"{dead},{kafka.bootstrap_servers}"}))
    assert found[f"bootstrap server {dead}"].state == "warn"
    assert found[f"broker 1 at {kafka.bootstrap_servers}"].state == "ok"


def test_wrong_advertised_listeners_are_named(kafka: EmbeddedKafka) -> None:
    wrong = closed_port()

    def advertise(frame: Frame) -> list[bytes]:
        if frame.api_key != METADATA:
            return [frame.payload]
        return [frame.payload.replace(struct.pack(">i", kafka.port()), struct.pack(">i", wrong))]

    with TcpProxy() as proxy:
        proxy.connect_to(kafka.port())
        proxy.on_response = advertise
        servers = f"127.0.0.1:{proxy.port}"
        found = by_name(examine({"bootstrap.servers": servers}, seconds=3))
    assert found[f"bootstrap server {servers}"].state == "ok"
    finding = found[f"broker 1 at 127.0.0.1:{wrong}"]
    assert finding.state == "fail"
    assert "Set advertised.listeners of the broker" in finding.advice


# ---- the command


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert PASSWORD not in result.output
    return result.exit_code, result.output


def test_the_command_shows_the_installation_alone() -> None:
    code, said = run()
    assert code == 0, said
    assert {line.split()[0] for line in said.splitlines()} <= {"ok", "warn", "skipped", "→"}
    assert "engine: " in said


def test_the_command_gives_json_and_exit_codes(guarded: EmbeddedKafka) -> None:
    login = str(guarded.java_client_file(ALL))
    servers = ("--bootstrap-server", guarded.bootstrap_servers, "--command-config", login)
    code, said = run(*servers, "-o", "json", "--topic", TOPIC, "--group", "g", "--transactional-id", "sink")
    document = json.loads(said)
    assert (code, document["healthy"]) == (0, True), said
    assert all(set(each) == {"name", "state", "happened", "advice"} for each in document["findings"])
    code, said = run(*servers, "-o", "json", "--topic", "no-such-topic")
    assert (code, json.loads(said)["healthy"]) == (1, False)


def test_a_missing_file_of_a_setting_is_a_finding(encrypted: EmbeddedKafka, tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    finding = bootstrap({**encrypted.java_client_config(ALL), "ssl.truststore.location": missing})
    assert finding.happened.startswith("the client settings failed"), finding
    assert missing in finding.happened
