"""Makes docs/mistakes.md: mistakes that users make, and the sentence with which each is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_source.errors import KafkaGroupError
from kafka_source.options import Where, check_load, check_read, check_sink

HEAD = """# Mistakes, and how they are answered

What users type wrong, and the sentence that answers it. `./run docs` makes each mistake and writes down what came. An
error of kafkagroup comes without the frames of its code, so that Spark shows its own lines and this sentence;
`log.level=debug` shows the frames. `strict=false` lets those run that say so.

"""

_READ = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
_GROUP = {**_READ, "kafka.group.id": "billing"}
_SINK = {"kafka.bootstrap.servers": "broker:9092", "topic": "orders"}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in the options.

    Attributes:
        section: The heading in the page.
        typed: The options that are wrong, beside `base`.
        base: The other options.
        check: What checks all of them.
        without: Options of `base` that are missing.
    """

    section: str
    typed: Mapping[str, str]
    base: Mapping[str, str] = field(default_factory=lambda: _READ)
    check: Callable[[Mapping[str, str]], object] = check_load
    without: tuple[str, ...] = ()

    def answer(self) -> str:
        """Make the mistake, and return what the user is told.

        Raises:
            LookupError: It is not refused.
        """
        options = {**self.base, **self.typed}
        try:
            self.check({name: text for name, text in options.items() if name not in self.without})
        except KafkaGroupError as error:
            return str(error)
        raise LookupError(f"nobody refuses {dict(self.typed)}")

    @property
    def shown(self) -> str:
        """The mistake as users type it."""
        wrong = [f"`{name}={text}`" for name, text in self.typed.items()]
        return ", ".join(wrong + [f"no `{name}`" for name in self.without])


def _of_batch(options: Mapping[str, str]) -> object:
    return check_read(options, Where.BATCH)


def _of_stream(options: Mapping[str, str]) -> object:
    return check_read(options, Where.STREAM)


NAMES, VALUES, TOPICS, GROUPS, SINKS = (
    "Names of options and settings",
    "Values",
    "What to read, and from where to where",
    "Groups and commits",
    "Sinks",
)

MISTAKES = (
    Mistake(NAMES, {"group.id": "billing"}),
    Mistake(NAMES, {"kafka.gruop.id": "billing"}),
    Mistake(NAMES, {"kafka.groupid": "billing"}),
    Mistake(NAMES, {"bootstrap.servers": "broker:9092"}, without=("kafka.bootstrap.servers",)),
    Mistake(NAMES, {"security.protocol": "SSL"}),
    Mistake(NAMES, {"kafka.isolation.levle": "read_committed"}),
    Mistake(NAMES, {"startingOffset": "earliest"}),
    Mistake(NAMES, {"fail.on.data.loss": "false"}),
    Mistake(NAMES, {"batchRows": "1000"}),
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
    Mistake(TOPICS, {"subscribePattern": "orders.*"}),
    Mistake(TOPICS, {"subscribePattern": "orders["}, without=("subscribe",)),
    Mistake(TOPICS, {"assign": '{"orders":0}'}, without=("subscribe",)),
    Mistake(TOPICS, {}, without=("kafka.bootstrap.servers",)),
    Mistake(TOPICS, {"startingOffsets": "newest"}),
    Mistake(TOPICS, {"startingOffsets": "{'orders': {'0': 5}}"}),
    Mistake(TOPICS, {"startingOffsets": "latest"}, check=_of_batch),
    Mistake(TOPICS, {"endingOffsets": "latest"}, check=_of_stream),
    Mistake(TOPICS, {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":4}}'}),
    Mistake(GROUPS, {"commit": "sink"}),
    Mistake(GROUPS, {"startingOffsets": "committed"}),
    Mistake(GROUPS, {"commit": "batch"}, _GROUP, _of_batch),
    Mistake(GROUPS, {"group.members": "0"}, _GROUP),
    Mistake(GROUPS, {"commit": "task", "minPartitions": "8"}, _GROUP),
    Mistake(SINKS, {"transactional": "true"}, _SINK, check_sink),
    Mistake(SINKS, {"transactional.id.prefix": "copy"}, _SINK, check_sink),
    Mistake(SINKS, {"acks": "all"}, _SINK, check_sink),
    Mistake(SINKS, {"kafka.key.serializer": "org.example.Avro"}, _SINK, check_sink),
)


def page() -> str:
    """Return docs/mistakes.md."""
    lines: list[str] = []
    for section in dict.fromkeys(one.section for one in MISTAKES):
        lines += [f"## {section}", "", "| typed | answered |", "| --- | --- |"]
        lines += [f"| {_cell(one.shown)} | {_cell(one.answer())} |" for one in MISTAKES if one.section == section]
        lines.append("")
    return HEAD + "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")
