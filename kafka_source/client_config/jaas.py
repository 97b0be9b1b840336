"""Parser for `sasl.jaas.config`: one login module with its options, in the syntax of Java's JAAS files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_source.errors import OptionError

_OPTION = "kafka.sasl.jaas.config"
_TAKES = 'one login module such as org.apache...PlainLoginModule required username="..." password="...";'

# A token: a quoted string with backslash escapes, "=" or ";", or a word.
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+))""", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module.

    Attributes:
        name: The class name without its package, e.g. `PlainLoginModule`.
        options: The module's options; never shown, because most of them are secrets.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Parse a `sasl.jaas.config`.

    Raises:
        OptionError: The text is not one login module that ends with a semicolon. The error never contains the text.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].text.lower() not in _FLAGS or tokens.index(_END) != len(tokens) - 1:
        raise OptionError(_OPTION, "a text with another syntax (not shown)", _TAKES)
    pairs = tokens[2:-1]
    if len(pairs) % 3 or any(mark != _EQUALS for mark in pairs[1::3]):
        raise OptionError(_OPTION, "a text with another syntax (not shown)", _TAKES)
    options = {name.text: value.text for name, value in zip(pairs[0::3], pairs[2::3], strict=True)}
    return LoginModule(tokens[0].text.rsplit(".", 1)[-1], options)


class _Token(NamedTuple):
    """A token; a quoted "=" or ";" is a text and no mark."""

    text: str
    is_mark: bool = False


_EQUALS = _Token("=", is_mark=True)
_END = _Token(";", is_mark=True)


def _tokens(text: str) -> list[_Token]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise OptionError(_OPTION, "a text with an unclosed quote (not shown)", _TAKES)
        double, single, mark, word = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            plain = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted, flags=re.DOTALL)
            tokens.append(_Token(plain))
        else:
            tokens.append(_Token(mark, is_mark=True) if mark else _Token(word))
        position = match.end()
    if _END not in tokens:
        raise OptionError(_OPTION, "a text with another syntax (not shown)", _TAKES)
    return tokens
