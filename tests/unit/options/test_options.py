"""Options: every wrong one is refused by name, with what it got and what it takes."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from kafka_source.errors import OptionError
from kafka_source.options import OPTIONS, ReadOptions, SinkOptions, Where, check_read, check_sink, column_options
from kafka_source.options.declaration import declared_in
from kafka_source.options.reference import as_markdown

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
BASE = {**SERVERS, "subscribe": "orders"}


def parse(given: dict[str, str], where: Where) -> ReadOptions:
    return check_read(given, where).options


def test_names_are_case_insensitive_and_defaults_hold():
    parsed = parse({**BASE, "StartingOFFSETS": " Earliest ", "MAXoffsetspertrigger": "10"}, Where.STREAM)
    assert parsed.starting_offsets == "earliest"
    assert parsed.max_offsets_per_trigger == 10
    assert parsed.fail_on_data_loss is True
    assert parsed.min_partitions is None


def test_kafka_settings_are_passed_on_without_the_prefix():
    parsed = parse({**BASE, "kafka.security.protocol": "SSL", "kafka.group.id": "g"}, Where.BATCH)
    assert dict(parsed.settings) == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SSL",
        "group.id": "g",
    }
    assert parsed.group_id == "g"


@pytest.mark.parametrize(
    ("given", "where", "option"),
    [
        ({"subscribe": ""}, Where.BATCH, "subscribe"),
        ({"subscribe": " , "}, Where.BATCH, "subscribe"),
        ({"subscribePattern": "a.*"}, Where.BATCH, "subscribe"),
        ({"subscribe": None, "subscribePattern": "a["}, Where.BATCH, "subscribePattern"),
        ({"subscribe": None, "assign": "[1]"}, Where.BATCH, "assign"),
        ({"subscribe": None, "assign": "{}"}, Where.BATCH, "assign"),
        ({"subscribe": None, "assign": '{"t":[-1]}'}, Where.BATCH, "assign"),
        ({"subscribe": None}, Where.BATCH, "subscribe"),
        ({"startingOffsets": "latest"}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":"x"}}'}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": "newest"}, Where.STREAM, "startingOffsets"),
        ({"startingOffsets": "committed"}, Where.STREAM, "startingOffsets"),
        ({"endingOffsets": "earliest"}, Where.BATCH, "endingOffsets"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, Where.BATCH, "endingOffsets"),
        ({"endingOffsets": "latest"}, Where.STREAM, "endingOffsets"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":1}}'}, Where.STREAM, "endingOffsetsByTimestamp"),
        ({"startingTimestamp": "-1"}, Where.BATCH, "startingTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, Where.BATCH, "startingOffsetsByTimestampStrategy"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, Where.BATCH, "endingTimestamp"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            Where.BATCH,
            "endingOffsets",
        ),
        ({"minPartitions": "0"}, Where.BATCH, "minPartitions"),
        ({"batch.bytes": str(2**30 + 1)}, Where.BATCH, "batch.bytes"),
        ({"batch.rows": str(2**31)}, Where.STREAM, "batch.rows"),
        ({"redundant.copies": "0"}, Where.BATCH, "redundant.copies"),
        ({"assignor.options": '{"weighted": 3}'}, Where.STREAM, "assignor.options"),
        ({"redundant.emit": "both"}, Where.STREAM, "redundant.emit"),
        ({"redundant.emit": "all"}, Where.STREAM, "redundant.emit"),
        ({"maxRecordsPerPartition": "-1"}, Where.BATCH, "maxRecordsPerPartition"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, Where.STREAM, "minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, Where.STREAM, "maxTriggerDelay"),
        ({"failOnDataLoss": "maybe"}, Where.BATCH, "failOnDataLoss"),
        ({"commit": "task"}, Where.BATCH, "commit"),
        ({"commit": "batch", "kafka.group.id": "g"}, Where.BATCH, "commit"),
        ({"commit": "task", "kafka.group.id": "g", "minPartitions": "4"}, Where.BATCH, "minPartitions"),
        ({"subscribe": None, "assign": '{"t":[0]}', "kafka.group.id": "g"}, Where.BATCH, "assign"),
        ({"kafka.auto.offset.reset": "earliest"}, Where.BATCH, "kafka.auto.offset.reset"),
        ({"kafka.enable.auto.commit": "true"}, Where.STREAM, "kafka.enable.auto.commit"),
        ({"startingOffset": "earliest"}, Where.STREAM, "startingOffset"),
        ({"kafka.bootstrap.servers": None}, Where.STREAM, "kafka.bootstrap.servers"),
        ({"group.members": "0", "kafka.group.id": "g"}, Where.STREAM, "group.members"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given, where, option):
    merged = {name: value for name, value in {**BASE, **given}.items() if value is not None}
    with pytest.raises(OptionError) as caught:
        parse(merged, where)
    assert caught.value.option == option
    assert option in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_option_is_told_what_was_meant():
    with pytest.raises(OptionError, match="did you mean startingOffsets"):
        parse({**BASE, "startingOfsets": "earliest"}, Where.STREAM)
    with pytest.raises(OptionError, match=r"did you mean kafka\.group\.id"):
        parse({**BASE, "group.id": "g"}, Where.STREAM)


@pytest.mark.parametrize("name", ["sasl.jaas.config", "sasl.pasword", "ssl.keystore.key", "anything"])
def test_the_value_of_an_unknown_option_is_not_shown(name):
    with pytest.raises(OptionError, match=name) as caught:
        parse({**BASE, name: "topsecret"}, Where.BATCH)
    assert "topsecret" not in str(caught.value) + repr(vars(caught.value))


def test_a_forgotten_prefix_is_told():
    with pytest.raises(OptionError, match=r"did you mean kafka\.sasl\.jaas\.config\?"):
        parse({**BASE, "sasl.jaas.config": "x"}, Where.BATCH)


def test_a_bound_per_trigger_is_ignored_in_a_batch_with_a_warning():
    checked = check_read({**BASE, "maxOffsetsPerTrigger": "5"}, Where.BATCH)
    assert checked.options.max_offsets_per_trigger is None
    assert "maxOffsetsPerTrigger" in checked.warnings[0]


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("2 hours", 7_200_000), ("250", 250)])
def test_durations_are_read(text, ms):
    assert parse({**BASE, "maxTriggerDelay": text}, Where.STREAM).max_trigger_delay == ms


def test_java_names_of_assignors_are_understood():
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, mine:Strategy"
    parsed = parse({**BASE, "kafka.partition.assignment.strategy": java}, Where.STREAM)
    assert parsed.partition_assignment_strategy == ("cooperative-sticky", "mine:Strategy")


def test_no_value_shows_in_the_repr_and_options_travel_to_tasks():
    parsed = parse({**BASE, "kafka.sasl.jaas.config": "secret-of-mine"}, Where.BATCH)
    assert "secret-of-mine" not in repr(parsed)
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("batchRows", "batch.rows", "10"),
        ("batchBytes", "batch.bytes", "10"),
        ("maxUnpackedBytes", "max.unpacked.bytes", "10"),
        ("minRecordsPerTask", "min.records.per.task", "10"),
        ("group.lost", "group.on.lost", "stop"),
        ("transactional.lost", "transactional.on.lost", "replay"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(old, new, text):
    for name in (old, old.upper()):
        for where in (Where.BATCH, Where.STREAM):
            with pytest.raises(OptionError, match=rf"Option {re.escape(name)} got .* new name, {re.escape(new)}\.$"):
                check_read({**BASE, name: text}, where)
        with pytest.raises(OptionError, match=rf"Option {re.escape(name)} got .* new name, {re.escape(new)}\.$"):
            check_sink({**SERVERS, name: text})


def test_a_read_option_is_ignored_in_a_sink_with_a_warning_and_an_end_is_refused():
    checked = check_sink({**SERVERS, "batch.rows": "10"})
    assert checked.warnings == ("option batch.rows has no effect here and is ignored",)
    with pytest.raises(OptionError, match="endingOffsets got 'latest'; it takes nothing here"):
        check_sink({**SERVERS, "endingOffsets": "latest"})


def test_the_columns_are_known_before_anything_else_is_checked():
    assert column_options({"INCLUDEheaders": "true", "endingOffsets": "nowhere"}).include_headers is True
    assert column_options({"redundant.emit": "all"}).redundant_emit == "all"
    assert column_options({}).include_headers is False
    with pytest.raises(OptionError, match="includeHeaders got 'perhaps'"):
        column_options({"includeHeaders": "perhaps"})


def test_every_option_is_declared_once_and_says_what_it_does():
    names = [name.lower() for option in OPTIONS for name in (option.name, option.formerly) if name]
    assert len(names) == len(set(names))
    for option in OPTIONS:
        assert option.doc.endswith(".") and option.kind.takes
        assert 1 <= len(re.findall(r"\.(?: |$)", option.doc.replace("e.g. ", ""))) <= 4


@pytest.mark.parametrize("options", [ReadOptions, SinkOptions])
def test_a_field_has_the_name_of_its_option_in_snake_case(options):
    for field, option in declared_in(options).items():
        words = re.sub(r"([a-z])([A-Z])", r"\1_\2", option.name.removeprefix("kafka.")).replace(".", "_").lower()
        assert field == words


# What Spark's documentation names, and what Kafka's does without its prefix.
SPARKS = {
    *("assign", "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("failOnDataLoss", "includeHeaders", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"),
    *("fetchOffset.retryIntervalMs", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "groupIdPrefix", "topic"),
}


def test_our_own_names_are_lower_case_with_dots():
    names = {option.name for option in OPTIONS}
    assert names > SPARKS
    assert [name for name in names - SPARKS if not re.fullmatch(r"[a-z]+(\.[a-z]+)*", name)] == []


def test_a_default_is_a_value_that_its_option_takes():
    for option in OPTIONS:
        if isinstance(option.default, (bool, int, str)) and option.default != "":
            assert option.kind.parse(str(option.default).lower()) == option.default


def test_the_docs_have_the_table_of_options():
    page = Path(__file__).parents[3] / "docs" / "options.md"
    assert as_markdown() in page.read_text(), "run: ./run docs"
