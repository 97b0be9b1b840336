"""The command `kafkagroup`: its subcommands in the order of the help, and the command lines of other tools."""

from collections.abc import Callable, Mapping, Sequence

import typer

from kafkagroup.cli.checkpoints import checkpoint, import_checkpoint
from kafkagroup.cli.embedded import embedded
from kafkagroup.cli.groups import create, delete, list_groups, plan, show_group
from kafkagroup.cli.halts import pause, resume, stop
from kafkagroup.cli.installation import doctor, list_contexts, list_options, print_version
from kafkagroup.cli.offsets import offsets, rewind
from kafkagroup.cli.quota import quota
from kafkagroup.cli.records import brokers, produce, schema
from kafkagroup.cli.topics import export, peek, redrive, topics
from kafkagroup.cli.transactions import transactions
from kafkagroup.cli.watch import healthcheck, plot, watch

# Without rich's markup, typer prints the help as plain text and does not import rich.
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Show Kafka's consumer groups and topics; set offsets, finish transactions, set quotas; check an installation."
    " Without --yes, commands only show a change.",
)

app.callback()(print_version)

# The list of commands has one line for each command. Without a short text, typer cuts the help's first sentence.
app.command("groups", short_help="List groups with types, states, lag.")(list_groups)
app.command("group", short_help="Show a group: members, partitions, lag.")(show_group)
app.command(short_help="Watch lag and rates of groups.")(watch)
app.command(short_help="Probe whether a group makes progress.")(healthcheck)
app.command(short_help="Create a group with chosen offsets.")(create)
app.command(short_help="Set the committed offsets of a group.")(rewind)
app.command(short_help="Stop the queries of a group at boundaries.")(stop)
app.command(short_help="Let queries stay members and read nothing.")(pause)
app.command(short_help="Let a paused or stopped group continue.")(resume)
app.command(short_help="Delete a group with its offsets.")(delete)
app.add_typer(offsets, name="offsets")
app.command(short_help="List topics, or partitions of given topics.")(topics)
app.command(short_help="List brokers with their addresses.")(brokers)
app.command(short_help="Show records of a topic.")(peek)
app.command(short_help="Write lines of standard input to a topic.")(produce)
app.command(short_help="Show a schema, or the ids of a topic.")(schema)
app.command(short_help="Write a topic to Parquet, Arrow, CSV, JSON.")(export)
app.command(short_help="Write each dead letter back once.")(redrive)
app.command(short_help="Show the assignment of an assignor.")(plan)
app.add_typer(transactions, name="transactions")
app.add_typer(quota, name="quota")
app.add_typer(checkpoint, name="checkpoint")
app.command("import-checkpoint", short_help='Migrate a query of format("kafka").')(import_checkpoint)
app.command(short_help="Draw recorded samples: lag, throughput.")(plot)
app.command(short_help="Check an installation and a cluster.")(doctor)
app.command(short_help="Run Kafka on this machine until Ctrl-C.")(embedded)
app.command("contexts", short_help="List named settings of clusters.")(list_contexts)
app.command("options", short_help="List the options of the format.")(list_options)

# ---- command lines of Kafka's own tools, rpk, kafkactl and kcat
# A valid line is never changed, except `group list`: for a group with the name `list`, write `group --group list`.

_GROUP_VERBS = ("describe", "show", "lag", "ls", "list")
_LISTS = ("list", "ls", "--list")

# A command of another tool, and kafkagroup's command for it.
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "version": ("--version",),
    "describe": ("group",),
    "lag": ("group",),
    "list": ("groups",),
    "ls": ("groups",),
    "reset": ("rewind",),
    "seek": ("rewind",),
    "reset-offsets": ("rewind",),
    "topic": ("topics",),
    "consume": ("peek",),
    "cat": ("peek",),
    "tail": ("peek", "--follow"),
    "write": ("produce",),
    "broker": ("brokers",),
    "cluster": ("brokers",),
    "schemas": ("schema",),
    "context": ("contexts",),
    "option": ("options",),
}
# Flags of kafka-consumer-groups.sh that choose an action, and kafkagroup's command for each action.
_ACTIONS = {"--list": "groups", "--describe": "group", "--reset-offsets": "rewind", "--delete": "delete"}
_NOUNS = ("topic", "topics", "group", "groups", "broker", "brokers")
# kcat's modes, each the first word of its command line, and kafkagroup's command for each mode.
_MODES = {"-C": "peek", "-P": "produce", "-L": "topics"}
_POSITIONS = {f"--to-{word}": ("--to", word) for word in ("earliest", "latest", "current")}
_BEGINNING = ("beginning", "start", "oldest")
_END = ("end", "newest")


def understand(words: Sequence[str]) -> list[str]:
    """Return kafkagroup's command line for the command line of another tool; leave all other words as they are."""
    line = _list_or_one(_command(list(words)))
    if not line or line[0].startswith("-"):
        return line
    return [line[0], *_json(line[0], _ARGUMENTS.get(line[0], _same)(line[1:]))]


def refuse(words: Sequence[str]) -> str | None:
    """Return the message for a command that only Kafka's own tools have; None: any other command."""
    if len(words) > 1 and words[0] in ("topic", "topics") and words[1] in _CHANGES:
        words = [words[1], "topic"]
    if len(words) > 1 and words[0] in _CHANGES and words[1] in ("topic", "topics"):
        return (
            f"kafkagroup does not {words[0]} topics. Kafka's own tool does: kafka-topics.sh --{words[0]} --topic NAME"
        )
    tool = _TOOLS.get(words[0]) if words else None
    return None if tool is None else f"kafkagroup has no command {words[0]}. Kafka's own tool is {tool}."


