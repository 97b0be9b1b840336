"""`sasl.jaas.config` in Java's syntax."""

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kafka_source.client_config.jaas import parse_jaas
from kafka_source.errors import OptionError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        (f"{PLAIN} REQUIRED username='alice' password='se;cret' ;", {"username": "alice", "password": "se;cret"}),
        (f'kafkashaded.{PLAIN} required\n  username=alice\n  password="a=b \\" c";\n', None),
        (f'{PLAIN} required username = "alice" password = "";', {"username": "alice", "password": ""}),
        (f"{PLAIN} required;", {}),
        (f'/* mine */ {PLAIN} // a "word"\n required password="a\\101\\v\\7b"; // end', {"password": "aA\v\ab"}),
        (f"{PLAIN} required password=a//b;", {"password": "a//b"}),
    ],
)
def test_one_login_module(text: str, options: dict[str, str] | None) -> None:
    module = parse_jaas(text)
    assert module.name == "PlainLoginModule"
    assert module.options == ({"username": "alice", "password": 'a=b " c'} if options is None else options)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'{PLAIN} required password="p"', "end with a semicolon"),
        (f'{PLAIN} password="p";', "comes none of required"),
        (f"{PLAIN} required password;", 'not NAME="VALUE"'),
        (f'{PLAIN} required a="p"; {PLAIN} required b="q";', "two login modules"),
        (f'KafkaClient {{ {PLAIN} required a="p"; }};', "braces"),
        (";", "begin with the name"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_jaas(text)


@hypothesis_settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True), st.text(st.characters(codec="utf-8"))))
@example({"a": "\0;", "b": "\0="})
def test_quoted_values_come_back(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = f"a.Module required {' '.join(f'{name}={quoted(value)}' for name, value in options.items())};"
    assert parse_jaas(text).options == options


@pytest.mark.parametrize(
    "text",
    [
        "topsecret",
        f'{PLAIN} required username="a" password="topsecret"',
        f'{PLAIN} required username="a" password="topsecret;',
        f'{PLAIN} username="a" password="topsecret";',
        f"{PLAIN} required password topsecret;",
        f'{PLAIN} required password="topsecret"; {PLAIN} required;',
        "=;topsecret",
        ";",
        "",
    ],
)
def test_anything_else_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.sasl\.jaas\.config") as caught:
        parse_jaas(text)
    assert "topsecret" not in str(caught.value)
    assert "topsecret" not in repr(vars(caught.value))


def test_a_module_shows_no_options() -> None:
    assert "topsecret" not in repr(parse_jaas(f'{PLAIN} required password="topsecret";'))
