"""Options: every wrong one is refused by name, with what it got and what it takes."""

import ast
import inspect
import pickle
import re
import traceback
from contextlib import nullcontext
from pathlib import Path

import pytest

from kafka_source.errors import OptionError
from kafka_source.options import (
    OPTIONS,
    ReadOptions,
    SinkOptions,
    Where,
    check_load,
    check_read,
    check_sink,
    column_options,
    combinations,
    read_options,
    value_rules,
)
from kafka_source.options.declaration import declared_in
from kafka_source.options.reference import as_markdown, default_words, refused_examples

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
    assert dict(parsed.settings) == {"bootstrap.servers": "localhost:9092", "security.protocol": "SSL", "group.id": "g"}
    assert parsed.group_id == "g"


@pytest.mark.parametrize(
    ("given", "where", "option"),
    [
        ({"subscribe": ""}, Where.BATCH, "subscribe"),
        ({"subscribe": " , "}, Where.BATCH, "subscribe"),
        ({"subscribePattern": "a.*"}, Where.BATCH, "subscribe"),
        ({"subscribe": None, "subscribePattern": "a["}, Where.BATCH, "subscribePattern"),
        ({"subscribe": None, "assign": "[1]"}, Where.BATCH, "assign"),
        ({"subscribe": None, "assign": '{"t":[-1]}'}, Where.BATCH, "assign"),
        ({"subscribe": None}, Where.BATCH, "subscribe"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":"x"}}'}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": '{"orders":"newest"}'}, Where.STREAM, "startingOffsets"),
        ({"endingOffsets": '{"orders":"latest"}'}, Where.BATCH, "endingOffsets"),
        ({"maxBytesPerTrigger": "0"}, Where.STREAM, "maxBytesPerTrigger"),
        ({"maxBytesPerTrigger": "5 apples"}, Where.STREAM, "maxBytesPerTrigger"),
        ({"targetTriggerDuration": "0s"}, Where.STREAM, "targetTriggerDuration"),
        ({"startingOffsets": "newest"}, Where.STREAM, "startingOffsets"),
        ({"endingOffsets": "latest"}, Where.STREAM, "endingOffsets"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":1}}'}, Where.STREAM, "endingOffsetsByTimestamp"),
        ({"startingTimestamp": "-1"}, Where.BATCH, "startingTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, Where.BATCH, "startingOffsetsByTimestampStrategy"),
        ({"minPartitions": "0"}, Where.BATCH, "minPartitions"),
        ({"minPartitions": "2147483648"}, Where.BATCH, "minPartitions"),
        ({"kafka.group.id": "g", "kafka.session.timeout.ms": "3000"}, Where.STREAM, "kafka.session.timeout.ms"),
        ({"batch.bytes": str(2**30 + 1)}, Where.BATCH, "batch.bytes"),
        ({"batch.rows": str(2**31)}, Where.STREAM, "batch.rows"),
        ({"redundant.copies": "0"}, Where.BATCH, "redundant.copies"),
        ({"assignor.options": '{"weighted": 3}'}, Where.STREAM, "assignor.options"),
        ({"redundant.emit": "both"}, Where.STREAM, "redundant.emit"),
        ({"maxRecordsPerPartition": "-1"}, Where.BATCH, "maxRecordsPerPartition"),
        ({"maxTriggerDelay": "soon"}, Where.STREAM, "maxTriggerDelay"),
        ({"failOnDataLoss": "maybe"}, Where.BATCH, "failOnDataLoss"),
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


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize(
    ("given", "where", "option"),
    [
        ({"startingOffsets": '{"orders":{"0":%d}}'}, Where.BATCH, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":%d},"more":"latest"}'}, Where.STREAM, "startingOffsets"),
        ({"endingOffsets": '{"orders":{"0":%d}}'}, Where.BATCH, "endingOffsets"),
        ({"startingTimestamp": "%d"}, Where.BATCH, "startingTimestamp"),
        ({"endingTimestamp": "%d"}, Where.BATCH, "endingTimestamp"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":%d}}'}, Where.BATCH, "startingOffsetsByTimestamp"),
        ({"endingOffsetsByTimestamp": '{"orders":{"0":%d}}'}, Where.BATCH, "endingOffsetsByTimestamp"),
        ({"maxOffsetsPerTrigger": "%d"}, Where.STREAM, "maxOffsetsPerTrigger"),
    ],
)
def test_a_number_that_is_no_long_of_java_is_refused(given, where, option, number):
    with pytest.raises(OptionError, match=option):
        parse({**BASE, **{name: value % number for name, value in given.items()}}, where)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_a_partition_number_that_is_no_int_of_java_is_refused(option):
    with pytest.raises(OptionError, match=option):
        parse({**BASE, option: f'{{"orders":{{"{2**31}":7}}}}'}, Where.BATCH)


# What Spark hands to a sink besides the user's options, and options of Spark's other sources in a shared dict.
SPARKS_OWN = ("queryName", "checkpointLocation", "path", "asyncProgressTrackingEnabled", "owner")
OTHERS = (
    *("header", "inferSchema", "timestampFormat", "sep", "encoding", "samplingRatio", "multiLine", "compression"),
    *("maxFilesPerTrigger", "maxRecordsPerFile", "maxFileAge", "latestFirst", "cleanSource"),
    *("recursiveFileLookup", "pathGlobFilter", "mergeSchema", "rowsPerSecond", "rampUpTime", "host", "port", "user"),
    *("numPartitions", "partitionColumn", "isolationLevel", "batchsize", "fetchsize", "url", "dbtable", "password"),
    *("startingVersion", "ignoreDeletes", "readChangeFeed", "replaceWhere", "txnAppId", "overwriteSchema"),
)


@pytest.mark.parametrize("check", [lambda given: check_read(given, Where.STREAM), check_sink])
def test_what_spark_hands_over_is_known_and_other_options_are_ignored_with_a_warning(check):
    assert check({**BASE, **dict.fromkeys(SPARKS_OWN, "x")}).warnings == check(BASE).warnings
    warnings = check({**BASE, **dict.fromkeys(OTHERS, "x")}).warnings
    assert set(warnings) - set(check(BASE).warnings) == {f"option {one} is not known and is ignored" for one in OTHERS}


def test_options_that_file_sources_have_too_are_ignored_without_avro():
    warned = set(check_read({**BASE, "mode": "append", "columnNameOfCorruptRecord": "offset"}, Where.STREAM).warnings)
    assert {one for one in warned if "without value.format=avro, protobuf or json" in one} == {
        f"option {one} has no effect without value.format=avro, protobuf or json and is ignored"
        for one in ("mode", "columnNameOfCorruptRecord")
    }


@pytest.mark.parametrize(
    "name",
    ["sasl.jaas.config", "ssl.keystore.key", "group.id", "auto.offset.reset", "bootstrap.servers", "isolation.level"],
)
def test_a_setting_that_decides_something_without_its_prefix_is_refused_unless_it_is_meant(name):
    with pytest.raises(
        OptionError, match=rf"write kafka\.{re.escape(name)}\..* set the option strict to false"
    ) as caught:
        check_load({**BASE, name: "topsecret"})
    assert "topsecret" not in str(caught.value) + repr(vars(caught.value))
    checked = check_read({**BASE, name: "topsecret", "strict": "false"}, Where.BATCH)
    assert name not in {k: v for k, v in checked.options.settings.items() if v == "topsecret"}
    (warning,) = checked.warnings
    assert f"kafka.{name}" in warning
    assert "topsecret" not in warning


def test_a_setting_without_its_prefix_beside_the_right_one_or_without_an_effect_here_is_told():
    for given in ({"kafka.group.id": "g", "group.id": "g"}, {"max.poll.records": "5"}, {"transactional.id": "t"}):
        (warning,) = check_read({**BASE, **given}, Where.STREAM).warnings
        assert "has no effect without its prefix" in warning
    (warning,) = check_sink({**SERVERS, "group.id": "g"}).warnings
    assert "group.id" in warning
    with pytest.raises(OptionError, match=r"write kafka\.acks"):
        check_sink({**SERVERS, "acks": "all"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("kafka.gruop.id", "kafka.group.id"),
        ("kafka.groupid", "kafka.group.id"),
        ("kafka.group.ids", "kafka.group.id"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.isolation.levle", "kafka.isolation.level"),
        ("kafka.sasl.mechansim", "kafka.sasl.mechanism"),
        ("kafka.security.protocoll", "kafka.security.protocol"),
    ],
)
def test_a_misspelt_setting_is_refused_unless_it_is_meant(name, meant):
    with pytest.raises(OptionError, match=rf"setting {re.escape(name)}\. Did you mean {re.escape(meant)}\?") as caught:
        check_load({**BASE, name: "topsecret"})
    assert "topsecret" not in str(caught.value) + repr(vars(caught.value))
    assert check_read({**BASE, name: "x", "strict": "false"}, Where.STREAM).warnings


@pytest.mark.parametrize(
    "name", ["kafka.schema.registry.url", "kafka.my.own.setting", "kafka.statistics.interval.ms", "kafka.acks"]
)
def test_a_setting_that_looks_like_no_other_one_is_left_to_the_clients(name):
    assert check_read({**BASE, name: "1"}, Where.STREAM).warnings == ()


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay", "redundant.emit"])
def test_a_value_that_no_query_takes_is_refused_when_it_is_loaded(name):
    with pytest.raises(OptionError, match=rf"{re.escape(name)} got '10x'"):
        check_load({**BASE, name: "10x"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("startingOfsets", "startingOffsets"), ("kafka_group_id", "kafka.group.id"), ("startingOffset", "")),
        *(("subscribe_pattern", ""), ("fail.on.data.loss", ""), ("commits", ""), ("topics", ""), ("tpoic", "")),
    ],
)
def test_a_misspelt_option_is_told_what_was_meant_and_its_value_is_not_shown(name, meant):
    with pytest.raises(OptionError, match=f"{name}.*Did you mean {re.escape(meant)}") as caught:
        parse({**BASE, name: "topsecret"}, Where.BATCH)
    assert "topsecret" not in str(caught.value) + repr(vars(caught.value))


def test_a_stream_that_must_not_commit_is_told_both_ways():
    with pytest.raises(OptionError, match=r"batch, task or sink in a stream of a group.*group\.membership=false"):
        parse({**BASE, "kafka.group.id": "g", "commit": "none"}, Where.STREAM)
    alone = {**BASE, "kafka.group.id": "g", "commit": "none", "group.membership": "false"}
    assert not parse(alone, Where.STREAM).in_group
    assert parse({**BASE, "kafka.group.id": "g", "commit": "none"}, Where.BATCH).commit == "none"


def test_an_unknown_option_is_told_once_in_a_process(caplog):
    for _ in range(3):
        read_options({**BASE, "told.once": "x"}, Where.STREAM)
    assert [record.message for record in caplog.records] == ["option told.once is not known and is ignored"]


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        (
            {"subscribe": None},
            Where.BATCH,
            "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign",
        ),
        (
            {"subscribePattern": "a"},
            Where.STREAM,
            "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign",
        ),
        ({"subscribe": " , "}, Where.BATCH, "No topics to subscribe to as specified value for option 'subscribe' is"),
        ({"subscribe": None, "subscribePattern": " "}, Where.BATCH, "Pattern to subscribe is empty"),
        (
            {"subscribe": None, "assign": "a"},
            Where.BATCH,
            "No topicpartitions to assign as specified value for option 'assign' is 'a'",
        ),
        (
            {"kafka.bootstrap.servers": None},
            Where.STREAM,
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer",
        ),
        ({"startingOffsets": "latest"}, Where.BATCH, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"orders":{"3":-1}}'},
            Where.BATCH,
            "startingOffsets for orders-3 can't be latest for batch queries on Kafka",
        ),
        (
            {"startingOffsets": '{"orders":"latest"}'},
            Where.BATCH,
            "startingOffsets for orders can't be latest for batch queries on Kafka",
        ),
        ({"endingOffsets": "earliest"}, Where.BATCH, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"endingOffsets": '{"orders":{"3":-2}}'},
            Where.BATCH,
            "ending offset for orders-3 can't be earliest for batch queries on Kafka",
        ),
        ({"endingOffsets": "latest"}, Where.STREAM, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": "{}"}, Where.STREAM, "ending timestamp not valid in streaming queries"),
        ({"startingOffsets": "x"}, Where.STREAM, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got x'),
        ({"startingTimestamp": "x"}, Where.STREAM, "Expected a single long value, got x"),
        ({"minPartitions": "a"}, Where.STREAM, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "0"}, Where.BATCH, "maxrecordsperpartition must be positive"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
            Where.STREAM,
            "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(15).",
        ),
        (
            {"kafka.key.deserializer": "x"},
            Where.BATCH,
            "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with",
        ),
        ({"kafka.enable.auto.commit": "x"}, Where.STREAM, "Kafka option 'enable.auto.commit' is not supported"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            Where.BATCH,
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":9}}'},
            Where.BATCH,
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsetsByTimestamp": '{"a":{"0":4}}'},
            Where.BATCH,
            "UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP",
        ),
    ],
)
def test_sparks_own_words_come_first(given, where, words):
    merged = {name: value for name, value in {**BASE, **given}.items() if value is not None}
    with pytest.raises(OptionError) as caught:
        parse(merged, where)
    assert str(caught.value).startswith(words)
    # Then ours: what to do.
    assert re.search("it takes|Remove|Set|Keep", str(caught.value).removeprefix(words))


def test_a_python_dict_in_place_of_json_is_told_of_json_dumps():
    with pytest.raises(OptionError, match=r"which json\.dumps makes of a dict\."):
        check_load({**BASE, "startingOffsets": str({"orders": {"0": 5}})})


def test_a_read_without_a_topic_says_what_is_missing():
    with pytest.raises(OptionError, match="topic is an option of a sink"):
        check_load({**SERVERS, "topic": "orders"})
    with pytest.raises(OptionError, match=r"Spark has passed no option at all.*temporary view"):
        check_load({})
    with pytest.raises(OptionError, match=r"Spark has passed no option at all.*temporary view"):
        check_sink({})
    with pytest.raises(OptionError, match=r"Keep one of the options subscribe and subscribePattern\."):
        check_load({**BASE, "subscribePattern": "o.*"})
    with pytest.raises(OptionError, match=r"Set kafka\.bootstrap\.servers to host:port"):
        check_load({"subscribe": "orders"})


def test_only_the_start_and_the_end_that_take_precedence_are_looked_at():
    parsed = parse({**BASE, "startingTimestamp": "5", "startingOffsets": "latest"}, Where.BATCH)
    assert parsed.starting_timestamp == 5
    by_timestamp = {"endingOffsetsByTimestamp": '{"orders":{"0":9}}', "endingOffsets": "earliest"}
    assert parse({**BASE, **by_timestamp}, Where.BATCH).ending_offsets_by_timestamp == {"orders": {0: 9}}
    assert parse({**BASE, "startingOffsets": '{"orders":{"0":7}}', "endingTimestamp": "9"}, Where.BATCH)


def test_what_another_option_outranks_may_be_anything_as_in_spark():
    given = {"startingTimestamp": "5", "startingOffsetsByTimestamp": "then", "endingOffsets": "when it is done"}
    checked = check_read({**BASE, **given, "endingOffsetsByTimestamp": '{"orders":{"0":4}}'}, Where.BATCH)
    assert checked.options.starting_timestamp == 5
    assert checked.options.starting_offsets_by_timestamp is None
    assert checked.warnings == (
        "option startingOffsetsByTimestamp has no effect beside startingTimestamp and is ignored",
        "option endingOffsets has no effect beside endingOffsetsByTimestamp and is ignored",
    )
    with pytest.raises(OptionError, match="endingOffsets"):
        check_read({**BASE, **given}, Where.BATCH)


def test_a_topic_may_start_at_a_word():
    parsed = parse({**BASE, "startingOffsets": '{"orders":" Latest","audit":{"0":5,"1":-2}}'}, Where.STREAM)
    assert parsed.starting_offsets == {"orders": "latest", "audit": {0: 5, 1: -2}}
    # Only what both ends name by partitions can be compared.
    ends = {"endingOffsets": '{"orders":{"0":4},"audit":{"0":6}}'}
    assert parse({**BASE, "startingOffsets": '{"orders":"earliest","audit":{"0":5}}', **ends}, Where.BATCH)
    with pytest.raises(OptionError, match="UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        parse({**BASE, "startingOffsets": '{"orders":"earliest","audit":{"0":7}}', **ends}, Where.BATCH)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("100 B", 100), ("2k", 2048), ("512m", 512 << 20), ("1 GB", 1 << 30), ("3t", 3 << 40)]
)
def test_sizes_are_written_as_in_spark(text, size):
    assert parse({**BASE, "maxBytesPerTrigger": text}, Where.STREAM).max_bytes_per_trigger == size
    assert parse({**BASE, "quota.bytes.per.second": text}, Where.STREAM).quota_bytes_per_second == size


def isolation(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaOffsetReaderSuite", f"isolationLevel {name}")


@pytest.mark.parametrize(
    ("given", "read_committed"),
    [
        pytest.param({}, False, marks=isolation("default")),
        pytest.param({"kafka.isolation.level": "READ_UNCOMMITTED"}, False, marks=isolation("READ_UNCOMMITTED")),
        pytest.param({"kafka.isolation.level": "READ_COMMITTED"}, True, marks=isolation("READ_COMMITTED")),
        pytest.param({"kafka.isolation.level": "READ_INVALID"}, None, marks=isolation("invalid")),
    ],
)
def test_the_isolation_level_decides_how_far_is_read(given, read_committed):
    expected = pytest.raises(OptionError, match=r"isolation\.level") if read_committed is None else nullcontext()
    with expected:
        assert parse({**BASE, **given}, Where.STREAM).read_committed is read_committed


def test_a_setting_of_a_read_that_a_sink_has_too_is_not_said_to_be_ignored():
    checked = check_sink({**SERVERS, "kafka.metadata.max.age.ms": "5000", "kafka.group.id": "g"})
    assert checked.warnings == ()
    assert checked.options.settings["metadata.max.age.ms"] == "5000"


def test_an_ending_timestamp_is_ignored_in_a_stream_as_spark_ignores_it():
    checked = check_read({**BASE, "endingTimestamp": "5"}, Where.STREAM)
    assert checked.options.ending_timestamp is None
    assert checked.warnings == ("option endingTimestamp has no effect here and is ignored",)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("auto.offset.reset", [Where.BATCH, Where.STREAM]),
        ("key.deserializer", [Where.BATCH, Where.STREAM]),
        ("value.deserializer", [Where.BATCH, Where.STREAM]),
        ("enable.auto.commit", [Where.BATCH, Where.STREAM]),
        ("key.serializer", [Where.SINK]),
        ("value.serializer", [Where.SINK]),
        # Java classes cannot run here, so this one is refused in a sink too.
        ("interceptor.classes", [Where.BATCH, Where.STREAM, Where.SINK]),
    ],
)
@pytest.mark.spark_test("KafkaSinkSuite", "streaming - exception on config serializer")
def test_what_breaks_a_source_is_refused_in_a_source_and_what_breaks_a_sink_in_a_sink(name, refused):
    given = {**BASE, f"kafka.{name}": "x"}
    for where in (Where.BATCH, Where.STREAM, Where.SINK):
        expected = pytest.raises(OptionError, match="is not supported") if where in refused else nullcontext()
        with expected:
            check_sink(given) if where is Where.SINK else check_read(given, where)


def test_a_load_is_refused_for_what_is_wrong_in_a_batch_and_in_a_stream():
    assert check_load({**BASE, "startingOffsets": "latest"}).options.starting_offsets == "latest"
    assert check_load({**BASE, "endingOffsets": "latest"}).options.ending_offsets == "latest"
    for of_one_kind in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {}):
        with pytest.raises(OptionError, match="failOnDataLoss got 'maybe'"):
            check_load({**BASE, **of_one_kind, "failOnDataLoss": "maybe"})
        with pytest.raises(OptionError, match="commit got 'task'"):
            check_load({**BASE, **of_one_kind, "commit": "task"})
    with pytest.raises(OptionError, match="starting offset can't be latest"):
        check_load({**BASE, "startingOffsets": "latest", "endingOffsets": "latest"})


