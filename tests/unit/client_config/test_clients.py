"""Java-named settings as both client libraries take them."""

import http.server
import importlib.util
import json
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.client_config.check import check_settings
from kafka_source.client_config.java_settings import Role
from kafka_source.client_config.librdkafka import DEFAULTS
from kafka_source.client_config.sasl import sasl_of
from kafka_source.errors import AuthenticationError, OptionError, RetriableError
from kafka_source.kafka_client.sasl import Login, Tokens

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="pw";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="pw";'
KEYTAB = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/k" principal="me@X";'
DELEGATED = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="id" password="pw" tokenauth="true";'
)
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def librdkafka(**settings: str) -> dict[str, object]:
    return librdkafka_config(Settings({name.replace("_", "."): value for name, value in settings.items()}))


def login(settings: Settings) -> Login:
    """How our own client logs in."""
    found = Login.of(settings)
    assert found is not None
    return found


def tokens(settings: Settings) -> Tokens:
    """The tokens of our own client."""
    found = login(settings).tokens
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("java", "value", "expected"),
    [
        ("bootstrap.servers", "a:1,b:2", {"bootstrap.servers": "a:1,b:2"}),
        ("acks", "all", {"acks": "all"}),
        ("linger.ms", "5", {"linger.ms": "5"}),
        ("max.request.size", "2000000", {"message.max.bytes": "2000000"}),
        ("buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768"}),
        ("request.timeout.ms", "30000", {"socket.timeout.ms": "30000"}),
        ("fetch.max.wait.ms", "500", {"fetch.wait.max.ms": "500"}),
        ("receive.buffer.bytes", "65536", {"socket.receive.buffer.bytes": "65536"}),
        ("connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
        ("receive.buffer.bytes", "-1", {"socket.receive.buffer.bytes": "0"}),
        ("client.dns.lookup", "default", {"client.dns.lookup": "use_all_dns_ips"}),
        ("max.block.ms", "5000", {"topic.metadata.propagation.max.ms": "5000"}),
        ("allow.auto.create.topics", "true", {}),
        ("statistics.interval.ms", "1000", {"statistics.interval.ms": "1000"}),
        ("default.api.timeout.ms", "60000", {}),
        ("group.id", "g", {}),
        ("session.timeout.ms", "45000", {}),
        ("max.poll.records", "500", {}),
    ],
)
def test_java_names(java: str, value: str, expected: dict[str, str]) -> None:
    assert librdkafka_config(Settings({java: value})) == {**DEFAULTS, **expected}


@pytest.mark.parametrize(("codec", "level"), [("zstd", {"compression.level": "7"}), ("lz4", {})])
def test_a_compression_level_counts_for_its_own_codec(codec: str, level: dict[str, str]) -> None:
    config = librdkafka_config(Settings({"compression.type": codec, "compression.zstd.level": "7"}))
    assert config == {**DEFAULTS, "compression.type": codec, **level}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("role", "name"),
    [
        (Role.CONSUMER, "auto.offset.reset"),
        (Role.CONSUMER, "value.deserializer"),
        (Role.PRODUCER, "partitioner.class"),
        (Role.PRODUCER, "transactional.id"),
        (Role.CONSUMER, "ssl.engine.factory.class"),
        (Role.PRODUCER, "sasl.login.class"),
    ],
)
def test_what_cannot_be_is_refused_for_the_clients_that_have_it(role: Role, name: str, native: bool) -> None:
    with pytest.raises(OptionError, match="Remove the option kafka") as caught:
        check_settings(Settings({name: "org.example.Some"}), role, native=native)
    assert caught.value.option == f"kafka.{name}"


def test_a_setting_of_another_client_has_no_meaning_as_in_java() -> None:
    shared = Settings({"acks": "2", "key.serializer": "x", "max.request.size": "nothing", "bootstrap.servers": "a:1"})
    assert check_settings(shared, Role.CONSUMER, native=False) == ()
    assert librdkafka_config(shared, Role.CONSUMER) == {**DEFAULTS, "bootstrap.servers": "a:1"}


