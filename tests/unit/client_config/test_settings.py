"""Settings show no secret, wherever they are shown."""

from __future__ import annotations

import io
import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kafka_source.client_config import HIDDEN, RedactingFilter, Settings, hidden, is_secret, librdkafka_config
from kafka_source.errors import KafkaGroupError, OptionError

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


@hypothesis_settings(deadline=None)
@given(st.sampled_from(sorted(SECRETS)), st.text(max_size=20), st.text(max_size=20))
def test_redacted_texts_hold_no_secret(name: str, before: str, after: str) -> None:
    settings = Settings(SECRETS)
    assert SECRETS[name] not in settings.redact(before + SECRETS[name] + after)
    assert settings.redact("nothing to hide") == "nothing to hide"


def test_redaction_knows_the_password_inside_a_jaas_config_and_lines_of_a_key() -> None:
    settings = Settings(SECRETS)
    assert settings.redact('login as u with jaas"word failed') == f"login as u with {HIDDEN} failed"
    assert "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" not in settings.redact("bad line MIIEvQIBADANBgkqhkiG9w0BAQEFAASC")


def test_the_filter_redacts_messages_arguments_and_tracebacks() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter(Settings({"sasl.password": "pass-in-the-clear"})))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise KafkaGroupError("refused pass-in-the-clear")
    except KafkaGroupError:
        logger.exception("login with %s failed", "pass-in-the-clear")
    assert "pass-in-the-clear" not in out.getvalue()
    assert f"login with {HIDDEN} failed" in out.getvalue()
    assert f"refused {HIDDEN}" in out.getvalue()


def test_numbers() -> None:
    assert Settings({"a": "7"}).integer("a") == 7
    assert Settings({}).integer("a") is None
    with pytest.raises(OptionError, match=r"kafka\.a got 'x'; it takes a whole number"):
        Settings({"a": "x"}).integer("a")
