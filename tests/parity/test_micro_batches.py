"""KafkaMicroBatchSourceSuite: streams make the batches of `format("kafka")`."""

import json
import random
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from kafkagroup.embedded import EmbeddedKafka
from tests.parity.formats import OURS, SPARK, Formats, kind_of
from tests.support.records import add_partitions, create_again, delete_before, run_to_end, write_records
from tests.support.waiting import wait_until

NOON = 1_700_000_000_000


def suite(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaMicroBatchSourceSuite", name)


def process(formats: Formats, name: str, options: dict[str, object]) -> None:
    """Start a query of one format into nowhere, and let it read what is there."""
    writer = formats.stream_of(name, options).writeStream.format("noop")
    writer.option("checkpointLocation", str(formats.folder / name)).start().processAllAvailable()


def sizes(batches: list[list[str]]) -> list[int]:
    return [len(batch) for batch in batches]


@suite("Trigger.AvailableNow")
def test_available_now_reads_bounded_batches_to_the_end_of_then(formats: Formats) -> None:
    name = formats.topic("available", *(range(first, first + 3) for first in range(0, 15, 3)))
    options = {"subscribe": name, "maxOffsetsPerTrigger": 5, "startingOffsets": "earliest"}
    queries = formats.available_now(**options)
    assert sizes(queries.same_batches()) == [5, 5, 5]
    formats.send(name, [100])
    queries.start().finish()
    assert sizes(queries.same_batches()) == [5, 5, 5, 1]


@suite("(de)serialization of initial offsets")
def test_a_query_that_was_stopped_without_data_keeps_its_place(formats: Formats) -> None:
    name = formats.topic("initial", range(3), ())
    queries = formats.streams(subscribe=name).start().process()
    queries.stop()
    formats.send(name, range(3, 6))
    assert [int(v) for v in queries.start().process().same_batches()[0]] == [3, 4, 5]


@pytest.mark.long
@suite("SPARK-26718 Rate limit set to Long.Max should not overflow integer during end offset calculation")
def test_the_largest_limit(formats: Formats) -> None:
    name = formats.topic("largest", range(5))
    queries = formats.available_now(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=2**63 - 1)
    assert sizes(queries.same_batches()) == [5]


@suite("maxOffsetsPerTrigger")
def test_max_offsets_per_trigger(formats: Formats) -> None:
    name = formats.topic("limited", range(100, 201), range(10, 21), [1])
    options = {"subscribe": name, "maxOffsetsPerTrigger": 10, "startingOffsets": "earliest"}
    queries = formats.streams({"availableNow": True}, **options).start().finish()
    batches = queries.same_batches()
    assert sizes(batches)[0] == 10
    assert len([v for batch in batches for v in batch]) == 113


@pytest.mark.long
def test_shares_of_a_limit_are_rounded_alike(formats: Formats) -> None:
    name = formats.topic("shares", range(29), range(100, 171))
    queries = formats.available_now(subscribe=name, maxOffsetsPerTrigger=100, startingOffsets="earliest")
    assert sizes(queries.same_batches()) == [99, 1], "100 * (29 / 100.0) is less than 29"


@suite("minOffsetsPerTrigger")
def test_min_offsets_per_trigger(formats: Formats) -> None:
    name = formats.topic("held-back", range(3))
    options = {"subscribe": name, "minOffsetsPerTrigger": 5, "maxTriggerDelay": "10m", "startingOffsets": "earliest"}
    queries = formats.streams(**options).start().process()
    assert sizes(queries.same_batches()) == [3], "the first batch does not wait"
    formats.send(name, range(3, 6))
    queries.process()
    assert sizes(queries.same_batches()) == [3]
    formats.send(name, range(6, 9))
    queries.process()
    assert sizes(queries.same_batches()) == [3, 6]


@pytest.mark.long
@suite("compositeReadLimit")
def test_min_and_max_offsets_per_trigger(formats: Formats) -> None:
    name = formats.topic("composite", range(10), ())
    options = {
        "subscribe": name,
        "minOffsetsPerTrigger": 4,
        "maxOffsetsPerTrigger": 6,
        "maxTriggerDelay": "10m",
        "startingOffsets": "earliest",
    }
    queries = formats.streams(**options).start().process()
    assert sizes(queries.same_batches()) == [6, 4]
    formats.send(name, range(10, 13), 1)
    queries.process()
    assert sizes(queries.same_batches()) == [6, 4]
    formats.send(name, range(13, 17), 1)
    queries.process()
    assert sizes(queries.same_batches()) == [6, 4, 6]


@pytest.mark.long
@suite("The value of minOffsetPerTrigger is higher than the maxOffsetsPerTrigger")
def test_a_minimum_above_the_maximum(formats: Formats) -> None:
    name = formats.topic("contradiction", ())
    for one in (SPARK, *OURS):
        with pytest.raises(Exception, match="minOffset"):
            process(formats, one, {"subscribe": name, "minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 15})


@pytest.mark.long
@suite("input row metrics")
def test_input_rows(formats: Formats) -> None:
    name = formats.topic("rows", range(3))
    queries = formats.available_now(subscribe=name, startingOffsets="earliest")
    counts = {n: sum(p["numInputRows"] for p in query.recentProgress) for n, query in queries.running.items()}
    assert counts == dict.fromkeys(counts, 3)


@pytest.mark.long
@suite("subscribing topic by pattern with topic deletions")
@suite("delete a topic when a Spark job is running")
def test_a_pattern_with_a_deleted_topic(kafka: EmbeddedKafka, formats: Formats) -> None:
    # The pattern must not match topics of other tests on the same broker.
    first, second = formats.topic("one-of-two-deleted", range(3), ()), formats.topic("one-of-two-deleted", (), ())
    prefix = first.rpartition("-")[0]
    options = {"subscribePattern": f"^{prefix}-.*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    queries = formats.streams(**options, kafka_metadata_max_age_ms=100).start().process()
    kafka.delete_topic(first)
    formats.send(second, range(3, 6))
    queries.process()
    queries.process()
    assert queries.same_numbers() == list(range(6))


@pytest.mark.long
@suite("subscribe topic by pattern with topic recreation between batches")
def test_a_topic_created_again_with_fewer_records_is_data_loss(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("recreated", range(5))
    queries = formats.streams(subscribe=name, startingOffsets="earliest", kafka_metadata_max_age_ms=100)
    queries.start().process().stop()
    kafka.delete_topic(name)
    create_again(kafka, name, 1)
    formats.send(name, range(2))
    queries.start()
    # Spark sees a lower offset, and would miss a topic that has grown as large; we compare the topics' ids.
    for query in queries.running.values():
        with pytest.raises(Exception) as caught:
            query.processAllAvailable()
        assert kind_of(caught.value).startswith("KAFKA_DATA_LOSS.PARTITION")


@pytest.mark.long
@suite("SPARK-41375: empty partitions should not record to latest offset")
def test_empty_partitions(formats: Formats) -> None:
    name = formats.topic("empty", (), (), ())
    queries = formats.streams(subscribe=name, startingOffsets="earliest").start().process()
    assert queries.same_batches() == []
    formats.send(name, range(3), 2)
    assert sizes(queries.process().same_batches()) == [3]


@pytest.mark.long
@suite("KafkaSource with watermark")
@suite("Kafka column types")
def test_columns_in_an_aggregation_with_a_watermark(formats: Formats) -> None:
    name = formats.topic("watermark", ())
    formats.send(name, range(4), timestamp=NOON)
    formats.send(name, range(4, 6), timestamp=NOON + 60_000)
    found = {}
    for one in (SPARK, *OURS):
        frame = formats.stream_of(one, {"subscribe": name, "startingOffsets": "earliest"})
        counts = frame.withWatermark("timestamp", "10 seconds").groupBy("timestamp", "timestampType").count()
        query = counts.writeStream.format("memory").queryName(f"watermark_{one}").outputMode("complete").start()
        query.processAllAvailable()
        query.stop()
        found[one] = sorted(tuple(row) for row in formats.spark.table(f"watermark_{one}").collect())
    assert len(found[SPARK]) == 2
    assert all(found[one] == found[SPARK] for one in OURS)


@pytest.mark.long
@suite("SPARK-22956: currentPartitionOffsets should be set when no new data comes in")
def test_a_union_of_two_topics(formats: Formats) -> None:
    first, second = formats.topic("one", range(5)), formats.topic("two", range(10, 15))
    found = {}
    for one in (SPARK, *OURS):
        frames = [formats.stream_of(one, {"subscribe": t, "startingOffsets": "earliest"}) for t in (first, second)]
        query = frames[0].union(frames[1]).writeStream.format("memory").queryName(f"union_{one}").start()
        query.processAllAvailable()
        found[one] = query
    formats.send(second, range(15, 18))
    for one, query in found.items():
        query.processAllAvailable()
        query.stop()
        values = formats.spark.table(f"union_{one}").selectExpr("CAST(value AS STRING)").collect()
        assert sorted(int(row[0]) for row in values) == [*range(5), *range(10, 18)], one


@pytest.mark.long
@suite("ensure stream-stream self-join generates only one offset in log and correct metrics")
def test_a_self_join(formats: Formats) -> None:
    name, lines = formats.topic("joined", [1, 2, 3], ()), {}
    for one in (SPARK, *OURS):
        frame = formats.stream_of(one, {"subscribe": name, "startingOffsets": "earliest"})
        values = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value")
        checkpoint = formats.folder / f"joined-{one}"
        query = (
            values.join(values, "value")
            .writeStream.format("memory")
            .queryName(f"joined_{one}")
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        query.processAllAvailable()
        query.stop()
        assert formats.spark.table(f"joined_{one}").count() == 3
        lines[one] = len((checkpoint / "offsets" / "0").read_text().splitlines())
    assert lines == dict.fromkeys(lines, lines[SPARK]), 'as many sources as with format("kafka")'


@pytest.mark.parametrize(
    "isolation",
    [
        pytest.param("read_committed", marks=suite("read Kafka transactional messages: read_committed")),
        pytest.param(
            "read_uncommitted", marks=[suite("read Kafka transactional messages: read_uncommitted"), pytest.mark.long]
        ),
    ],
)
def test_transactions(kafka: EmbeddedKafka, formats: Formats, isolation: str) -> None:
    name = formats.topic("transactions", ())
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for first, commit in ((0, True), (5, False), (10, True)):
        producer.begin_transaction()
        for value in range(first, first + 5):
            producer.produce(name, str(value))
        # An abort drops what was not sent yet.
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    # The broker answers before it has written the last marker.
    producer.begin_transaction()
    producer.produce(name, "99")
    producer.commit_transaction(30)
    options = {"startingOffsets": "earliest", "kafka.isolation.level": isolation, "maxOffsetsPerTrigger": 3}
    queries = formats.streams(subscribe=name, **options).start().process()
    expected = [*range(5), *range(10, 15), 99] if isolation == "read_committed" else [*range(15), 99]
    assert queries.same_numbers() == expected


@pytest.mark.long
@suite("SPARK-27494: read null key/values without exceptions")
def test_null_keys_and_values(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("nulls", ())
    rows = ((None, None), ("k", None), (None, "v"), ("", ""))
    write_records(kafka.bootstrap_servers, name, ({"key": key, "value": value} for key, value in rows))
    queries = formats.available_now(subscribe=name, startingOffsets="earliest")
    assert [row[3] for row in queries.rows[SPARK][0]] == [None, None, "v", ""]
    assert all(queries.rows[one] == queries.rows[SPARK] for one in OURS)


def _count_tasks(counts: list[int], frame: DataFrame, _: int) -> None:
    counts.append(frame.rdd.getNumPartitions())


@pytest.mark.long
@suite("SPARK-30656: minPartitions")
@suite("minPartitions is supported")
def test_min_partitions(formats: Formats) -> None:
    name = formats.topic("pieces", range(12), range(12, 15))
    found = {}
    for one in (SPARK, *OURS):
        counts: list[int] = []
        frame = formats.stream_of(one, {"subscribe": name, "startingOffsets": "earliest", "minPartitions": 6})
        writer = frame.writeStream.foreachBatch(partial(_count_tasks, counts))
        run_to_end(writer.option("checkpointLocation", str(formats.folder / one)))
        found[one] = counts
    assert found[SPARK][0] >= 6
    assert all(found[one] == found[SPARK] for one in OURS)


@pytest.mark.long
@suite("cannot stop Kafka stream")
def test_a_query_can_be_stopped(formats: Formats) -> None:
    name = formats.topic("stopped", range(5), (), (), (), ())
    queries = formats.streams(subscribePattern=f"^{name}$", startingOffsets="earliest").start().process()
    queries.stop()
    assert not any(query.isActive for query in queries.running.values())


@pytest.fixture
def five(formats: Formats) -> str:
    """Two old records and one of noon in each of five partitions."""
    name = formats.topic("five", *[()] * 5)
    for partition in range(5):
        formats.send(name, [-10 - partition, -20 - partition], partition, NOON - 60_000)
        formats.send(name, [partition], partition, NOON)
    return name


SELECTIONS: dict[str, Callable[[str], dict[str, object]]] = {
    "assign": lambda name: {"assign": json.dumps({name: list(range(5))})},
    "subscribing topic by name": lambda name: {"subscribe": name},
    "subscribing topic by pattern": lambda name: {"subscribePattern": f"^{name}$"},
}
STARTS: dict[str, Callable[[str], dict[str, object]]] = {
    "earliest offsets": lambda name: {"startingOffsets": "earliest"},
    "specific offsets": lambda name: {
        "startingOffsets": json.dumps({name: {"0": -2, "1": 2, "2": 1, "3": 0, "4": -1}})
    },
    "specific timestamps": lambda name: {
        "startingOffsetsByTimestamp": json.dumps({name: {str(n): NOON - (n % 2) * 60_000 for n in range(5)}})
    },
    "global timestamp per topic": lambda name: {"startingTimestamp": NOON},
}
_ALL_STARTS = [
    # How topics are selected and where they start is independent: daily each start once, all pairs in long runs.
    pytest.param(
        selection,
        start,
        marks=[suite(f"{selection} from {start}"), *([pytest.mark.long] if selection != "assign" else [])],
    )
    for selection in SELECTIONS
    for start in STARTS
]


@pytest.mark.parametrize(("selection", "start"), _ALL_STARTS)
def test_where_a_stream_starts(formats: Formats, five: str, selection: str, start: str) -> None:
    fail = "true" if selection == "assign" else "false"
    queries = formats.available_now(**SELECTIONS[selection](five), **STARTS[start](five), failOnDataLoss=fail)
    assert queries.same_rows()


@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(s, marks=[suite(f"{s} from latest offsets"), *([] if "pattern" in s else [pytest.mark.long])])
        for s in SELECTIONS
    ],
)
def test_a_stream_from_latest_and_its_added_partitions(
    kafka: EmbeddedKafka, formats: Formats, five: str, selection: str
) -> None:
    options = {"startingOffsets": "latest", "kafka_metadata_max_age_ms": 100}
    queries = formats.streams(**SELECTIONS[selection](five), **options).start().process()
    formats.send(five, [100, 101], 3)
    queries.process()
    if selection != "assign":
        add_partitions(kafka, five, 6)
        formats.send(five, [102], 5)
        queries.process()
        queries.process()
    assert queries.same_numbers() == [100, 101] + [102] * (selection != "assign")


NOT_MATCHING: dict[str, Callable[[str], dict[str, object]]] = {
    "specific timestamps": lambda name: {
        "startingOffsetsByTimestamp": json.dumps({name: {str(n): NOON + 60_000 for n in range(5)}})
    },
    "global timestamp per topic": lambda name: {"startingTimestamp": NOON + 60_000},
}
_ALL_NOT_MATCHING = [
    pytest.param(
        f"subscribing topic by {by}",
        start,
        marks=[
            suite(f"subscribing topic by {by} from {start} with non-matching starting offset"),
            *([] if (by, start) == ("name", "global timestamp per topic") else [pytest.mark.long]),
        ],
    )
    for by in ("name", "pattern")
    for start in NOT_MATCHING
]


@pytest.mark.parametrize("strategy", [pytest.param("error", marks=pytest.mark.long), "latest"])
@pytest.mark.parametrize(("selection", "start"), _ALL_NOT_MATCHING)
def test_no_record_of_the_starting_time(formats: Formats, five: str, selection: str, start: str, strategy: str) -> None:
    options = {**SELECTIONS[selection](five), **NOT_MATCHING[start](five)}
    queries = formats.streams(**options, startingOffsetsByTimestampStrategy=strategy).start()
    if strategy == "error":
        assert queries.same_error() == "no offset of this time"
        return
    queries.process()
    formats.send(five, [100])
    assert queries.process().same_numbers() == [100]


@pytest.mark.long
@suite("SPARK-53560: no crash looping during uncommitted batch retry in AvailableNow trigger")
def test_an_unfinished_batch_is_run_again_by_available_now(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("retried", range(5))
    queries = formats.available_now(subscribe=name, startingOffsets="earliest")
    for one in (SPARK, *OURS):
        commits = queries.folder / one / "commits"
        last = max(commits.glob("[0-9]*"))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
    add_partitions(kafka, name, 2)
    formats.send(name, range(5, 8), 1)
    queries.start().finish()
    assert queries.same_numbers() == sorted([*range(5), *range(5), *range(5, 8)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("partitions", "count"),
    [
        pytest.param(3, 15, marks=suite("AvailableNow: topic partitions got unavailable")),
        pytest.param(5, 10, marks=suite("AvailableNow: offsets got unavailable")),
    ],
)
def test_a_topic_created_again_while_available_now_runs_is_an_error(
    kafka: EmbeddedKafka, formats: Formats, partitions: int, count: int
) -> None:
    # What Spark's own source says of it is not the same in both cases, but it fails too.
    kinds = {}
    for one in (SPARK, *OURS):
        name = formats.topic(f"again-{one}", *[range(3)] * 5)

        def create_it_again(frame: DataFrame, number: int, name: str = name) -> None:
            frame.collect()
            if number == 0:
                kafka.delete_topic(name)
                create_again(kafka, name, partitions)
                for partition in range(partitions):
                    formats.send(name, range(count // partitions), partition)

        options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
        frame = formats.stream_of(one, {**options, "kafka.metadata.max.age.ms": 100})
        writer = frame.writeStream.foreachBatch(create_it_again)
        with pytest.raises(StreamingQueryException) as caught:
            run_to_end(writer.option("checkpointLocation", str(formats.folder / one)))
        kinds[one] = kind_of(caught.value)
    # Spark's source compares offsets. kafkagroup compares topic ids, so it also notices a topic of as many records.
    assert {kinds[one].split(".")[0] for one in OURS} == {"KAFKA_DATA_LOSS"}, kinds


@pytest.mark.long
def test_deleted_records_are_skipped_by_available_now(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("unavailable", range(10))
    delete_before(kafka, name, {0: 4})
    queries = formats.available_now(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert queries.same_numbers() == list(range(4, 10))


@pytest.mark.long
@suite("get offsets from case insensitive parameters")
def test_options_in_any_case(formats: Formats) -> None:
    name = formats.topic("cases", range(3))
    assert formats.available_now(SUBSCRIBE=name, StartingOffsets="EARLIEST").same_numbers() == [0, 1, 2]


WRONG: dict[str, dict[str, object]] = {
    "ending offset not valid in streaming queries": {"subscribe": "t", "endingOffsets": "latest"},
    "ending timestamp not valid in streaming queries": {"subscribe": "t", "endingOffsetsByTimestamp": '{"t":{"0":1}}'},
    "one of": {},
    "only one of": {"subscribe": "t", "subscribePattern": "t"},
    "no topics": {"subscribe": " , "},
    "no pattern": {"subscribePattern": ""},
    "no json": {"assign": "t"},
}


@pytest.mark.parametrize("case", WRONG)
@suite("bad source options")
def test_wrong_options(formats: Formats, case: str) -> None:
    for one in (SPARK, *OURS):
        with pytest.raises(Exception):  # noqa: B017 - Spark's texts differ from case to case
            process(formats, one, WRONG[case])


@pytest.mark.parametrize(
    "option",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
)
@suite("unsupported kafka configs")
def test_unsupported_settings(formats: Formats, option: str) -> None:
    for one in (SPARK, *OURS):
        with pytest.raises(Exception, match="not supported"):
            process(formats, one, {"subscribe": "t", f"kafka.{option}": "x"})


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"groupIdPrefix": "my-app"}, marks=suite("allow group.id prefix")),
        pytest.param(
            {"kafka.group.id": "%s-label", "group.membership": "false"}, marks=suite("allow group.id override")
        ),
        # Alone in a group of its own, a member reads what a label reads.
        pytest.param({"kafka.group.id": "%s-{format}"}, marks=suite("allow group.id override")),
    ],
)
def test_a_group_id_or_its_prefix(formats: Formats, options: dict[str, str]) -> None:
    name = formats.topic("labelled", range(30), (), ())
    for one in (SPARK, *OURS):
        given = {option: value.replace("%s", name).replace("{format}", one) for option, value in options.items()}
        frame = formats.read(subscribe=name, **given)[one]
        assert sorted(int(row.value) for row in frame.collect()) == list(range(30)), one


@suite("SPARK-56243: malformed record timestamp")
def test_a_time_that_no_calendar_has_is_an_error_with_its_place(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = f"beyond-time-{formats.folder.name}"
    kafka.create_topic(name, 1, config={"message.timestamp.after.max.ms": 2**63 - 1})
    formats.send(name, ["now"])
    formats.send(name, ["never"], timestamp=2**63 - 1)
    frames = formats.read(subscribe=name)
    with pytest.raises(Exception, match=name):
        frames[SPARK].collect()
    for one in OURS:
        with pytest.raises(Exception, match=f"The record of {name}-0 at offset 1 cannot be read as requested"):
            frames[one].collect()


@suite("stress test with multiple topics and partitions")
@pytest.mark.long
def test_topics_and_partitions_come_while_records_do(kafka: EmbeddedKafka, formats: Formats) -> None:
    rng = random.Random(20261123)
    names = [formats.topic("stressed", *[()] * rng.randint(1, 3))]
    prefix = names[0].rpartition("-")[0]
    partitions = {names[0]: 1}
    quick = {"kafka_metadata_max_age_ms": 100}
    queries = formats.streams(subscribePattern=f"^{prefix}-.*", startingOffsets="earliest", **quick).start()
    sent = 0
    for turn in range(30):
        if turn % 10 == 5:
            names.append(formats.topic("stressed", (), ()))
            partitions[names[-1]] = 2
        elif turn % 10 == 9:
            grows = rng.choice(names)
            partitions[grows] = 3 + partitions[grows]
            add_partitions(kafka, grows, partitions[grows])
        for _ in range(rng.randint(1, 4)):
            name, count = rng.choice(names), rng.randint(1, 20)
            formats.send(name, range(sent, sent + count), rng.randrange(partitions[name]))
            sent += count
        if turn % 3 == 0:
            queries.process()
    wait_until(lambda: all(sum(map(len, rows)) >= sent for rows in queries.process().rows.values()), "all records")
    assert queries.same_numbers() == list(range(sent))
