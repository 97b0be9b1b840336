"""The reference of all options, for docs/options.md and `kafkagroup options`."""

import re
import textwrap
from collections.abc import Iterator

from kafka_source.errors import OptionError
from kafka_source.options.catalog import ReadOptions, SinkOptions
from kafka_source.options.combinations import READS, SINKS, Example
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import Only, Option, Where, declared_in
from kafka_source.options.validation import check_read, check_sink
from kafka_source.options.value_rules import DECODING, ENCODING
from kafka_source.options.values import ValueOptions

_WHERE = {Where.BATCH: "batch", Where.STREAM: "stream", Where.SINK: "sink"}
# Conditions of many options; the page explains these words once.
_ONLY = {Only.MEMBERS: "members", Only.CLASSIC: "classic members"}
# Options that the page leaves out of an example, unless the example's error names them.
_GIVEN_BESIDE = ("kafka.group.id", "schema.registry.url", "topic")
# Parts of a remedy: the words that an option takes, and names of options with their values.
_TAKEN_WORDS = re.compile(
    r"(?<=` takes )(?!a |at |no |one )[\w-]+(?:(?:,| or| and) [\w-]+)*(?= (?:only )?(?:with|in) )"
)
_CODE = re.compile(r"(?<![`\w.=/])(?:[a-z]\w*(?:\.\w+)+(?:=\w+)?|[a-z]\w*=\w+|(?:assign|subscribe)\b|[a-z]+[A-Z]\w*)")


def as_markdown() -> str:
    """Return the tables of docs/options.md."""
    shown: list[Option] = []
    lines: list[str] = []
    for heading, declared, where in (
        ("Every query", CommonOptions, Where.ALL),
        ("Values with a schema", ValueOptions, Where.ALL),
        ("Reading", ReadOptions, Where.READ),
        ("Writing", SinkOptions, Where.SINK),
    ):
        options = [one for one in declared_in(declared).values() if one not in shown]
        shown += options
        lines += [f"## {heading}", "", *_table(options, where), ""]
    lines += ["## Combinations that are refused", ""]
    lines += [
        "kafkagroup refuses these options in streams, or in the query in brackets. Topics and groups are omitted.",
        "",
    ]
    lines += _combinations()
    return "\n".join(lines) + "\n"


def anchor_of(name: str) -> str:
    """Return the anchor of an option in docs/options.md: its name in lower case, with dashes for dots."""
    return name.lower().replace(".", "-")


def takes_words(option: Option) -> str:
    """Return the allowed values of an option, with units."""
    return option.kind.takes + (f" ({option.units})" if option.units else "")


def default_words(option: Option) -> str:
    """Return an option's default as a person reads it."""
    if option.default_text:
        return option.default_text
    if option.default is None:
        return "none"
    if isinstance(option.default, bool):
        return str(option.default).lower()
    return ",".join(option.default) if isinstance(option.default, tuple) else str(option.default)


def _table(options: list[Option], where: Where) -> list[str]:
    """Return a row for each option (`key.…` shares that of `value.…`), with its queries if they are not `where`."""
    rows = ["| option | takes | default | only | what it does |", "| --- | --- | --- | --- | --- |"]
    names = {option.name for option in options}
    for option in options:
        key = option.name.replace("value.", "key.", 1)
        if option.name.startswith("key.") and key.replace("key.", "value.", 1) in names:
            continue
        same = (option.name, key) if key in names else (option.name,)
        shown = ", ".join(f'<a id="{anchor_of(name)}"></a>`{name}`' for name in dict.fromkeys(same))
        takes = re.sub(r"a whole number of at least (\d+) and at most (\d+)", r"\1 to \2", takes_words(option))
        takes = re.sub(r"a whole number of at least (\d+)", r"≥ \1", takes)
        takes = takes.removeprefix("one of ").replace("a non-empty string", "text").replace("|", "\\|")
        only = [] if option.where is where else [_where(option.where)]
        only += [_ONLY.get(option.only, option.only.value)] if option.only else []
        rows.append(f"| {shown} | {takes} | {default_words(option)} | {', '.join(only)} | {option.doc} |")
    return rows


def refused_examples() -> Iterator[tuple[Example, OptionError]]:
    """Yield each example of options that are refused together, with its error.

    Raises:
        ValueError: An example is not refused.
    """
    for table in (READS, DECODING, SINKS, ENCODING):
        for example in table.examples:
            try:
                if example.where is Where.SINK:
                    check_sink(example.whole)
                else:
                    check_read(example.whole, example.where)
            except OptionError as error:
                yield example, error
            else:
                raise ValueError(f"{example} is not refused")


def _combinations() -> list[str]:
    """Return an item for each error: the remedy, with examples unless the remedy alone is clear."""
    items: dict[tuple[str, str], list[str]] = {}
    for example, error in refused_examples():
        shown = {name: text for name, text in example.given.items() if name not in _GIVEN_BESIDE or name in str(error)}
        given = ", ".join(f"`{name}={text}`" for name, text in (shown or example.given).items())
        remedy = re.sub(r".*Option (\S+) got '.*'; it takes", r"`\1` takes", str(error))
        remedy = re.sub(r".*more details\. |(?<=^Remove )the option |, (?:where|whose) .*|(?<=\)\.) .*", "", remedy)
        remedy = re.sub(r"^((?:Remove|Keep|Set|`commit`) [^:;]+)[:;] (?!set|remove).*", r"\1", remedy)
        remedy = _TAKEN_WORDS.sub(lambda words: re.sub(r"\b(?!or |and )[\w-]+", r"`\g<0>`", words[0]), remedy)
        remedy = _CODE.sub(r"`\g<0>`", remedy)
        where = "" if example.where is Where.STREAM else f" ({_where(example.where)})"
        items.setdefault((remedy.rstrip("."), where), []).append(given)
    return [
        textwrap.fill(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for (remedy, where), examples in items.items()
        for item in [
            f"- {remedy}{where}."
            if re.fullmatch(r"`[^\d]+", remedy)
            else f"- {' or '.join(examples)}{where}: {remedy}."
        ]
    ]


def _where(where: Where) -> str:
    return ", ".join(word for flag, word in _WHERE.items() if flag in where)
