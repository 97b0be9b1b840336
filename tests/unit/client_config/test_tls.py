"""Certificates and keys, in every form that a Java user may have them."""

import contextlib
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from confluent_kafka import Producer
from hypothesis import strategies as st

from kafka_source.client_config import Settings, key_stores, librdkafka_config
from kafka_source.client_config.config_providers import parse_properties
from kafka_source.client_config.librdkafka import DEFAULTS
from kafka_source.client_config.tls import ssl_context, tls_of
from kafka_source.engine_selection import check_engine
from kafka_source.errors import OptionError
from kafka_source.fetch.librdkafka import LibrdkafkaEngine
from kafka_source.kafka_client import ConnectionSettings
from kafka_source.model.stream_offset import Range
from kafka_source.produce import librdkafka
from tests.support.fetches import fetch_request

TLS = {"security.protocol": "SSL", "bootstrap.servers": "127.0.0.1:1"}


@dataclass(frozen=True)
class Stores:
    """Files of one self-signed certificate; every password is `changeit`."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="ascii")


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder = tmp_path_factory.mktemp("stores")

    def run(command: str) -> None:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)

    run("openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost")
    run("openssl rsa -aes128 -in key.pem -passout pass:changeit -out locked.pem")
    run("openssl pkcs12 -export -in cert.pem -inkey key.pem -name me -passout pass:changeit -out store.p12")
    run(
        "keytool -importkeystore -srckeystore store.p12 -srcstorepass changeit -destkeystore store.jks "
        "-deststoretype JKS -deststorepass changeit -srcalias me -destkeypass another -noprompt"
    )
    run(
        "keytool -importkeystore -srckeystore store.p12 -srcstorepass changeit -destkeystore store.jceks "
        "-deststoretype JCEKS -deststorepass changeit -noprompt"
    )
    run("keytool -importcert -noprompt -file cert.pem -alias ca -keystore trust.jks -storetype JKS -storepass changeit")
    run(
        "keytool -importcert -noprompt -file cert.pem -alias ca -keystore trust.p12 -storetype PKCS12 "
        "-storepass changeit"
    )
    made = Stores(folder)
    (folder / "both.pem").write_text(made.text("key.pem") + made.text("cert.pem"), encoding="ascii")
    return made


def both(**settings: str) -> tuple[dict[str, object], ssl.SSLContext]:
    """What both libraries are given; librdkafka reads certificates and keys when a client is made."""
    given = Settings({**TLS, **{name.replace("_", "."): value for name, value in settings.items()}})
    config = librdkafka_config(given)
    Producer({**config, "log_level": 0})
    return config, context_of(given)


def context_of(settings: Settings) -> ssl.SSLContext:
    return ssl_context(tls_of(settings))


def test_without_anything_the_machine_is_trusted() -> None:
    config, context = both()
    assert config["security.protocol"] == "ssl"
    assert config["ssl.endpoint.identification.algorithm"] == "https"
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_pem_files_by_java_names(stores: Stores) -> None:
    config, context = both(
        ssl_truststore_type="PEM",
        ssl_truststore_location=stores.path("cert.pem"),
        ssl_keystore_type="PEM",
        ssl_keystore_location=stores.path("both.pem"),
    )
    assert config["ssl.ca.location"] == stores.path("cert.pem")
    assert config["ssl.certificate.location"] == config["ssl.key.location"] == stores.path("both.pem")
    subjects: list[Any] = [cert["subject"] for cert in context.get_ca_certs()]
    assert [dict(rdn[0] for rdn in subject)["commonName"] for subject in subjects] == ["localhost"]


def test_inline_pem_with_an_encrypted_key(stores: Stores) -> None:
    config, context = both(
        ssl_truststore_certificates=stores.text("cert.pem"),
        ssl_keystore_certificate_chain=stores.text("cert.pem"),
        ssl_keystore_key=stores.text("locked.pem"),
        ssl_key_password="changeit",
    )
    assert "BEGIN CERTIFICATE" in str(config["ssl.ca.pem"])
    assert config["ssl.key.password"] == "changeit"
    assert context.cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("line_end", [" ", "\\n", "\r\n", "\n\n"])
def test_inline_pem_whose_line_ends_a_file_has_changed(stores: Stores, line_end: str) -> None:
    def changed(name: str) -> str:
        return stores.text(name).strip().replace("\n", line_end)

    _, context = both(
        ssl_truststore_certificates=f"{changed('cert.pem')} {changed('cert.pem')}",
        ssl_keystore_certificate_chain=changed("cert.pem"),
        ssl_keystore_key=changed("locked.pem"),
        ssl_key_password="changeit",
    )
    assert len(context.get_ca_certs()) == 1


def test_a_properties_file_continues_the_lines_of_pem(stores: Stores) -> None:
    lines = " \\\n  ".join(stores.text("cert.pem").splitlines())
    settings = parse_properties(f"security.protocol=SSL\nssl.truststore.certificates={lines}\n")
    assert len(context_of(Settings(settings)).get_ca_certs()) == 1


def test_an_error_names_the_option_that_is_set(stores: Stores) -> None:
    other = stores.text("cert.pem").replace("A", "B")
    mistakes: list[tuple[dict[str, str], str]] = [
        ({"ssl.truststore.certificates": other}, "kafka.ssl.truststore.certificates"),
        ({"ssl.ca.location": stores.path("key.pem")}, "kafka.ssl.ca.location"),
        (
            {"ssl.keystore.certificate.chain": other, "ssl.keystore.key": stores.text("key.pem")},
            "kafka.ssl.keystore.certificate.chain",
        ),
    ]
    for given, option in mistakes:
        with pytest.raises(OptionError) as caught:
            context_of(Settings({**TLS, **given}))
        assert caught.value.option == option


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ssl.truststore.location", b""),
        ("ssl.truststore.location", "# Főtanúsítvány".encode()),
        ("ssl.ca.location", b"\xff\xfe"),
        ("ssl.keystore.location", b""),
        ("ssl.crl.location", None),
        ("ssl.crl.location", b""),
        ("ssl.crl.location", b"revoked"),
    ],
)
def test_a_file_without_pem_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=rf"kafka\.{name} got '{path}'; it takes .*PEM") as caught:
        context_of(Settings({**TLS, name: str(path)}))
    assert ("No such file" in str(caught.value)) == (content is None)


@pytest.mark.parametrize("comment", ["", "friendlyName: Müller\n", "# Főtanúsítvány\n"])
@pytest.mark.parametrize("inline", [True, False])
def test_comments_are_no_part_of_pem(stores: Stores, tmp_path: Path, comment: str, inline: bool) -> None:
    def given(name: str) -> str:
        text = comment + stores.text(name)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return text if inline else str(path)

    names = ("certificates", "certificate_chain", "key") if inline else ("location", "location", "")
    settings = {f"ssl_truststore_{names[0]}": given("cert.pem")}
    settings |= {f"ssl_keystore_{names[1]}": given("cert.pem" if inline else "both.pem")}
    config, context = both(**settings | ({"ssl_keystore_key": given("key.pem")} if inline else {}))
    assert len(context.get_ca_certs()) == 1
    if inline:
        assert config["ssl.ca.pem"] == stores.text("cert.pem")


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(st.data())
def test_any_content_is_read_or_the_option_is_named(stores: Stores, tmp_path: Path, data: st.DataObject) -> None:
    pieces = [
        stores.text("cert.pem"),
        stores.text("key.pem"),
        "-----BEGIN CERTIFICATE-----",
        "-----END CERTIFICATE-----",
    ]
    names = ["ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.location", "ssl.crl.location"]
    name = data.draw(st.sampled_from(names))
    text = "\n".join(data.draw(st.lists(st.sampled_from([*pieces, "ü"]) | st.text(max_size=5), min_size=1)))
    path = tmp_path / "any.pem"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(OptionError):
        context_of(Settings({**TLS, name: str(path) if name.endswith("location") else text}))


def test_librdkafka_names(stores: Stores) -> None:
    config, context = both(
        ssl_ca_location=stores.path("cert.pem"),
        ssl_certificate_location=stores.path("cert.pem"),
        ssl_key_location=stores.path("key.pem"),
    )
    assert config["ssl.key.location"] == stores.path("key.pem")
    assert len(context.get_ca_certs()) == 1


def test_a_wrong_key_password_names_the_option(stores: Stores) -> None:
    settings = Settings(
        {
            **TLS,
            "ssl.keystore.certificate.chain": stores.text("cert.pem"),
            "ssl.keystore.key": stores.text("locked.pem"),
            "ssl.key.password": "not-this-one",
        }
    )
    with pytest.raises(OptionError, match=r"kafka\.ssl\.key\.password") as caught:
        context_of(settings)
    assert "not-this-one" not in str(caught.value)


def test_an_encrypted_key_without_a_password_does_not_ask_at_the_terminal(stores: Stores) -> None:
    settings = Settings(
        {**TLS, "ssl.certificate.location": stores.path("cert.pem"), "ssl.key.location": stores.path("locked.pem")}
    )
    with pytest.raises(OptionError, match=r"kafka\.ssl\.key\.password"):
        context_of(settings)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_pkcs12_stores_of_java_are_for_both_clients(stores: Stores, kind: str) -> None:
    config, context = both(
        ssl_truststore_type=kind,
        ssl_truststore_location=stores.path("trust.p12"),
        ssl_truststore_password="changeit",
        ssl_keystore_type=kind,
        ssl_keystore_location=stores.path("store.p12"),
        ssl_keystore_password="changeit",
    )
    (trusted,) = context.get_ca_certs(binary_form=True)
    assert trusted == ssl.PEM_cert_to_DER_cert(stores.text("cert.pem"))
    assert config["ssl.ca.pem"] == config["ssl.certificate.pem"]
    assert str(config["ssl.key.pem"]).startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")


@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize(
    ("file", "password", "told"),
    [
        ("store.p12", "not-this-one", r"kafka\.ssl\.\w+\.password"),
        ("store.jceks", "changeit", "keytool -importkeystore"),
    ],
)
def test_a_store_that_does_not_open_is_named_with_what_to_do(
    stores: Stores, store: str, file: str, password: str, told: str
) -> None:
    settings = Settings({**TLS, f"ssl.{store}.location": stores.path(file), f"ssl.{store}.password": password})
    for make in (librdkafka_config, context_of):
        with pytest.raises(OptionError, match=rf"kafka\.ssl\.{store}\.location.*{told}") as caught:
            make(settings)
        assert password not in str(caught.value)


def test_a_trust_store_is_no_key_store(stores: Stores) -> None:
    settings = Settings({**TLS, "ssl.keystore.location": stores.path("trust.p12"), "ssl.keystore.password": "changeit"})
    with pytest.raises(OptionError, match="no key"):
        context_of(settings)


def test_jks_stores_of_java_are_for_both_clients(stores: Stores) -> None:
    config, context = both(
        ssl_truststore_type="JKS",
        ssl_truststore_location=stores.path("trust.jks"),
        ssl_truststore_password="changeit",
        ssl_keystore_type="JKS",
        ssl_keystore_location=stores.path("store.jks"),
        ssl_keystore_password="changeit",
        ssl_key_password="another",
    )
    (trusted,) = context.get_ca_certs(binary_form=True)
    assert trusted == ssl.PEM_cert_to_DER_cert(stores.text("cert.pem"))
    assert ssl.PEM_cert_to_DER_cert(str(config["ssl.certificate.pem"])) == trusted
    # The key is the one that went in.
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain, key = stores.folder / "cert.pem", stores.folder / "from-jks.pem"
    key.write_text(str(config["ssl.key.pem"]), encoding="ascii")
    server.load_cert_chain(chain, key)


def test_a_trust_store_may_be_read_without_its_password_as_in_java(stores: Stores) -> None:
    _, context = both(ssl_truststore_location=stores.path("trust.jks"))
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ssl.keystore.location": "store.jks", "ssl.keystore.password": "wrong"}, "the password is wrong"),
        (
            {"ssl.keystore.location": "store.jks", "ssl.keystore.password": "changeit"},
            "the password of the key is wrong",
        ),
        ({"ssl.keystore.location": "trust.jks", "ssl.keystore.password": "changeit"}, "no key"),
        ({"ssl.truststore.location": "store.jks", "ssl.truststore.password": "wrong"}, "the password is wrong"),
    ],
)
def test_a_jks_store_that_does_not_open_says_why(stores: Stores, settings: dict[str, str], why: str) -> None:
    given = {name: stores.path(value) if name.endswith("location") else value for name, value in settings.items()}
    for make in (librdkafka_config, context_of):
        with pytest.raises(OptionError, match=why) as caught:
            make(Settings({**TLS, **given}))
        assert "changeit" not in str(caught.value)


@hypothesis.given(st.data())
def test_a_damaged_jks_store_is_told_and_never_loops(stores: Stores, data: st.DataObject) -> None:
    whole = (stores.folder / "store.jks").read_bytes()
    cut = whole[: data.draw(st.integers(4, len(whole) - 1))]
    at = data.draw(st.integers(4, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for store in (cut, changed):
        with pytest.raises(ValueError, match="damaged"):
            key_stores.jks_identity(store, "changeit", "another")
        # Without a password there is no digest to compare: the store is parsed as far as it makes sense.
        with contextlib.suppress(ValueError):
            key_stores.jks_certificates(store, "")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ssl.truststore.location": "/no/such/file"}, "ssl.truststore.location"),
        ({"ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location"),
        ({"ssl.keystore.key": "PEM"}, "ssl.keystore.certificate.chain"),
        ({"ssl.certificate.pem": "PEM"}, "ssl.keystore.key"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        librdkafka_config(Settings({**TLS, **settings}))
    assert caught.value.option == f"kafka.{named}"


@pytest.mark.parametrize("settings", [{"ssl.truststore.certificates": "no PEM"}, {"ssl.cipher.suites": "no-cipher"}])
def test_what_openssl_does_not_take_is_named(settings: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\."):
        context_of(Settings({**TLS, **settings}))


@pytest.mark.parametrize("value", ["", "none"])
def test_host_names_are_not_checked_where_the_user_says_so(value: str) -> None:
    config, context = both(ssl_endpoint_identification_algorithm=value)
    assert config["ssl.endpoint.identification.algorithm"] == "none"
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_no_verification_at_all() -> None:
    config, context = both(enable_ssl_certificate_verification="false")
    assert config["enable.ssl.certificate.verification"] == "false"
    assert context.verify_mode is ssl.CERT_NONE


def test_stores_are_not_read_where_there_is_no_tls() -> None:
    settings = Settings({"security.protocol": "PLAINTEXT", "ssl.truststore.location": "/no/such/file"})
    assert librdkafka_config(settings) == {**DEFAULTS, "security.protocol": "plaintext"}
    assert ConnectionSettings.of(Settings({**settings, "bootstrap.servers": "a:1"})).tls is None


def version_of(context: ssl.SSLContext, stores: Stores) -> str | None:
    """The version that is agreed on with a server that has all."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(stores.path("both.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.version()


