"""Settings show no secret, wherever they are shown."""

import logging
import pickle

import pytest

from kafka_source.client_config import HIDDEN, Settings, hidden, is_secret, librdkafka_config
from kafka_source.errors import OptionError

PEM_KEY = (
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----"
)

SECRETS = {
    "sasl.password": "pass-in-the-clear",
    "sasl.jaas.config": 'a.b.PlainLoginModule required username="u" password="jaas\\"word";',
    "ssl.key.password": "key-word",
    "ssl.keystore.password": "keystore-word",
    "ssl.truststore.password": "truststore-word",
    "ssl.keystore.key": PEM_KEY,
    "ssl.key.pem": PEM_KEY,
    "ssl.keystore.certificate.chain": PEM_KEY,
    "ssl.certificate.pem": PEM_KEY,
    "sasl.oauthbearer.client.secret": "oauth-secret",
    "sasl.oauthbearer.client.credentials.client.secret": "oauth-secret-2",
    "sasl.oauthbearer.config": "principal=p token=abcdefgh",
}


def test_names_are_case_insensitive_and_values_trimmed() -> None:
    settings = Settings({"Bootstrap.Servers": " a:1 "})
    assert settings["bootstrap.servers"] == "a:1"
    assert dict(settings) == {"bootstrap.servers": "a:1"}


def test_equal_settings_are_one_key() -> None:
    one, two = Settings({"a": "1", "b": "2"}), Settings({"b": "2", "A": "1"})
    assert {one: "x"}[two] == "x"
    assert one != Settings({"a": "1"})


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_shown(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_secret(name)
    assert is_secret(f"kafka.{name.upper()}")
    settings = Settings({name: SECRETS[name], "client.id": "me"})
    for copy in (settings, pickle.loads(pickle.dumps(settings))):
        logging.getLogger("test").warning("settings: %s %r", copy, {"settings": copy})
        for shown in (repr(copy), str(copy), f"{copy}", repr([copy]), repr(hidden(copy)), caplog.text):
            assert "me" in shown
            assert SECRETS[name] not in shown
            assert "word" not in shown.replace("password", "")
    assert settings[name] == SECRETS[name]


@pytest.mark.parametrize(
    ("name", "text", "left"),
    [
        ("url", "https://me:s3cret/x@y@a:1/b, http://me:s3cret@b", "https://*****@a:1/b, http://*****@b"),
        ("ssl.keystore.certificate.chain", f"-----BEGIN CERTIFICATE-----\ns3cret\n{PEM_KEY}", HIDDEN),
    ],
)
def test_a_secret_within_another_setting_is_not_shown(name: str, text: str, left: str) -> None:
    settings = Settings({name: text})
    assert (repr(settings), settings.shown(name)) == (f"Settings({ {name: left}!r})", left)


@pytest.mark.parametrize(
    "name", ["bootstrap.servers", "sasl.username", "sasl.oauthbearer.token.endpoint.url", "ssl.truststore.certificates"]
)
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert "visible" in repr(Settings({name: "visible"}))


def test_client_configurations_are_shown_without_secrets() -> None:
    settings = Settings(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SECRETS["sasl.jaas.config"]}
    )
    config = librdkafka_config(settings)
    assert config["sasl.password"] == 'jaas"word'
    assert hidden(config)["sasl.password"] == HIDDEN
    assert hidden({"sasl_plain_password": "p", "ssl_context": object(), "client_id": "me"}) == {
        "sasl_plain_password": HIDDEN,
        "ssl_context": HIDDEN,
        "client_id": "me",
    }


def test_numbers() -> None:
    assert Settings({"a": "7"}).integer("a") == 7
    assert Settings({}).integer("a") is None
    with pytest.raises(OptionError, match=r"kafka\.a got 'x'; it takes a whole number"):
        Settings({"a": "x"}).integer("a")