def test_the_value_of_a_declared_setting_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("GROUP_OF_THIS_TEST", "orders-group")
    monkeypatch.setenv("LEVEL_OF_THIS_TEST", "topsecret")
    providers = {
        "kafka.config.providers": "env",
        "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    parsed = parse({**BASE, **providers, "kafka.group.id": "${env:GROUP_OF_THIS_TEST}"}, Where.STREAM)
    assert parsed.group_id == "orders-group"
    monkeypatch.delenv("GROUP_OF_THIS_TEST")
    assert "kafka.group.id" in repr(pickle.loads(pickle.dumps(parsed)))
    with pytest.raises(OptionError, match="read_committed") as caught:
        parse({**BASE, **providers, "kafka.isolation.level": "${env:LEVEL_OF_THIS_TEST}"}, Where.STREAM)
    assert "topsecret" not in str(caught.value) + repr(vars(caught.value))


@pytest.mark.parametrize(
    ("given", "committed"),
    [
        ({}, False),
        ({"commit": "batch"}, False),
        ({"commit": "sink"}, True),
        ({"commit": "sink", "kafka.isolation.level": "read_uncommitted"}, False),
        ({"kafka.isolation.level": "read_committed"}, True),
    ],
)
def test_a_source_whose_sink_commits_reads_committed_records_only(given, committed):
    assert parse({**BASE, "kafka.group.id": "g", **given}, Where.STREAM).read_committed is committed


def test_a_bound_per_trigger_is_ignored_in_a_batch_with_a_warning():
    checked = check_read({**BASE, "maxOffsetsPerTrigger": "5"}, Where.BATCH)
    assert checked.options.max_offsets_per_trigger is None
    assert "maxOffsetsPerTrigger" in checked.warnings[0]


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("2 hours", 7_200_000), ("250", 250), ("2500us", 2)]
)
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


