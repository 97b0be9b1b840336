"""Writes the pages and tables that follow from the code: `./run docs`.

These are options.md, kafka-settings.md, cli.md, the codes of errors.md, the table of metrics.md, the figures of
README.md and index.md, the map of files in architecture.md, and the index of the design notes.
"""

from pathlib import Path

from docs import cli_page, figures, map_of_files
from kafka_source import errors
from kafka_source.client_config import java_settings as client_settings
from kafka_source.options.reference import as_markdown
from kafkagroup.metrics import catalog as metrics

OPTIONS_PAGE = """# Options

Names are case-insensitive. Options of Spark's Kafka source and settings of Kafka keep their names; the connector's own
options are lower case with dots. Other options with the prefix `kafka.` go to the Kafka clients
([settings](kafka-settings.md), [TLS and logins](security.md)).

Likely mistakes, such as `kafka.gruop.id` or `group.id`, are errors with a suggestion ([`strict`](#strict)). Other unknown
options are ignored with a warning, as Spark ignores them.

`load()` reports invalid options. With `.schema(...)`, the start of the query reports invalid options. A batch option in
a stream, such as `endingOffsets`, or a stream option in a batch is always reported at the query's start.

The column *only* shows in which queries an option has an effect. *Members* are queries with `kafka.group.id`, and
without `assign` or `group.membership=false`. *Classic members* are members without `kafka.group.protocol=consumer`.

## Which of them do I need?

| question | options |
| --- | --- |
| Where do I read? | [`kafka.bootstrap.servers`](#kafka-bootstrap-servers) and one of [`subscribe`](#subscribe), [`subscribePattern`](#subscribepattern), [`assign`](#assign) |
| How do I log in? | `kafka.security.protocol`, `kafka.sasl.mechanism`, `kafka.sasl.jaas.config`: [security](security.md) |
| Must Kafka have my offsets, or do other consumers share the topic? | [`kafka.group.id`](#kafka-group-id); [`group.members`](#group-members) for more tasks: [tuning](tuning.md) |
| Where does a query start the first time? | [`startingOffsets`](#startingoffsets); a group's committed offsets take precedence: [reading](reading.md#as-members-of-a-group) |
| How much at a time? | [`targetTriggerDuration`](#targettriggerduration), [`maxOffsetsPerTrigger`](#maxoffsetspertrigger) or [`maxBytesPerTrigger`](#maxbytespertrigger) |
| Are rows dropped by a watermark while I catch up? | [`maxTimestampSkew`](#maxtimestampskew): [late rows](guides/late-rows.md) |
| When are offsets committed? | nothing to set for a stream; [`commit`](#commit)`=sink` and [`commit.group`](#commit-group) to write to Kafka exactly once |
| Where do I write, and exactly once? | [`topic`](#topic); [`transactional`](#transactional) and [`transactional.id.prefix`](#transactional-id-prefix) |
| May records be lost by retention? | [`failOnDataLoss`](#failondataloss) |
| May I take all the network? | [`quota.bytes.per.second`](#quota-bytes-per-second) |
| What does the query do? | [`log.level`](#log-level)`=info` |

"""

KAFKA_SETTINGS_PAGE = """# Settings of Kafka

The settings of the consumer, producer and admin client of kafka-clients 4.3 have the prefix `kafka.`, as for Spark's
own source. Both engines honour a setting unless its row says otherwise:

- *no meaning*: kafkagroup ignores the setting, and logs it at DEBUG, or at WARN if you would miss its effect. A setting
  of another kind of client (`kafka.acks` in a read) has no meaning, too.
- *refused*: an error names the alternative.
- A name that no Kafka client knows is ignored with a warning, as in Java; a name that looks misspelt is an error
  (`strict`).

Types and ranges are those of Java. A value outside of librdkafka's range is replaced by the nearest value in it, with a
warning. Settings that only librdkafka has, such as `kafka.statistics.interval.ms`, work with `engine=librdkafka`.

## Values from files and the environment

`kafka.config.providers` works as in Java, with `FileConfigProvider`, `DirectoryConfigProvider` and
`EnvVarConfigProvider`:

```python
.option("kafka.config.providers", "file")
.option("kafka.config.providers.file.class", "org.apache.kafka.common.config.provider.FileConfigProvider")
.option("kafka.config.providers.file.param.allowed.paths", "/etc/kafka")
.option("kafka.sasl.password", "${file:/etc/kafka/secrets.properties:password}")
```

The driver and each executor resolve the variables themselves, so the files and variables must exist on every machine.
The resolved values appear in no plan, task or log. With `kafka.client.rack=env:NAME`, each executor's rack is its
environment variable `NAME`; a process without this variable is in no rack.

"""

_FIRST_CATEGORY = "### retriable"
_TABLE_OF_METRICS = "| metric | type |"


def main() -> None:
    """Write the generated parts of the pages."""
    docs = Path(__file__).parent
    (docs / "options.md").write_text(OPTIONS_PAGE + as_markdown())
    (docs / "kafka-settings.md").write_text(KAFKA_SETTINGS_PAGE + client_settings.as_markdown())
    (docs / "cli.md").write_text(cli_page.as_markdown())
    _replace_end(docs / "errors.md", _FIRST_CATEGORY, errors.codes_by_category())
    _replace_end(docs / "metrics.md", _TABLE_OF_METRICS, metrics.as_markdown())
    _replace_end(docs / "architecture.md", map_of_files.FIRST_LINE_OF_MAP, map_of_files.map_of_files())
    _replace_between(docs.parent / "README.md", figures.table_of_readme())
    _replace_between(docs / "index.md", figures.table_of_home())
    index = docs / "design" / "README.md"
    _replace_end(index, map_of_files.FIRST_LINE_OF_INDEX, map_of_files.index_of_design_notes())


def _replace_end(page: Path, first: str, generated: str) -> None:
    """Replace a page from the line that begins with `first` to its end."""
    written, _, _ = page.read_text().partition(first)
    page.write_text(written + generated)


def _replace_between(page: Path, table: str) -> None:
    """Replace what stands between the marks of the figures."""
    before, _, rest = page.read_text().partition(figures.BEGIN)
    page.write_text(before + figures.BEGIN + table + figures.END + rest.partition(figures.END)[2])


if __name__ == "__main__":
    main()
