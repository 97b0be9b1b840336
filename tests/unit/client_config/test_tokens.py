"""OAUTHBEARER tokens from a provider that the user names, and Java's settings of AWS and Google translated to one."""

import sys
import time
import types
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_source.client_config import Settings, hidden, librdkafka_config
from kafka_source.client_config.sasl import OAuth, sasl_of
from kafka_source.client_config.tokens import provided_token
from kafka_source.errors import AuthenticationError, OptionError
from kafka_source.kafka_client.sasl import Tokens

PROVIDER = "sasl.oauthbearer.token.provider"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
BASE = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A user's module with token functions."""
    module: Any = types.ModuleType("tokens_of_this_test")
    calls: list[Mapping[str, str]] = []

    def token(options: dict[str, str]) -> tuple[str, float]:
        calls.append(options)
        return f"token-{len(calls)}", time.time() + module.lifetime

    def failing(options: dict[str, str]) -> tuple[str, float]:
        raise RuntimeError(f"wrong secret {options['clientSecret']}")

    module.calls, module.token, module.failing, module.lifetime, module.number = calls, token, failing, 3600.0, 7
    monkeypatch.setitem(sys.modules, module.__name__, module)
    made: types.ModuleType = module
    return made


def settings(provider: str, jaas: str = f'{MODULE} clientSecret="topsecret" extension_tenant="t1";') -> Settings:
    return Settings({**BASE, PROVIDER: provider, "sasl.jaas.config": jaas})


def oauth_of(given: Settings) -> OAuth:
    sasl = sasl_of(given)
    assert sasl is not None and sasl.oauth is not None
    return sasl.oauth


def test_a_function_makes_the_tokens_of_both_engines(mine: Any) -> None:
    given = settings("tokens_of_this_test:token")
    provider = Tokens(oauth_of(given))
    assert (provider.token(), provider.token()) == ("token-1", "token-1")
    assert provider.extensions == {"tenant": "t1"}
    config = librdkafka_config(given)
    token, expires_at, _, extensions = config["oauth_cb"]("")
    assert (token, extensions) == ("token-2", {"tenant": "t1"})
    assert 3500 < expires_at - time.time() <= 3600
    assert mine.calls[0]["clientSecret"] == "topsecret"
    assert "topsecret" not in repr(oauth_of(given)) + repr(hidden(config)) + repr(given)


def test_a_token_that_has_expired_is_made_again(mine: Any) -> None:
    mine.lifetime = -1.0
    provider = Tokens(oauth_of(settings("tokens_of_this_test:token")))
    assert (provider.token(), provider.token()) == ("token-1", "token-2")


def test_what_goes_wrong_in_a_function_is_told_without_its_words(mine: Any) -> None:
    with pytest.raises(AuthenticationError, match="tokens_of_this_test:failing gave no token: RuntimeError") as caught:
        provided_token(oauth_of(settings("tokens_of_this_test:failing")))
    assert "topsecret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ("tokens_of_this_test:nothing", "module:function"),
        ("no_such_module_of_this_test:token", "module:function"),
        ("tokens", "module:function"),
        ("tokens_of_this_test:number", "a function"),
    ],
)
def test_a_function_that_is_not_there_is_named(mine: Any, provider: str, why: str) -> None:
    with pytest.raises(OptionError, match=why) as caught:
        provided_token(oauth_of(settings(provider)))
    assert provider in str(caught.value)


IAM = "software.amazon.msk.auth.iam."
MSK = {"security.protocol": "SASL_SSL", "bootstrap.servers": "b-1.orders.abc.c2.kafka.eu-west-1.amazonaws.com:9098"}


@pytest.mark.parametrize(
    "login",
    [
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f'{IAM}IAMLoginModule required awsProfileName="me";',
            "sasl.client.callback.handler.class": f"{IAM}IAMClientCallbackHandler",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{MODULE} awsProfileName="me";',
            "sasl.login.callback.handler.class": f"{IAM}IAMOAuthBearerLoginCallbackHandler",
        },
        {"sasl.mechanism": "OAUTHBEARER", PROVIDER: "aws", "sasl.jaas.config": f'{MODULE} awsProfileName="me";'},
    ],
)
def test_javas_settings_for_msk_become_a_login_by_token(login: dict[str, str]) -> None:
    oauth = oauth_of(Settings({**MSK, **login}))
    assert oauth.provider == "aws"
    assert dict(oauth.options) == {"awsProfileName": "me", "region": "eu-west-1"}
    sasl = sasl_of(Settings({**MSK, **login}))
    assert sasl is not None and sasl.mechanism == "OAUTHBEARER"


def test_the_region_of_private_names_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings({**MSK, "sasl.mechanism": "AWS_MSK_IAM", "bootstrap.servers": "kafka.internal:9098"})
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert oauth_of(given).options["region"] == "us-east-2"
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(OptionError, match="AWS_REGION"):
        sasl_of(given)


def test_the_signer_of_aws_makes_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra aws is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    token = provided_token(oauth_of(Settings({**MSK, "sasl.mechanism": "AWS_MSK_IAM"})))
    assert 0 < token.expires_at - time.time() <= 900
    assert "topsecret" not in token.value


@pytest.mark.parametrize(
    ("provider", "more"), [("aws", {}), ("azure", {"sasl.oauthbearer.scope": "https://x/.default"}), ("google", {})]
)
def test_a_provider_whose_library_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, provider: str, more: dict[str, str]
) -> None:
    for name in ("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "azure.identity", "google.auth"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OptionError, match=rf"pip install 'kafkagroup\[{provider}\]'"):
        provided_token(oauth_of(Settings({**MSK, **BASE, PROVIDER: provider, **more})))


def test_google_by_javas_handler_and_azure_needs_its_scope() -> None:
    handler = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
    google = Settings({**BASE, "sasl.login.callback.handler.class": handler, "sasl.jaas.config": f"{MODULE};"})
    assert oauth_of(google).provider == "google"
    with pytest.raises(OptionError, match=r"kafka\.sasl\.oauthbearer\.scope is missing.*servicebus"):
        sasl_of(Settings({**BASE, PROVIDER: "azure"}))