def test_a_read_option_is_ignored_in_a_sink_with_a_warning():
    checked = check_sink({**SERVERS, "batch.rows": "10", "endingOffsets": "latest", "includeHeaders": "perhaps"})
    assert checked.warnings == tuple(
        f"option {name} has no effect here and is ignored" for name in ("batch.rows", "endingOffsets", "includeHeaders")
    )


def test_the_columns_are_known_before_anything_else_is_checked():
    assert column_options({"INCLUDEheaders": "true", "endingOffsets": "nowhere"}).include_headers is True
    assert column_options({"redundant.emit": "all"}).redundant_emit == "all"
    assert column_options({}).include_headers is False
    with pytest.raises(OptionError, match="includeHeaders got 'perhaps'"):
        column_options({"includeHeaders": "perhaps"})


def test_every_option_is_declared_once_and_says_what_it_does():
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    for option in OPTIONS:
        assert option.doc.endswith(".") and option.kind.takes


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
    # Of its `from_avro`.
    "recursiveFieldMaxDepth",
    # Of Spark's file sources.
    *("maxBytesPerTrigger", "columnNameOfCorruptRecord"),
    # Of Databricks' `from_avro`.
    "avroSchemaEvolutionMode",
    # Ours, and named like the limits of Spark that it stands beside.
    "targetTriggerDuration",
    "maxTimestampSkew",
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