# Values that Java takes, and what librdkafka gets.
BEYOND = {
    "receive.buffer.bytes": ("200000000", "socket.receive.buffer.bytes=100000000"),
    "fetch.max.bytes": ("2147483647", "fetch.max.bytes=2147483135"),
    "max.partition.fetch.bytes": ("2147483647", "max.partition.fetch.bytes=1000000000"),
    "retry.backoff.ms": ("0", "retry.backoff.ms=1"),
    "fetch.max.wait.ms": ("600000", "fetch.wait.max.ms=300000"),
    "request.timeout.ms": ("600000", "socket.timeout.ms=300000"),
    "metadata.max.age.ms": ("604800000", "metadata.max.age.ms=86400000"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_value_that_java_takes_is_taken_and_narrowed_for_librdkafka_with_a_warning(name: str) -> None:
    value, accepted = BEYOND[name]
    settings = Settings({name: value})
    assert check_settings(settings, Role.CONSUMER, native=True) == ()
    (warning,) = check_settings(settings, Role.CONSUMER, native=False)
    assert f"kafka.{name}={value}" in warning
    assert warning.endswith(accepted)
    theirs, _, narrowed = accepted.partition("=")
    assert librdkafka_config(settings)[theirs] == narrowed


@pytest.mark.parametrize("size", [0, 1, 999, 1_000, 100_000])
def test_a_consumer_of_librdkafka_takes_a_small_fetch(size: int) -> None:
    settings = Settings({"fetch.max.bytes": str(size), "max.request.size": "2000000"})
    assert check_settings(settings, Role.CONSUMER, native=True) == ()
    warnings = check_settings(settings, Role.CONSUMER, native=False)
    assert [text.rpartition(" ")[2] for text in warnings] == (["fetch.max.bytes=1000"] if size < 1000 else [])
    Consumer({**librdkafka_config(settings, Role.CONSUMER), "group.id": "g", "log_level": 0}).close()
    assert librdkafka_config(settings, Role.PRODUCER)["message.max.bytes"] == "2000000"


@pytest.mark.parametrize("name", ["batch.size", "max.request.size", "max.block.ms"])
def test_zero_is_taken_where_java_takes_it(name: str) -> None:
    settings = Settings({name: "0"})
    assert check_settings(settings, Role.PRODUCER, native=True) == ()
    check_settings(settings, Role.PRODUCER, native=False)
    Producer({**librdkafka_config(settings, Role.PRODUCER), "log_level": 0})


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("role", "name", "value"),
    [
        (Role.CONSUMER, "request.timeout.ms", "-1"),
        (Role.CONSUMER, "request.timeout.ms", "2147483648"),
        (Role.CONSUMER, "receive.buffer.bytes", "-2"),
        (Role.CONSUMER, "fetch.min.bytes", "many"),
        (Role.CONSUMER, "check.crcs", "maybe"),
        (Role.PRODUCER, "acks", "2"),
        (Role.PRODUCER, "compression.gzip.level", "0"),
        (Role.PRODUCER, "compression.lz4.level", "18"),
        (Role.PRODUCER, "compression.zstd.level", "23"),
        (Role.PRODUCER, "compression.type", "zip"),
        (Role.CONSUMER, "client.dns.lookup", "never"),
    ],
)
def test_a_value_that_java_refuses_is_refused(role: Role, name: str, value: str, native: bool) -> None:
    if native and name == "check.crcs":
        return
    with pytest.raises(OptionError, match=f"kafka.{name} got '{value}'"):
        check_settings(Settings({name: value}), role, native=native)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "name", ["sasl.passwrod", "error_cb", "opaque", "plugin.library.pathz", "block.on.buffer.full"]
)
def test_a_name_that_nobody_knows_is_ignored_with_a_warning_and_its_value_not_shown(name: str, native: bool) -> None:
    settings = Settings({name: "topsecret"})
    (warning,) = check_settings(settings, Role.CONSUMER, native=native)
    assert f"kafka.{name} is not known to any Kafka client" in warning
    assert "topsecret" not in warning
    assert librdkafka_config(settings) == DEFAULTS
    if name.startswith("sasl"):
        assert warning.endswith("did you mean kafka.sasl.password?")


def test_librdkafkas_own_settings_are_checked_by_librdkafka_and_told_where_the_native_engine_serves() -> None:
    settings = Settings({"queued.min.messages": "7"})
    assert check_settings(settings, Role.CONSUMER, native=False) == ()
    assert librdkafka_config(settings) == {**DEFAULTS, "queued.min.messages": "7"}
    (warning,) = check_settings(settings, Role.CONSUMER, native=True)
    assert "use engine=librdkafka" in warning
    with pytest.raises(OptionError, match=r"kafka\.queued\.min\.messages got 'x'"):
        check_settings(Settings({"queued.min.messages": "x"}), Role.CONSUMER, native=False)


@pytest.mark.parametrize(
    ("role", "name", "value"),
    [
        (Role.PRODUCER, "partitioner.ignore.keys", "false"),
        (Role.PRODUCER, "transaction.two.phase.commit.enable", "False"),
        (
            Role.CONSUMER,
            "sasl.oauthbearer.jwt.retriever.class",
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        ),
    ],
)
def test_the_default_of_a_refused_setting_changes_nothing(role: Role, name: str, value: str) -> None:
    for native in (True, False):
        assert check_settings(Settings({name: value}), role, native=native) == ()
    with pytest.raises(OptionError):
        check_settings(Settings({name: "true"}), role, native=True)