@pytest.mark.parametrize(
    ("settings", "agreed"),
    [
        ({}, "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.3,TLSv1.2", "ssl.protocol": "TLS"}, "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.3", "ssl.protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": " TLSv1.3 "}, "TLSv1.3"),
    ],
)
def test_versions_of_tls_are_those_of_the_settings(stores: Stores, settings: dict[str, str], agreed: str) -> None:
    given = Settings({**TLS, "ssl.ca.location": stores.path("cert.pem"), **settings})
    context = context_of(given)
    assert version_of(context, stores) == agreed
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    if settings.get("ssl.enabled.protocols", "").strip() == "TLSv1.3":
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3


ONE_VERSION = [{"ssl.enabled.protocols": "TLSv1.3"}, {"ssl.protocol": "TLSv1.2"}]


@pytest.mark.requires_native
@pytest.mark.parametrize("settings", ONE_VERSION)
def test_the_native_engine_can_be_limited_to_one_version(settings: dict[str, str]) -> None:
    check_engine("native", Settings({**TLS, **settings}))


@pytest.mark.parametrize("settings", ONE_VERSION)
def test_librdkafka_cannot_be_limited_to_one_version_so_it_is_not_used(settings: dict[str, str]) -> None:
    given = Settings({**TLS, **settings})
    (name,) = settings
    with pytest.raises(OptionError, match=rf"kafka\.{name} got .*engine=native"):
        check_engine("librdkafka", given)
    with pytest.raises(OptionError, match=rf"kafka\.{name} got .*engine=native"):
        next(LibrdkafkaEngine(given).read(fetch_request(Range("t", 0, 0, 1))))
    with pytest.raises(OptionError, match=rf"kafka\.{name} got .*engine=native"):
        librdkafka.in_transaction(given, "id")
    check_engine("librdkafka", Settings({**given, "security.protocol": "PLAINTEXT"}))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}, "ssl.enabled.protocols"),
        ({"ssl.enabled.protocols": "TLS"}, "ssl.enabled.protocols"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "ssl.protocol"),
    ],
)
def test_versions_of_tls_that_cannot_be_are_named(settings: dict[str, str], named: str) -> None:
    for make in (librdkafka_config, context_of):
        with pytest.raises(OptionError) as caught:
            make(Settings({**TLS, **settings}))
        assert caught.value.option == f"kafka.{named}"