GROUP = {**BASE, "kafka.group.id": "g", "kafka.group.protocol": "consumer"}


def test_a_stream_may_use_the_consumer_protocol_in_any_case():
    parsed = parse({**GROUP, "kafka.group.protocol": "CONSUMER", "kafka.group.remote.assignor": "range"}, Where.STREAM)
    assert (parsed.group_protocol, parsed.group_remote_assignor) == ("consumer", "range")
    assert parse({**BASE, "kafka.group.id": "g"}, Where.STREAM).group_protocol == "classic"


def test_a_group_that_is_only_a_label_has_no_members_to_refuse():
    only_classic = {"kafka.partition.assignment.strategy": "copartition", "kafka.heartbeat.interval.ms": "900"}
    parse({**GROUP, **only_classic, "group.membership": "false"}, Where.STREAM)


def test_each_error_about_a_combination_has_an_example_on_the_page():
    raised, written = set[tuple[str, int | None]](), set[tuple[str, int | None]]()
    for example, error in refused_examples():
        assert error.option.lower() in str(error).lower(), example
        for one in (error, error.__context__):
            frames = traceback.extract_tb(one.__traceback__) if one is not None else ()
            raised |= {(frame.filename, frame.lineno) for frame in frames}
    for module in (combinations, value_rules):
        path = inspect.getfile(module)
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.Raise):
                written |= {(path, node.lineno)}
    assert written
    assert written <= raised


VALUES = {
    "group.membership": "true",
    "kafka.group.instance.id": "i",
    "group.members": "2",
    "kafka.group.remote.assignor": "range",
    "assignor.options": "{}",
    "redundant.copies": "2",
    "commit.transactional": "true",
    "kafka.session.timeout.ms": "9000",
    "kafka.max.poll.interval.ms": "9000",
    "quota.report": "/tmp/quota.json",
}


@pytest.mark.parametrize("option", [one for one in OPTIONS if one.only], ids=lambda one: one.name)
def test_an_option_without_an_effect_is_refused_or_told(option):
    name = option.name
    given = {**BASE, name: VALUES.get(name) or default_words(option).replace("15m", "15min")}
    # Without a group, a quota, a format, these do nothing; one needs a group to do nothing.
    given |= {"groupIdPrefix": {"kafka.group.id": "g"}}.get(name, {})
    if option.is_ours:
        with pytest.raises(OptionError, match=f"Option {name} has an effect only with"):
            check_read(given, Where.STREAM)
    told = check_read({**given, "strict": "false"}, Where.STREAM).warnings
    assert [one for one in told if one.startswith(f"option {name} has an effect only ")]
    assert option.is_ours or told == check_read(given, Where.STREAM).warnings