def test_a_wrong_certificate_or_login_comes_out_for_the_native_engine_too() -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\.truststore\.location"):
        check_settings(
            Settings({"security.protocol": "SSL", "ssl.truststore.location": "/no/such"}), Role.CONSUMER, native=True
        )
    kerberos = Settings({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    # Our own connections need no librdkafka with Kerberos, but the library that talks to it.
    if importlib.util.find_spec("gssapi") is None:
        with pytest.raises(OptionError, match=r"pip install kafkagroup\[kerberos\]"):
            check_settings(kerberos, Role.CONSUMER, native=True)
    else:
        assert check_settings(kerberos, Role.CONSUMER, native=True) == ()


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_ssl"])
def test_user_and_password(protocol: str, mechanism: str, jaas: str) -> None:
    by_jaas = Settings({"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})
    by_names = Settings(
        {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "pw"}
    )
    assert librdkafka_config(by_jaas) == librdkafka_config(by_names)
    config = librdkafka_config(by_jaas)
    assert (config["sasl.mechanisms"], config["sasl.username"], config["sasl.password"]) == (
        mechanism.upper(),
        "alice",
        "pw",
    )
    Producer({**config, "log_level": 0})
    other = login(by_jaas).sasl
    assert (other.mechanism, other.username, other.password) == (mechanism.upper(), "alice", "pw")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.mechanism": "AWS"}, "sasl.mechanism"),
        *(
            ({"sasl.mechanism": "GSSAPI", "sasl.jaas.config": wrong}, "sasl.jaas.config")
            for wrong in (
                KEYTAB.replace(' principal="me@X"', ""),
                KEYTAB.replace(' keyTab="/etc/k"', ""),
                KEYTAB.replace("useKeyTab=true", 'ticketCache="/tmp/cache"'),
            )
        ),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": DELEGATED}, "sasl.jaas.config"),
        *(
            ({"sasl.mechanism": mechanism, name: "my.Handler"}, name)
            for mechanism, name in (
                ("PLAIN", "sasl.login.callback.handler.class"),
                ("OAUTHBEARER", "sasl.login.callback.handler.class"),
                ("PLAIN", "sasl.client.callback.handler.class"),
            )
        ),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM}, "sasl.jaas.config"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token"},
            "sasl.jaas.config",
        ),
    ],
)
def test_security_that_cannot_work_is_named(settings: dict[str, str], named: str) -> None:
    for make in (librdkafka_config, Login.of):
        with pytest.raises(OptionError) as caught:
            make(Settings({"security.protocol": "SASL_SSL", **settings}))
        assert caught.value.option == f"kafka.{named}"
        assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("jaas", "keytab", "principal"),
    [
        (KEYTAB, "/etc/k", "me@X"),
        (KEYTAB.replace("useKeyTab=true", "useKeyTab=false"), "", "me@X"),
        ("com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;", "", ""),
    ],
)
def test_a_kerberos_login_is_read_as_java_reads_it(jaas: str, keytab: str, principal: str) -> None:
    settings = Settings({"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas, "sasl.mechanism": "GSSAPI"})
    sasl = sasl_of(settings)
    assert sasl is not None
    assert (sasl.keytab, sasl.principal, sasl.service_name) == (keytab, principal, "kafka")


def test_kerberos() -> None:
    settings = Settings({"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "broker"})
    assert login(settings).sasl.service_name == "broker"
    try:
        config = librdkafka_config(settings)
    except OptionError as error:
        assert error.option == "kafka.sasl.mechanism"
        assert "no Kerberos" in str(error)
    else:
        assert config["sasl.kerberos.service.name"] == "broker"


@pytest.fixture
def token_endpoint() -> Iterator[str]:
    """An OAuth server on loopback; its path says how it answers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path != "/token":
                self.send_error(401, "client_secret s3cret is wrong")
                return
            token = f"{self.headers['Authorization']}|{body}|{len(calls)}"
            calls.append(token)
            answer = json.dumps({"access_token": token, "expires_in": 300}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    calls: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def oauth(url: str) -> Settings:
    return Settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s3cret" scope="kafka" extension_tenant="t1";',
        }
    )


def test_oauth_tokens_are_fetched_once_and_kept(token_endpoint: str) -> None:
    settings = oauth(f"{token_endpoint}/token")
    config = librdkafka_config(settings)
    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.client.secret"] == "s3cret"
    assert config["sasl.oauthbearer.extensions"] == "tenant=t1"
    provider = tokens(settings)
    token = provider.token()
    assert token == provider.token() == "Basic bWU6czNjcmV0|grant_type=client_credentials&scope=kafka|0"
    assert provider.extensions == {"tenant": "t1"}


@pytest.mark.parametrize(("path", "kind"), [("/refused", AuthenticationError), (None, RetriableError)])
def test_an_oauth_server_that_gives_no_token(token_endpoint: str, path: str | None, kind: type[Exception]) -> None:
    url = f"{token_endpoint}{path}" if path else "http://127.0.0.1:1/token"
    with pytest.raises(kind, match="No token came from") as caught:
        tokens(oauth(url)).token()
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_unsecured_tokens_for_test_brokers() -> None:
    settings = Settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="alice";',
        }
    )
    assert librdkafka_config(settings)["sasl.oauthbearer.config"] == "principal=alice"
    token = tokens(settings).token()
    assert token.count(".") == 2
    assert token.endswith(".")
