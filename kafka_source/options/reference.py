"""The reference of all options, for docs/options.md and `kafkagroup options`."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_source.errors import OptionError
from kafka_source.options.catalog import REFUSED, ReadOptions, SinkOptions
from kafka_source.options.combinations import READS, SINKS, Example
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import Option, Where, declared_in
from kafka_source.options.validation import check_read, check_sink
from kafka_source.options.value_rules import DECODING, ENCODING
from kafka_source.options.values import ValueOptions

_WHERE = {Where.BATCH: "batch", Where.STREAM: "stream", Where.SINK: "sink"}


def as_markdown() -> str:
    """Return the tables of docs/options.md."""
    shown: list[Option] = []
    lines: list[str] = []
    for heading, declared in (
        ("Every query", CommonOptions),
        ("Values with a schema", ValueOptions),
        ("Reading", ReadOptions),
        ("Writing", SinkOptions),
    ):
        options = [one for one in declared_in(declared).values() if one not in shown]
        shown += options
        lines += [f"## {heading}", "", *_table(options), ""]
    lines += ["## Combinations that are refused", ""]
    lines += ["Each beside what it needs to be a query at all: the brokers, and `subscribe`.", ""]
    lines += [*_combinations(), ""]
    lines += ["## Settings of Kafka that are refused", ""]
    lines += [
        "They would break what the connector promises. [Settings of Kafka](kafka-settings.md) has all others.",
        "",
    ]
    lines += [f"- `{name}` ({_where(refused.where)}): {refused.instead}." for name, refused in REFUSED.items()]
    return "\n".join(lines) + "\n"


def anchor_of(name: str) -> str:
    """Return the anchor of an option in docs/options.md: its name in lower case, with dashes for dots."""
    return name.lower().replace(".", "-")


def takes_words(option: Option) -> str:
    """Return what an option takes, with its units."""
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


def _table(options: list[Option]) -> list[str]:
    rows = ["| option | takes | default | where | what it does |", "| --- | --- | --- | --- | --- |"]
    for option in options:
        takes = takes_words(option).replace("|", "\\|")
        anchor = f'<a id="{anchor_of(option.name)}"></a>'
        where = _where(option.where) + (f"; only {option.only.value}" if option.only else "")
        rows.append(f"| {anchor}`{option.name}` | {takes} | {default_words(option)} | {where} | {option.doc} |")
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
    rows = ["| options | where | the error |", "| --- | --- | --- |"]
    for example, error in refused_examples():
        given = ", ".join(f"`{name}={text}`" for name, text in example.given.items())
        rows.append(f"| {given} | {_where(example.where)} | {error} |")
    return rows


def _where(where: Where) -> str:
    return ", ".join(word for flag, word in _WHERE.items() if flag in where)
