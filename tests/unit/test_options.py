"""Options: every wrong one is refused by name, with what it got and what it takes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kafka_source import options
from kafka_source.errors import OptionError
from kafka_source.options import OPTIONS, Where, parse

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_names_are_case_insensitive_and_defaults_hold():
    parsed = parse({**BASE, "StartingOFFSETS": " Earliest ", "MAXoffsetspertrigger": "10"}, Where.STREAM)
    assert parsed["startingOffsets"] == "earliest"
    assert parsed["maxOffsetsPerTrigger"] == 10
    assert parsed["failOnDataLoss"] is True
    assert not parsed.given("failOnDataLoss")


def test_kafka_settings_are_passed_on_without_the_prefix():
    parsed = parse({**BASE, "kafka.security.protocol": "SSL", "kafka.group.id": "g"}, Where.BATCH)
    assert parsed.kafka["security.protocol"] == "SSL"
    assert parsed["kafka.group.id"] == "g"


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
        ({"batchBytes": str(2**30 + 1)}, Where.BATCH, "batchBytes"),
        ({"batchRows": str(2**31)}, Where.STREAM, "batchRows"),
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
    parsed = parse({**BASE, "maxOffsetsPerTrigger": "5"}, Where.BATCH)
    assert parsed["maxOffsetsPerTrigger"] is None
    assert "maxOffsetsPerTrigger" in parsed.warnings[0]


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("2 hours", 7_200_000), ("250", 250)])
def test_durations_are_read(text, ms):
    assert parse({**BASE, "maxTriggerDelay": text}, Where.STREAM)["maxTriggerDelay"] == ms


def test_java_names_of_assignors_are_understood():
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, mine:Strategy"
    parsed = parse({**BASE, "kafka.partition.assignment.strategy": java}, Where.STREAM)
    assert parsed["kafka.partition.assignment.strategy"] == ("cooperative-sticky", "mine:Strategy")


def test_no_value_shows_in_the_repr_and_options_travel_to_tasks():
    parsed = parse({**BASE, "kafka.sasl.jaas.config": "secret-of-mine"}, Where.BATCH)
    assert "secret-of-mine" not in repr(parsed)
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_every_option_is_declared_once_and_says_what_it_does():
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.doc.endswith(".") and option.kind.takes for option in OPTIONS)


def test_the_docs_have_the_table_of_options():
    page = Path(__file__).parents[2] / "docs" / "options.md"
    assert options.as_markdown() in page.read_text(), "run: ./run docs"
