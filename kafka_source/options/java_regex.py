r"""Translates `subscribePattern` from Java's syntax, in which Spark's users write it, to Python's syntax.

Constructs that Python spells differently are rewritten (`(?<name>…)`, `\Q…\E`, `\p{…}`, `\z`). Constructs that Python
lacks are refused, because Python may read them with another meaning: `[a-z&&[^b]]` is a valid class that contains `&`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import ClassVar

# The characters of topic names, as in `org.apache.kafka.common.internals.Topic`.
_TOPIC_CHARACTERS = string.ascii_letters + string.digits + "._-"

_LETTERS, _DIGITS = frozenset(string.ascii_letters), frozenset(string.digits)
_UPPER, _LOWER = frozenset(string.ascii_uppercase), frozenset(string.ascii_lowercase)
_PUNCTUATION = frozenset("._-")
_NONE: frozenset[str] = frozenset()

# Java's character classes by name, in lower case and without `Is`: those characters that a topic's name may have.
_PROPERTIES = {
    **dict.fromkeys(("l", "alpha", "alphabetic", "letter", "latin", "javaletter"), _LETTERS),
    **dict.fromkeys(("lu", "upper", "uppercase", "javauppercase"), _UPPER),
    **dict.fromkeys(("ll", "lower", "lowercase", "javalowercase"), _LOWER),
    **dict.fromkeys(("n", "nd", "digit", "javadigit"), _DIGITS),
    **dict.fromkeys(("alnum", "javaletterordigit"), _LETTERS | _DIGITS),
    **dict.fromkeys(("p", "punct", "punctuation"), _PUNCTUATION),
    "pc": frozenset("_"),
    "pd": frozenset("-"),
    "po": frozenset("."),
    "xdigit": frozenset(string.hexdigits),
    **dict.fromkeys(("ascii", "graph", "print", "inbasic_latin", "inbasiclatin"), frozenset(_TOPIC_CHARACTERS)),
    **dict.fromkeys(("space", "white_space", "blank", "cntrl", "z", "zs", "s", "m", "c", "lo", "lt", "lm"), _NONE),
}

# Replaces an empty class, because no topic's name has this character.
_NOTHING = r"\x00"


def to_python(pattern: str) -> str:
    r"""Return the Python pattern that finds the same topic names.

    Raises:
        ValueError: Python lacks a construct of the pattern (an intersection or a union of classes, a `\p{…}`).
        re.error: The pattern is not a regular expression.
    """
    translated = _Translation(pattern).run()
    re.compile(translated)
    return translated


class _Translation:
    """One pass over a pattern: its position, and whether the position is inside a character class."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._written: list[str] = []
        self._class_begins: int | None = None

    def run(self) -> str:
        while self._at < len(self._pattern):
            if self._pattern[self._at] == "\\":
                self._escape()
            elif self._class_begins is not None:
                self._in_class()
            else:
                self._outside()
        return "".join(self._written)

    def _take(self, count: int = 1) -> None:
        self._written.append(self._pattern[self._at : self._at + count])
        self._at += count

    def _outside(self) -> None:
        rest = self._pattern[self._at :]
        if rest.startswith("["):
            self._take(2 if rest.startswith("[^") else 1)
            self._class_begins = self._at
        elif re.match(r"\(\?<[A-Za-z]", rest):
            self._written.append("(?P<")
            self._at += 3
        else:
            self._take()

    def _in_class(self) -> None:
        rest = self._pattern[self._at :]
        if rest.startswith("]") and self._at != self._class_begins:
            self._take()
            self._class_begins = None
        elif rest.startswith("&&"):
            raise ValueError("an intersection of classes (&&): name the characters instead, or use a look-ahead")
        elif rest.startswith("["):
            raise ValueError(r"a class inside of a class: name the characters instead, or write \[ for a bracket")
        elif rest[0] in "&|~":
            # Python reserves pairs of these characters in a class.
            self._written.append("\\" + rest[0])
            self._at += 1
        else:
            self._take()

    def _escape(self) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        handle = self._HANDLERS.get(following)
        if handle is None:
            self._take(2)
        else:
            handle(self)

    def _quotation(self) -> None:
        quoted, end, _ = self._pattern[self._at + 2 :].partition(r"\E")
        self._written.append(re.escape(quoted))
        self._at += 2 + len(quoted) + len(end)

    def _property(self) -> None:
        found = re.match(r"\\([pP])(?:\{([^}]*)\}|([A-Z]))", self._pattern[self._at :])
        if found is None:
            raise ValueError(r"\p without a name in braces")
        name = (found[2] if found[2] is not None else found[3]).lower()
        for prefix in ("is", "general_category=", "gc=", "script=", "sc="):
            name = name.removeprefix(prefix)
        if name not in _PROPERTIES:
            raise ValueError(f"the unknown class {found[0]}: name the characters instead")
        members = _PROPERTIES[name]
        chosen = [one for one in _TOPIC_CHARACTERS if (one in members) != (found[1] == "P")]
        characters = "".join(map(re.escape, chosen)) or _NOTHING
        self._written.append(characters if self._class_begins is not None else f"[{characters}]")
        self._at += found.end()

    def _back_reference(self) -> None:
        found = re.match(r"\\k<([A-Za-z][A-Za-z0-9]*)>", self._pattern[self._at :])
        if found is None:
            raise ValueError(r"\k without the name of a group")
        self._written.append(f"(?P={found[1]})")
        self._at += found.end()

    def _end(self) -> None:
        self._written.append(r"\Z")
        self._at += 2

    _HANDLERS: ClassVar[dict[str, Callable[[_Translation], None]]] = {
        "Q": _quotation,
        "p": _property,
        "P": _property,
        "k": _back_reference,
        "z": _end,
    }
