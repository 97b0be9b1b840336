import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkagroup.embedded import EmbeddedKafka, Security
from kafkagroup.embedded.node import needs_zookeeper, new_uuid
from kafkagroup.embedded.security import TlsFiles, broker_settings, client_settings, java_client_settings
from kafkagroup.embedded.server_config import NodePorts, free_ports, is_free, render_properties, server_config

SECRET = 'pass "word" \\ ü'


def read_properties(text: str) -> dict[str, str]:
    """As java.util.Properties reads what `render_properties` may write."""
    escapes = {"n": "\n", "r": "\r", "t": "\t"}

    def unescape(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if match[1][0] == "u" else escapes.get(match[1], match[1])

    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        plain = re.sub(r"\\(u[0-9a-f]{4}|.)", unescape, value.lstrip(" \t\f"))
        found[name] = plain.encode("utf-16", "surrogatepass").decode("utf-16")
    return found


@given(st.dictionaries(st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True), st.text(), max_size=5))
def test_properties_keep_every_value(config: dict[str, str]) -> None:
    text = render_properties(config)
    assert text.isascii()
    assert read_properties(text) == config


def test_the_users_settings_win_and_become_text() -> None:
    config = server_config(
        1,
        NodePorts(9092, 9093, 9094, advertised=19092),
        {1: 9094},
        Path("/data"),
        {},
        {"auto.create.topics.enable": True, "num.io.threads": 9, "cleanup": ["a", "b"]},
    )
    assert config["auto.create.topics.enable"] == "true"
    assert config["num.io.threads"] == "9"
    assert config["cleanup"] == "a,b"
    assert config["advertised.listeners"].startswith("CLIENT://127.0.0.1:19092,")
    assert config["listeners"].startswith("CLIENT://127.0.0.1:9092,")


def test_records_of_any_time_stay_unless_the_user_says_otherwise() -> None:
    ports = NodePorts(9092, 9093, 9094)
    assert server_config(1, ports, {1: 9094}, Path("/data"), {}, {})["log.retention.ms"] == "-1"
    assert server_config(1, ports, {1: 9094}, Path("/data"), {}, {"log.retention.ms": 5})["log.retention.ms"] == "5"


@pytest.mark.parametrize(
    ("version", "old"), [("2.8.2", True), ("3.2.3", True), ("3.3.2", False), ("3.10.0", False), ("4.3.1", False)]
)
def test_brokers_before_kraft_have_a_zookeeper(version: str, old: bool) -> None:
    assert needs_zookeeper(version) is old


def test_acls_are_not_given_where_they_would_not_be_kept() -> None:
    security = Security("SASL_PLAINTEXT", {"alice": "secret"}, acls=True)
    with pytest.raises(ValueError, match=r"ACLs need Kafka 3\.3 or newer here, and the version is 2\.8\.2"):
        EmbeddedKafka(security=security, version="2.8.2")
    with pytest.raises(ValueError, match=r"a version of Kafka such as 3\.9\.1, got 'newest'"):
        EmbeddedKafka(version="newest")


def test_a_broker_with_zookeeper_has_no_controller() -> None:
    ports = NodePorts(9092, 9093, 9094)
    kraft = server_config(1, ports, {1: 9094}, Path("/data"), {}, {})
    old = server_config(1, ports, {1: 9094}, Path("/data"), {}, {}, zookeeper=2181)
    assert kraft["process.roles"] == "broker,controller"
    assert "CONTROLLER://127.0.0.1:9094" in kraft["listeners"]
    assert old["zookeeper.connect"] == "127.0.0.1:2181"
    assert old["broker.id"] == "1"
    assert "CONTROLLER" not in old["listeners"]
    assert not {name for name in old if name.startswith(("controller.", "process.", "node."))}


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, "1", "1"), (3, "3", "2")])
def test_internal_topics_fit_the_number_of_nodes(nodes: int, replicas: str, in_sync: str) -> None:
    controllers = {i: 9000 + i for i in range(1, nodes + 1)}
    config = server_config(1, NodePorts(1, 2, 3), controllers, Path("/data"), {}, {})
    assert config["offsets.topic.replication.factor"] == replicas
    assert config["transaction.state.log.min.isr"] == in_sync


def test_secrets_are_in_no_repr() -> None:
    security = Security("SASL_SSL", users={"alice": SECRET})
    tls = TlsFiles(Path("a"), Path("b"), SECRET)
    kafka = EmbeddedKafka(security=security)
    for shown in (repr(security), repr(tls), repr(kafka)):
        assert "word" not in shown


def test_java_and_librdkafka_settings_log_the_same_user_in() -> None:
    security = Security("SASL_SSL", users={"alice": SECRET, "bob": "b"})
    tls = TlsFiles(Path("/tls/broker.p12"), Path("/tls/ca.pem"), "store")
    assert client_settings(security, tls, None, "SCRAM-SHA-512") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": "/tls/ca.pem",
    }
    java = java_client_settings(security, tls, "alice", "SCRAM-SHA-512")
    assert java["sasl.jaas.config"].endswith(' username="alice" password="pass \\"word\\" \\\\ ü";')
    assert java["ssl.truststore.location"] == "/tls/ca.pem"
    # The broker knows both PLAIN users; SCRAM's are told to it later.
    broker = broker_settings(security, tls)
    assert 'user_bob="b"' in broker["listener.name.client.plain.sasl.jaas.config"]
    assert "user_" not in broker["listener.name.client.scram-sha-256.sasl.jaas.config"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"protocol": "TLS"}, "protocol must be one of"),
        ({"protocol": "SASL_PLAINTEXT"}, "needs users"),
        ({"protocol": "SSL", "users": {"a": "b"}}, "takes no users"),
        ({"acls": True}, "acls need a SASL protocol"),
    ],
)
def test_security_that_does_not_fit_together_is_refused(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Security(**arguments)  # type: ignore[arg-type]


def test_unknown_users_and_mechanisms_are_refused() -> None:
    security = Security("SASL_PLAINTEXT", users={"alice": SECRET})
    with pytest.raises(ValueError, match="no user 'eve'; the users are alice"):
        client_settings(security, None, "eve", "PLAIN")
    with pytest.raises(ValueError, match="mechanism must be one of"):
        client_settings(security, None, None, "GSSAPI")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes no users"):
        client_settings(Security(), None, "alice", "PLAIN")


def test_wrong_numbers_of_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="nodes must be 1 or 3, got 2"):
        EmbeddedKafka(nodes=2)
    with pytest.raises(ValueError, match=r"advertised_ports names nodes \[2\]"):
        EmbeddedKafka(advertised_ports={2: 9092})


def test_ports_are_free_distinct_and_below_the_ephemeral_ranges() -> None:
    ports = free_ports(30)
    assert len(set(ports)) == 30
    assert all(15000 <= port < 32000 for port in ports)
    assert is_free(ports[0])


def test_ids_look_like_kafkas() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", new_uuid()) for _ in range(200))