_CHANGES = ("create", "delete", "alter")
_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("acl", "acls"), "kafka-acls.sh"),
    **dict.fromkeys(("config", "configs"), "kafka-configs.sh"),
    **dict.fromkeys(("user", "users"), "kafka-configs.sh --entity-type users"),
    **dict.fromkeys(("reassign", "partitions"), "kafka-reassign-partitions.sh"),
    "elect": "kafka-leader-election.sh",
}


def _json(command: str, arguments: list[str]) -> list[str]:
    """Replace `--json` and `--format json` by `-o json`; `export` has a `--format` of its own."""
    if command == "export":
        return arguments
    line: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--json":
            line += ("-o", "json")
        elif word == "--format":
            line += ("-o", *([value] if (value := next(words, None)) else ()))
        else:
            line.append(word)
    return line


def _command(line: list[str]) -> list[str]:
    """Return the line with kafkagroup's command at its beginning."""
    if not line:
        return line
    if line[0].startswith("-"):
        if (mode := _MODES.get(line[0])) is not None:
            return [mode, *line[1:]]
        action = next((word for word in line if word in _ACTIONS), None)
        return line if action is None else [_ACTIONS[action], *(word for word in line if word != action)]
    if (
        line[0] in ("list", "ls", "describe")
        and line[1:2]
        and line[1] in ("topic", "topics", "group", "groups", "brokers")
    ):
        return _command([line[1], *line[2:]])
    return [*_COMMANDS.get(line[0], (line[0],)), *line[1:]]


def _list_or_one(line: list[str]) -> list[str]:
    """Separate `groups` from `group NAME`, because other tools have one command for both."""
    name, rest = line[:1], line[1:]
    if name == ["group"] and rest and rest[0] in _LISTS:
        return ["groups", *rest[1:]]
    if name == ["groups"]:
        rest = rest[1:] if rest and rest[0] in (*_LISTS, *_GROUP_VERBS, "--describe") else rest
        return ["group" if _names_one(rest) else "groups", *rest]
    return line


def _names_one(arguments: list[str]) -> bool:
    return bool(arguments) and (not arguments[0].startswith("-") or "--group" in arguments)


def _same(arguments: list[str]) -> list[str]:
    return arguments


def _group(arguments: list[str]) -> list[str]:
    # `group describe` alone means the group named describe; the verb of `group describe billing` is dropped.
    if len(arguments) > 1 and arguments[0] in _GROUP_VERBS and _names_one(arguments[1:]):
        arguments = arguments[1:]
    return [word for word in arguments if word not in ("--describe", "--offsets", "--verbose")]


def _topics(arguments: list[str]) -> list[str]:
    if arguments and arguments[0] in (*_LISTS, "describe", "--describe"):
        arguments = arguments[1:]
    return [word for word in arguments if word not in ("--describe", "--list")]


def _rewind(arguments: list[str]) -> list[str]:
    line: list[str] = []
    for word in _changes(arguments):
        if word != "--reset-offsets":
            line += _POSITIONS.get(word, (word,))
    return _values(line, "--to")


def _changes(arguments: list[str]) -> list[str]:
    line = ["--yes" if word == "--execute" else word for word in arguments]
    # A command without --yes is a dry run.
    return [word for word in line if word not in ("--dry-run", "--yes")] if "--dry-run" in line else line


def _peek(arguments: list[str]) -> list[str]:
    """Translate kcat's positions and counts: `-o 5` is an offset, `-o -5` the last 5, `-p 0` a partition."""
    line: list[str] = []
    partitions: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--from-beginning":
            line += ("--from", "earliest")
        elif word in ("-o", "--offset", "-p", "--partition", "-c"):
            line += _of_kcat(word, next(words, ""), partitions)
        elif word not in ("-e", "-q", "-C"):
            line.append(word)
    topic = _topic_in(line)
    if partitions and topic is not None:
        line[topic] += ":" + ",".join(partitions)
    return _values(line, "--from")


def _of_kcat(option: str, value: str, partitions: list[str]) -> tuple[str, ...]:
    """Return kafkagroup's words for an option of kcat; append the value of `-p` to `partitions`."""
    if option in ("-p", "--partition"):
        partitions.append(value)
        return ()
    if option == "-c":
        return ("-n" if value.isdecimal() else option, value)
    if value.isdecimal():
        return "--from", f"@{value}"
    if value[:1] == "-" and value[1:].isdecimal():
        return "-n", value[1:]
    return ("--from" if value in (*_BEGINNING, *_END) else option, value)


def _topic_in(line: Sequence[str]) -> int | None:
    """Return the topic's index in the line: after -t, or the first word that is no option or value; None: no topic."""
    for at, word in enumerate(line):
        before = line[at - 1] if at else ""
        if before in ("-t", "--topic") or (
            not word.startswith("-") and (not before.startswith("-") or before in ("-f", "--follow"))
        ):
            return at
    return None


def _values(line: list[str], option: str) -> list[str]:
    """Replace the words that other tools have for the positions earliest and latest."""
    named = {**dict.fromkeys(_BEGINNING, "earliest"), **dict.fromkeys(_END, "latest")}
    return [named.get(word, word) if at and line[at - 1] == option else word for at, word in enumerate(line)]


_ARGUMENTS: Mapping[str, Callable[[list[str]], list[str]]] = {
    "group": _group,
    "topics": _topics,
    "rewind": _rewind,
    "create": _changes,
    "delete": _changes,
    "peek": _peek,
}
