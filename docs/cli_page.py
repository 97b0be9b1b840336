"""Builds docs/cli.md from the command line itself: its commands, options, and the fields of its JSON."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import typer

from docs.json_documents import DOCUMENTS, ArrayOf
from kafkagroup.admin.rows import columns, item_of, optional
from kafkagroup.cli.app import app

HEAD = """# Command line

`pip install 'kafkagroup[cli]'` installs the command line, which needs neither Spark nor Java.

```shell
kafkagroup groups -b broker:9092 --lag
kafkagroup group billing -b broker:9092 --only-with-lag
kafkagroup watch billing -b broker:9092
kafkagroup rewind billing -b broker:9092 --topic orders --back 2h          # shows what it would change
kafkagroup rewind billing -b broker:9092 --topic orders --back 2h --yes
kafkagroup peek orders -b broker:9092 --from 2026-01-31T12:00:00Z -n 5
kafkagroup export orders -b broker:9092 --to orders.parquet --from -1h
kafkagroup plan copartition -b broker:9092 -t orders -t payments --slots 8
```

## Settings of the connection

| where | how |
| --- | --- |
| option | `--bootstrap-servers` (or `--bootstrap-server`, `-b`), and `-c NAME=VALUE` for any client setting, with Java's name |
| environment | `KAFKAGROUP_BOOTSTRAP_SERVERS`, `KAFKAGROUP_COMMAND_CONFIG`, and `KAFKAGROUP_KAFKA_` before a setting's name, such as `KAFKAGROUP_KAFKA_SASL_PASSWORD` for `sasl.password` |
| file | `--command-config FILE`, a properties file as for Kafka's own tools |
| context | `--context NAME`, the variable `KAFKAGROUP_CONTEXT`, or the [context](#contexts) `default` |

If several rows set the same setting, the first row takes precedence. Put passwords into a file or the environment. A
password in `-c` causes a warning, because other users of the machine can see it. Values such as
`${file:/etc/kafka/secrets.properties:password}` [work too](kafka-settings.md#values-from-files-and-the-environment).

### Contexts

A context is a named set of settings for a cluster, in `~/.config/kafkagroup/contexts.ini`
(`$XDG_CONFIG_HOME/kafkagroup/contexts.ini`, or the file that `KAFKAGROUP_CONTEXTS` names):

```ini
[default]
bootstrap.servers = localhost:9092

[production]
bootstrap.servers = broker-1:9093,broker-2:9093
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.username = alice
sasl.password = ${env:KAFKA_PASSWORD}

[staging]
command.config = staging.properties
```

```shell
kafkagroup contexts                                  # lists them, without their secrets
kafkagroup groups --context production
KAFKAGROUP_CONTEXT=staging kafkagroup watch billing
```

- Refer to secrets by `${env:NAME}`, `${file:PATH:KEY}` (a properties file) or `${directory:PATH:FILE}`, without
  `config.providers`. A secret in a file that other users can read causes a warning.
- `command.config` names a properties file, relative to the file of the contexts. The context's own settings take
  precedence over the settings of this file.
- With `--context`, the command ignores the environment variables of the table, which may name another cluster. `-b`,
  `-c` and `--command-config` take precedence over the context.
- `KAFKAGROUP_CONTEXT` and the context `default` apply only if no option, variable or file names a cluster. So a
  context's password is not sent to another cluster.

## Output

`-o table` is for people and can change with any version. `-o json` and `-o csv` are for programs; their field names
belong to the [public API](public-api.md). CSV contains only the first table of a command. Below, `string?` may be null,
`[string]` is an array and `{`…`}` is an object. A sum of lags includes all offsets of a partition without a
committed offset, and leaves out partitions without a leader. Results go to standard output; notes, warnings and errors
go to standard error.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed, for the reason on standard error: the brokers refuse or do not answer, or a group, topic or file does not exist |
| 2 | wrong usage |
| 3 | `--fail-above-lag` is exceeded; `healthcheck` found a stalled group; in `stop` or `pause`, a query did not reach its boundaries within `--timeout`, or passed a boundary |

```shell
kafkagroup group billing --fail-above-lag 100000 --summary || page-operator
kafkagroup groups --lag -o json | jq '.[] | select(.lag > 1000) | .group'
```

### Options of most commands

| option | what it does |
| --- | --- |
| `GROUP`, or `--group`, `-g` `GROUP` | The group id. |
| `--topic`, `-t` `TOPIC[:0,1]` | A topic, or some partitions of it. Can be repeated. |
| `--prefix`, `-p` `PREFIX` | The sink's `transactional.id.prefix`. |
| `--yes` | Make the change. Without it, the command only shows the change. |
| `--output`, `-o` `table\\|json\\|csv\\|jsonl` | How to print the result. Default: `table`. |
| `-b`, `-c`, `--command-config`, `--context` | [The connection](#settings-of-the-connection). |

`kafkagroup --install-completion` installs completion for your shell.

## By habit

Unambiguous commands of other tools work too, for example `group list`, `--describe --group G`, `topics describe T`,
`--reset-offsets … --to-earliest --execute`, `peek T --from-beginning`, `tail T`. Standard error shows the command that
runs.

Without `--private`, `groups` does not list [side groups](operations.md#lag-monitors-and-side-groups).

## Beside other tools

According to the help of Kafka 4.3's tools:

| to … | kafkagroup | kafka-consumer-groups.sh |
| --- | --- | --- |
| name a cluster by one word | `contexts`, `groups --context NAME` | `--command-config FILE` |
| list groups | `groups --type --state --regex` | `--list --type --state` |
| list groups with their lag | `groups --lag` | `--describe --all-groups` |
| show members and lag | `group G` | `--describe --group G --members --verbose`, `--offsets` |
| show the sum, or only partitions with lag | `group G --summary`, `group G --by topic`, `group G --only-with-lag` | – |
| preview a change, make it | the default, `--yes` | `--dry-run` (the default), `--execute` |
| rewind to the start, the end, a time | `rewind G --to earliest`, `latest`, a time | `--reset-offsets --to-earliest`, `--to-latest`, `--to-datetime` |
| rewind by a duration, by records, to an offset | `rewind G --back 2h`, `rewind G --shift-by N`, `rewind G --to-offset N` | `--by-duration`, `--shift-by`, `--to-offset` |
| rewind to the offsets of another group, or of a file | `rewind G --to-group A`, `rewind G --from-file F` | `--from-file` |
| create a group before it runs | `create G -t T --to latest` | `--reset-offsets --to-latest` of a new group |
| delete a group, or its offsets of a topic | `delete G`, `offsets delete G -t T` | `--delete`, `--delete-offsets` |
| copy a group | `offsets clone A B` | `--export`, then `--from-file` |
| export and import offsets, with a check of topic ids | `offsets export G`, `offsets import F` | `--export`, `--from-file`, without a check |
| list topics with offsets | `topics`, `topics T` | kafka-topics.sh, kafka-get-offsets.sh |
| follow new records | `peek T -f` | kafka-console-consumer.sh |
| list brokers with their addresses | `brokers` | – |
| write lines as records | `produce T`, `produce T --from-json` | kafka-console-producer.sh |
| show records, from a time | `peek T --from TIME` | kafka-console-consumer.sh, not from a time |
| find open transactions | `transactions list` | kafka-transactions.sh `find-hanging`, `describe` |
| finish open transactions | `transactions commit`, `transactions abort` | kafka-transactions.sh `abort` |
| show and set the brokers' client quotas | `quota brokers` | kafka-configs.sh |
| print JSON | `-o json` everywhere | – |

"""  # noqa: E501 - rows of tables

_DOCUMENTS_OF_THEIR_OWN = {
    "offsets export": "The document has the fields `version`, `group`, `cluster` and `topics`. A topic has `id` and "
    "`partitions`; a partition has `offset`, `leader_epoch` and `metadata`. The same offsets give the same document.",
    "quota show": "The JSON is the document of [`quota.report`](quotas.md). CSV has the fields `slot`, `bytes`, "
    "`records`, `throttle_seconds` and `broker_throttle_seconds`.",
    "quota set": "The command prints the new content of the file as JSON.",
    "doctor": "[The page about the doctor](doctor.md) describes the JSON.",
}
# What they write is no listing.
_WITHOUT_DOCUMENT = frozenset({"embedded", "export", "healthcheck", "plot", "produce", "redrive"})
# The name of the field says as much.
_PLAIN = {
    "Kafka's group state.",
    "The group id.",
    "The number of members.",
    "The offset.",
    "The partition number.",
    "The producer epoch.",
    "The producer id.",
    "The topic.",
    "The transactional id.",
    "`client.id`.",
}
# Most commands have these; the page describes them once.
_SHARED = {
    "A topic, or some partitions of it. Can be repeated.",
    "How to print the result.",
    "Make the change. Without it, the command only shows the change.",
    "The group id, as an option.",
    "The group id.",
    "The sink's transactional.id.prefix.",
}
_CONNECTION = {"--bootstrap-servers", "--command-config", "--config", "--context"}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)


def as_markdown() -> str:
    """Return the page."""
    parts, described, shown = [HEAD, "## Commands\n\n"], dict[tuple[str, str], str](), dict[type, str]()
    for path, command in _commands(typer.main.get_command(app), ()):
        parts.append(_command(" ".join(path), command, described, shown))
    return "".join(parts).rstrip("\n") + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all commands, in the order of the help, without the groups of commands."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, one in (inner or {}).items():
        yield from _commands(one, (*path, name))


def _command(name: str, command: Any, described: dict[tuple[str, str], str], shown: dict[type, str]) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and "--help" not in param.opts]
    shared = [param.opts[0] for param in options if param.help in _SHARED]
    shared += ["-b"] if any(_CONNECTION.intersection(param.opts) for param in options) else []
    options = [param for param in options if param.help not in _SHARED and _CONNECTION.isdisjoint(param.opts)]
    lines = [f"### `kafkagroup {name}`", "", *_paragraphs(command.help), ""]
    rows = [
        *((_argument(param), param.help or "") for param in arguments if param.help not in _SHARED),
        *((_names(param), _option_help(param)) for param in options),
    ]
    repeated: dict[str, list[str]] = {}
    for row in rows:
        if row in described:
            repeated.setdefault(described[row], []).append(row[0])
        else:
            described[row] = name
            lines.append(_item(f"{row[0]}: {_one_line(row[1])}"))
    lines += [_item(f"As in {_link(other)}: {', '.join(names)}") for other, names in repeated.items()]
    lines += [""] if rows else []
    if shared:
        lines += [f"Also [{', '.join(f'`{name}`' for name in shared)}](#options-of-most-commands).", ""]
    lines += _json(name, shown)
    return "\n".join(lines) + "\n"


def _paragraphs(text: str | None) -> list[str]:
    """Return a help text as lines, with one line for each of its own."""
    return inspect.cleandoc(text or "").splitlines()


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return f"`{name}`" if param.required or name.startswith("[") else f"`[{name}]`"


def _names(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    value = "" if param.is_flag else f" `{_value(param)}`"
    return names + value


def _value(param: Any) -> str:
    return str(param.metavar or "VALUE")


def _option_help(param: Any) -> str:
    default = getattr(param.default, "value", param.default)
    shown = "" if param.is_flag or default in (None, (), [], "") else f" Default: `{default}`."
    variable = f" Environment: `{param.envvar}`." if param.envvar else ""
    required = " Required." if param.required else ""
    return f"{param.help}{shown}{required}{variable}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _link(command: str) -> str:
    return f"[`{command}`](#kafkagroup-{command.replace(' ', '-')})"


def _json(name: str, shown: dict[type, str]) -> list[str]:
    """Return what the JSON of a command has; `shown` names the command that has shown the fields of a row."""
    if name in _DOCUMENTS_OF_THEIR_OWN:
        return [textwrap.fill(_DOCUMENTS_OF_THEIR_OWN[name], 118), ""]
    if name in _WITHOUT_DOCUMENT:
        return []
    document = DOCUMENTS[name]
    if isinstance(document, ArrayOf):
        return _tables("JSON, for each sample" if name == "watch" else "JSON", document.kinds, name, shown)
    lines = []
    for part, kinds in document.parts.items():
        lines += _tables(f"JSON `{part}`", kinds, name, shown)
    return lines


def _tables(title: str, kinds: tuple[type, ...], name: str, shown: dict[type, str]) -> list[str]:
    lines: list[str] = []
    for number, kind in enumerate(kinds):
        head = "or" if number else f"{title}: an array"
        if kind in shown:
            lines += [f"{head} as in {_link(shown[kind])}.", ""]
            continue
        shown[kind] = name
        about = {field: _one_line(text) for field, text in _attributes(kind).items()}
        lines += [f"{head} of", ""]
        hints = columns(kind).items()
        plain = [f"`{field}` {_type(hint)}" for field, hint in hints if about.get(field) in _PLAIN]
        lines += [_item(", ".join(plain))] if plain else []
        lines += [
            _item(f"`{field}` {_type(hint)}: {about.get(field, '')}")
            for field, hint in hints
            if about.get(field) not in _PLAIN
        ]
        lines.append("")
    return lines


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstring of a row type says about its columns."""
    docstring = inspect.cleandoc(kind.__doc__ or "")
    _, _, listed = docstring.partition("Attributes:\n")
    found = {name: re.sub(r"\bNone\b", "null", text) for name, text in _ATTRIBUTE.findall(listed)}
    for name, value in vars(kind).items():
        if isinstance(value, property) and value.__doc__:
            found[name] = _sentence(value.__doc__.partition("\n")[0].removeprefix("Return ")).replace("None", "null")
    return found


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _type(hint: object) -> str:
    bare, nullable = optional(hint)
    item = item_of(bare)
    names = {str: "string", int: "number", float: "number", bool: "boolean"}
    if item is not None:
        text = f"[{_type(item)}]"
    elif bare in names:
        text = names[bare]
    elif hasattr(bare, "__args__"):
        text = "/".join(f'"{one}"' for one in bare.__args__)
    else:
        text = "{" + ", ".join(f"`{name}`" for name in columns(bare)) + "}"
    return f"{text}?" if nullable else text
