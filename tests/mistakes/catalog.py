"""Mistakes that users make, and the page answers.md about them.

`tests/mistakes/attempts.py` makes each of them in a real Spark, on a real Kafka, and writes the page.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

PAGE = Path(__file__).with_name("answers.md")
HEAD = """# Mistakes, and how they are answered

What users do wrong, and the sentence that answers it. `./run python -m tests.mistakes.attempts` made each mistake in a
session of Spark that had run a query before, and wrote down what came: kafkagroup's sentence; *lines*, how many lines
of the error are kafkagroup's; *seconds*, from the call to the error.

Of an error in a query three lines are kafkagroup's: two for the frame of the method that Spark called, as Python shows
it, and the sentence, once. The others are Spark's. `log.level=debug` shows all frames. `strict=false` lets those
queries run whose sentence says so.

"""

_SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
_READ = {**_SERVERS, "subscribe": "orders"}
_GROUP = {**_READ, "kafka.group.id": "billing"}
_SINK = {**_SERVERS, "topic": "enriched"}
_COPY = {**_SINK, "transactional": "true", "transactional.id.prefix": "copy"}
_JSON = {"value.format": "json", "value.schema": "id int"}


class How(Enum):
    """What is done with the options of a mistake."""

    BATCH = "a read in batch"
    STREAM = "a stream to nowhere"
    WRITE = "a batch of one row, with the column `value`, is written"
    COPY = "a stream of the topic `orders` is written"
    DELETED = "a stream to nowhere runs, and its topic is deleted"
    AGAIN = "a stream to nowhere, with the checkpoint of one that reads `orders` in the group `billing`"
    COMMAND = "a command of a shell"
    PYTHON = "a program"


class At(Enum):
    """The Kafka that is asked."""

    NONE = "none: the driver refuses the options"
    OPEN = "without login"
    RIGHTS = "with a login, and with rights"
    TLS = "with TLS"
    ELSEWHERE = "without login, and with another address in advertised.listeners"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake.

    Attributes:
        section: The heading in the page.
        typed: The options that are wrong, beside `base`.
        base: The other options.
        how: What is done with all of them.
        without: Options of `base` that are missing.
        at: The Kafka that is asked.
        words: What is wrong, where the options alone do not say it.
        user: The user that logs in.
        body: What is written, in SQL; or the command, or the program.
        connect: Whether it is made over Spark Connect too.
    """

    section: str
    typed: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[str, str] = field(default_factory=lambda: _READ)
    how: How = How.BATCH
    without: tuple[str, ...] = ()
    at: At = At.NONE
    words: str = ""
    user: str = ""
    body: str = "CAST(id AS STRING) AS value"
    connect: bool = False

    @property
    def options(self) -> dict[str, str]:
        """All options."""
        return {name: text for name, text in {**self.base, **self.typed}.items() if name not in self.without}

    @property
    def shown(self) -> str:
        """The mistake as users type it."""
        if self.words:
            return self.words
        wrong = [f"`{name}={text}`" for name, text in self.typed.items()]
        return ", ".join(wrong + [f"no `{name}`" for name in self.without])


NAMES, VALUES, TOPICS, GROUPS, SINKS, BROKERS, LOGIN, CHECKPOINTS, ENVIRONMENT, CONNECT = (
    "Names of options and settings",
    "Values",
    "What to read, and from where to where",
    "Groups and commits",
    "Sinks",
    "Brokers and TLS",
    "Logins and rights",
    "Checkpoints",
    "Environments and commands",
    "Over Spark Connect",
)
_COMMANDS = {
    "of `kafkagroup groups`": "$BIN/kafkagroup groups",
    "of `arrow.read`": "$BIN/python -c 'import json, os; from kafkagroup import arrow; "
    'list(arrow.read("orders", json.loads(os.environ["SETTINGS"])))\'',
}


