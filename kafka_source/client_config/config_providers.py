"""Values from files and the environment: Java's `config.providers` (KIP-297).

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    sasl.password=${file:/etc/kafka/secrets.properties:password}

Each process resolves the variables itself, as Java's clients do, so no plan, checkpoint or task has the values.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_source.errors import OptionError

_PROVIDERS = "config.providers"

# Java's `ConfigTransformer.DEFAULT_PATTERN`: ${provider:key} or ${provider:path:key}.
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

Lookup = Callable[[str, str], str | None]
"""Returns the value for a path and a key; None if there is no such key."""


def resolve(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with all variables replaced by their values; names are in lower case.

    A variable of a provider that `config.providers` does not name stays as it is, as in Java.

    Raises:
        OptionError: A provider is unknown, a file cannot be read or is not allowed, or a key is missing. The error
            names the variable, and never shows a value.
    """
    lookups = {name.lower(): _lookup(name, given) for name in _list(given.get(_PROVIDERS, ""))}
    return {
        name: value if name.startswith(_PROVIDERS) else _replaced(name, value, lookups) for name, value in given.items()
    }


def _replaced(setting: str, value: str, lookups: Mapping[str, Lookup]) -> str:
    def replace(found: re.Match[str]) -> str:
        provider, path, key = found.groups(default="")
        lookup = lookups.get(provider.lower())
        if lookup is None:
            return found[0]
        try:
            resolved = lookup(path, key)
        except OSError as error:
            problem = f"a file on this machine ({error.strerror or 'it cannot be read'})"
            raise OptionError(f"kafka.{setting}", found[0], problem) from None
        except ValueError as error:
            raise OptionError(f"kafka.{setting}", found[0], str(error)) from None
        if resolved is None:
            raise OptionError(f"kafka.{setting}", found[0], f"a key that its provider {provider} has on this machine")
        return resolved

    return _VARIABLE.sub(replace, value)


def _lookup(provider: str, given: Mapping[str, str]) -> Lookup:
    """Return the lookup function for the class of a provider."""
    prefix = f"{_PROVIDERS}.{provider.lower()}"
    name = given.get(f"{prefix}.class", "")
    allowed = _list(given.get(f"{prefix}.param.allowed.paths", ""))
    pattern = given.get(f"{prefix}.param.allowlist.pattern", "")
    lookups: dict[str, Lookup] = {
        "FileConfigProvider": lambda path, key: parse_properties(_allowed(path, allowed).read_text("utf-8")).get(key),
        "DirectoryConfigProvider": lambda path, key: _content(_allowed(path, allowed), key),
        "EnvVarConfigProvider": lambda _, key: _environment(key, pattern),
    }
    lookup = lookups.get(name.rsplit(".", 1)[-1])
    if lookup is None:
        raise OptionError(
            f"kafka.{prefix}.class", name or None, f"one of {', '.join(lookups)}; others are Java classes"
        )
    return lookup


def _allowed(path: str, allowed: list[str]) -> Path:
    # Resolve links before the check, because a link may lead out of the allowed folders.
    real = Path(path).resolve()
    if allowed and not any(real.is_relative_to(Path(one).resolve()) for one in allowed):
        raise ValueError("a path in param.allowed.paths of its provider")
    return real


def _content(folder: Path, name: str) -> str | None:
    """Return the text of a file in a folder; None: no such file, or a name outside of the folder, such as `../x`."""
    file = folder / name
    return file.read_text("utf-8") if file.parent == folder and file.is_file() else None


def _environment(name: str, pattern: str) -> str | None:
    if pattern and re.fullmatch(pattern, name) is None:
        raise ValueError("a variable that param.allowlist.pattern of its provider allows")
    return os.environ.get(name)


def _list(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A key ends at the first unescaped blank, equals sign or colon; blanks around the separator do not count.
_ENTRY = re.compile(r"((?:[^\\\s=:]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties file (`java.util.Properties`)."""
    entries = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        entry = line.lstrip(" \t\f")
        if not entry or entry[0] in "#!":
            continue
        while _continues(entry):
            entry = entry[:-1] + next(lines, "").lstrip(" \t\f")
        found = _ENTRY.fullmatch(entry)
        if found is not None:
            entries[_unescaped(found[1])] = _unescaped(found[2])
    return entries


def _continues(line: str) -> bool:
    """Return whether a line ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)
