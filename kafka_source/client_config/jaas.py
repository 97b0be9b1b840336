"""Parser for `sasl.jaas.config`: one login module with its options, in the syntax of Java's JAAS files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_source.errors import OptionError

_OPTION = "kafka.sasl.jaas.config"
_TAKES = 'one login module such as org.apache...PlainLoginModule required username="..." password="...";'

# Comments as in Java's StreamTokenizer. A word without quotes may contain slashes.
_SKIPPED = re.compile(r"(?:\s|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
# A token: a quoted string with backslash escapes, "=" or ";", or a word.
_TOKEN = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+))""", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
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
    problem = _problem(tokens)
    if problem:
        raise OptionError(_OPTION, f"a text that is not shown: {problem}", _TAKES)
    pairs = tokens[2:-1]
    options = {name.text: value.text for name, value in zip(pairs[0::3], pairs[2::3], strict=True)}
    return LoginModule(tokens[0].text.rsplit(".", 1)[-1], options)


def _problem(tokens: list[_Token]) -> str:
    """Return why the tokens are not exactly one login module, without the tokens' text; empty: no problem."""
    if not tokens or tokens[0].is_mark:
        return "it does not begin with the name of a login module"
    if tokens[-1] != _END:
        return "it does not end with a semicolon"
    if any(token.text in "{}" for token in tokens if not token.is_quoted):
        return "it has braces, which only a JAAS file has"
    if tokens.index(_END) != len(tokens) - 1:
        return "it has a semicolon before its end, as in two login modules or a value without quotes"
    if tokens[1].text.lower() not in _FLAGS:
        return f"after the module's name comes none of {', '.join(_FLAGS)}"
    pairs = tokens[2:-1]
    if len(pairs) % 3 or any(mark != _EQUALS for mark in pairs[1::3]):
        return 'an option of the module is not NAME="VALUE"'
    return ""


class _Token(NamedTuple):
    """A token; a quoted "=" or ";" is a text and no separator."""

    text: str
    is_mark: bool = False
    is_quoted: bool = False


_EQUALS = _Token("=", is_mark=True)
_END = _Token(";", is_mark=True)


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], _begin(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise OptionError(_OPTION, "a text with an unclosed quote (not shown)", _TAKES)
        double, single, mark, word = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            tokens.append(_Token(_ESCAPE.sub(_character, quoted), is_quoted=True))
        else:
            tokens.append(_Token(mark, is_mark=True) if mark else _Token(word))
        position = _begin(text, match.end())
    return tokens


def _begin(text: str, position: int) -> int:
    """Return the index of the next token."""
    skipped = _SKIPPED.match(text, position)
    return skipped.end() if skipped else position


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code.isdecimal() and code[0] in "01234567" else _ESCAPES.get(code, code)