def _in_each_way(
    section: str, words: str, at: At, typed: Mapping[str, str] = MappingProxyType({}), user: str = ""
) -> Iterator[Mistake]:
    for how, base, way in (
        (How.BATCH, _READ, "in a batch"),
        (How.STREAM, _READ, "in a stream"),
        (How.STREAM, _GROUP, "in a group"),
        (How.WRITE, _SINK, "in a sink"),
    ):
        yield Mistake(section, typed, base, how, at=at, words=f"{words}, {way}", user=user)
    for way, command in _COMMANDS.items():
        yield Mistake(section, typed, how=How.COMMAND, at=at, words=f"{words}, {way}", user=user, body=command)


MISTAKES = (
    Mistake(NAMES, {"group.id": "billing"}, connect=True),
    Mistake(NAMES, {"kafka.gruop.id": "billing"}),
    Mistake(NAMES, {"kafka.groupid": "billing"}),
    Mistake(NAMES, {"bootstrap.servers": "broker:9092"}, without=("kafka.bootstrap.servers",)),
    Mistake(NAMES, {"security.protocol": "SSL"}),
    Mistake(NAMES, {"kafka.isolation.levle": "read_committed"}),
    Mistake(NAMES, {"startingOffset": "earliest"}, connect=True),
    Mistake(NAMES, {"fail.on.data.loss": "false"}),
    Mistake(NAMES, {"kafka.auto.offset.reset": "earliest"}),
    Mistake(NAMES, {"kafka.enable.auto.commit": "true"}),
    Mistake(NAMES, {"kafka.value.deserializer": "org.example.AvroDeserializer"}),
    Mistake(VALUES, {"failOnDataLoss": "no"}),
    Mistake(VALUES, {"maxOffsetsPerTrigger": "10k"}),
    Mistake(VALUES, {"minPartitions": "0"}),
    Mistake(VALUES, {"maxBytesPerTrigger": "5 apples"}),
    Mistake(VALUES, {"maxTriggerDelay": "soon"}),
    Mistake(VALUES, {"commit": "always"}),
    Mistake(VALUES, {"log.level": "verbose"}),
    Mistake(VALUES, {"engine": "rust"}),
    Mistake(VALUES, {"kafka.isolation.level": "committed"}),
    Mistake(TOPICS, {}, without=("subscribe",)),
    Mistake(TOPICS, {"topic": "orders"}, without=("subscribe",)),
    Mistake(TOPICS, {"subscribePattern": "orders.*"}, connect=True),
    Mistake(TOPICS, {"subscribePattern": "orders["}, without=("subscribe",)),
    Mistake(TOPICS, {"assign": '{"orders":0}'}, without=("subscribe",)),
    Mistake(TOPICS, {}, without=("kafka.bootstrap.servers",)),
    Mistake(TOPICS, {"startingOffsets": "newest"}, connect=True),
    Mistake(TOPICS, {"startingOffsets": "{'orders': {'0': 5}}"}),
    Mistake(TOPICS, {"startingOffsets": "latest"}),
    Mistake(TOPICS, {"endingOffsets": "latest"}, how=How.STREAM),
    Mistake(TOPICS, {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":4}}'}),
    Mistake(GROUPS, {"commit": "sink"}),
    Mistake(GROUPS, {"startingOffsets": "committed"}),
    Mistake(GROUPS, {"commit": "batch"}, _GROUP),
    Mistake(GROUPS, {"group.members": "0"}, _GROUP),
    Mistake(GROUPS, {"commit": "task", "minPartitions": "8"}, _GROUP),
    Mistake(SINKS, {"transactional": "true"}, _SINK, How.WRITE),
    Mistake(SINKS, {"transactional.id.prefix": "copy"}, _SINK, How.WRITE),
    Mistake(SINKS, {"acks": "all"}, _SINK, How.WRITE),
    Mistake(SINKS, {"kafka.key.serializer": "org.example.Avro"}, _SINK, How.WRITE),
    Mistake(SINKS, base=_SINK, how=How.WRITE, without=("topic",), at=At.OPEN),
    Mistake(SINKS, {"topic": "nowhere"}, _SINK, How.WRITE, at=At.OPEN),
    Mistake(SINKS, {"topic": "no such topic!"}, _SINK, How.WRITE, at=At.OPEN, connect=True),
    Mistake(
        SINKS,
        base=_SINK,
        how=How.WRITE,
        without=("topic",),
        at=At.OPEN,
        words="column `topic` with a topic that does not exist",
        body="CAST(id AS STRING) AS value, 'nowhere' AS topic",
    ),
    Mistake(
        SINKS,
        base=_SINK,
        how=How.WRITE,
        at=At.OPEN,
        words="column `value` of type bigint",
        body="id AS value",
        connect=True,
    ),
    Mistake(SINKS, base=_SINK, how=How.WRITE, at=At.OPEN, words="no column `value`", body="'a' AS word"),
    Mistake(
        SINKS,
        base=_SINK,
        how=How.WRITE,
        at=At.OPEN,
        words="a value of 2 MB, where the broker takes 1 MB",
        body="repeat('x', 2000000) AS value",
    ),
    Mistake(SINKS, {"kafka.transaction.timeout.ms": "99999999"}, _COPY, How.COPY, at=At.OPEN),
    Mistake(BROKERS, {"kafka.bootstrap.servers": "no.such.host.invalid:9092"}, at=At.OPEN),
    *_in_each_way(BROKERS, "an advertised address that no client reaches", At.ELSEWHERE),
    *_in_each_way(BROKERS, "a port where nothing listens", At.OPEN, {"kafka.bootstrap.servers": "127.0.0.1:1"}),
    Mistake(BROKERS, {"subscribe": "nowhere"}, at=At.OPEN, connect=True),
    Mistake(BROKERS, {"subscribe": "orderss"}, at=At.OPEN),
    Mistake(
        BROKERS,
        {"subscribe": "nowhere"},
        how=How.STREAM,
        at=At.OPEN,
        words="`subscribe=nowhere` in a stream",
        connect=True,
    ),
    Mistake(BROKERS, {"subscribe": "parcels"}, how=How.DELETED, at=At.OPEN, words="a topic deleted under a stream"),
    Mistake(BROKERS, {"assign": '{"orders":[0,9]}'}, without=("subscribe",), at=At.OPEN, connect=True),
    Mistake(BROKERS, {"startingOffsets": '{"orders":{"0":0}}'}, at=At.OPEN),
    Mistake(BROKERS, {**_JSON}, at=At.OPEN, words="`value.format=json`, and a value that is no JSON"),
    Mistake(BROKERS, {"kafka.security.protocol": "SSL"}, at=At.OPEN, words="`SSL`, and a listener without TLS"),
    Mistake(BROKERS, {}, at=At.TLS, words="no `SSL`, and a listener with TLS"),
    Mistake(BROKERS, {"kafka.security.protocol": "SSL"}, at=At.TLS, words="`SSL`, and an unknown certificate"),
    Mistake(
        BROKERS,
        {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such.jks"},
        at=At.TLS,
        words="`kafka.ssl.truststore.location=/no/such.jks`",
    ),
    Mistake(LOGIN, {"kafka.security.protocol": "SASL_SSL"}, at=At.OPEN, connect=True),
    Mistake(LOGIN, at=At.RIGHTS, words="a listener with SASL, and no login"),
    *_in_each_way(LOGIN, "a wrong password", At.RIGHTS, user="a stranger"),
    Mistake(LOGIN, at=At.RIGHTS, words="no READ on the topic", user="nobody"),
    Mistake(LOGIN, base=_GROUP, at=At.RIGHTS, words="no READ on the group", user="reader"),
    Mistake(
        LOGIN,
        {"commit": "task", "commit.transactional": "true"},
        _GROUP,
        at=At.RIGHTS,
        words="`commit.transactional=true` without WRITE on the transactional id",
        user="member",
    ),
    Mistake(LOGIN, base=_SINK, how=How.WRITE, at=At.RIGHTS, words="no WRITE on the topic", user="reader"),
    Mistake(
        LOGIN,
        base=_COPY,
        how=How.COPY,
        at=At.RIGHTS,
        words="`transactional=true` without WRITE on the transactional ids",
        user="writer",
    ),
    Mistake(CHECKPOINTS, {"subscribe": "payments"}, _GROUP, How.AGAIN, at=At.OPEN),
    Mistake(CHECKPOINTS, {"kafka.group.id": "other"}, _GROUP, How.AGAIN, at=At.OPEN),
    Mistake(
        ENVIRONMENT,
        how=How.PYTHON,
        words="`kafkagroup.register` without pyspark",
        body="""
import sys

class WithoutSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

sys.meta_path.insert(0, WithoutSpark())
import kafkagroup
kafkagroup.register
""",
    ),
    Mistake(
        ENVIRONMENT,
        how=How.PYTHON,
        words="the command `kafkagroup` without the extra `cli`",
        body="import sys; sys.modules['typer'] = None; from kafkagroup.cli import main; main()",
    ),
    Mistake(
        ENVIRONMENT,
        how=How.PYTHON,
        words="`kafkagroup peek` without pyarrow",
        body="import sys; sys.modules['pyarrow'] = None; sys.argv[1:] = ['peek', 'orders', '-b', 'broker:9092']; "
        "from kafkagroup.cli import main; main()",
    ),
    Mistake(
        ENVIRONMENT,
        how=How.PYTHON,
        words="`EmbeddedKafka` without Java",
        body="import os; os.environ.update(PATH='', JAVA_HOME=''); "
        "from kafkagroup.embedded import EmbeddedKafka; EmbeddedKafka().start()",
    ),
    Mistake(
        ENVIRONMENT,
        how=How.COMMAND,
        words="`kafkagroup doctor` where `python3` of the PATH has no kafkagroup",
        body="PATH=/usr/bin:/bin $BIN/kafkagroup doctor | grep format",
    ),
    *(
        Mistake(ENVIRONMENT, how=How.COMMAND, words=f"`{command}`", body=f"$BIN/{command}")
        for command in (
            "kafkagroup groups",
            "kafkagroup peek nowhere -b broker:9092",
            "kafkagroup group nobody -b broker:9092",
            "kafkagroup groups -o yaml -b broker:9092",
            "kafkagroup export orders --to orders.parquet --value-format avro",
        )
    ),
)
OVER_CONNECT = tuple(one for one in MISTAKES if one.connect)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a mistake.

    Attributes:
        section: The heading in the page.
        shown: The mistake as users type it.
        sentence: The sentence of ours.
        lines: How many lines of the error are ours, the sentence included.
        seconds: From the call to the error.
    """

    section: str
    shown: str
    sentence: str
    lines: int
    seconds: float

    def __str__(self) -> str:
        """Return the row of the page's table."""
        return f"| {_cell(self.shown)} | {_cell(self.sentence)} | {self.lines} | {self.seconds:.1f} |"


def page(rows: Sequence[Row]) -> str:
    """Return answers.md."""
    lines: list[str] = []
    for section in dict.fromkeys(row.section for row in rows):
        lines += [f"## {section}", "", "| mistake | answered | lines | seconds |", "| --- | --- | --- | --- |"]
        lines += [str(row) for row in rows if row.section == section]
        lines.append("")
    return HEAD + "\n".join(lines)


def rows_of_page() -> list[Row]:
    """Return the rows that answers.md has."""
    rows, section = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif found := _ROW.fullmatch(line):
            shown, sentence = (re.sub(r"\\([|*])", r"\1", text) for text in found.group(1, 2))
            rows.append(Row(section, shown, sentence, int(found[3]), float(found[4])))
    return rows


_ROW = re.compile(r"\| (.*) \| (.*) \| (\d+) \| ([\d.]+) \|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")
