"""KafkaRelationSuite: batch reads give the rows of `format("kafka")`, whenever a DataFrame is used."""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Producer

from kafkagroup.embedded import EmbeddedKafka
from tests.parity.formats import ALL, OURS, SPARK, Formats, kind_of
from tests.support.records import create_again, delete_before, write_records
from tests.support.waiting import wait_until

NOON = 1_700_000_000_000


def suite(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaRelationSuite", name)


@pytest.fixture
def numbers(formats: Formats) -> str:
    """0 to 20 in three partitions."""
    return formats.topic("relation", range(10), range(10, 20), [20])


@pytest.fixture
def timed(formats: Formats) -> str:
    """Three records in each of three partitions, a second apart."""
    name = formats.topic("timed", (), (), ())
    for second in range(3):
        for partition in range(3):
            formats.send(name, [10 * partition + second], partition, NOON + 1000 * second)
    return name


def at(topic: str, second: int, partitions: int = 3) -> str:
    return json.dumps({topic: {str(number): NOON + 1000 * second for number in range(partitions)}})


@suite("explicit earliest to latest offsets")
def test_earliest_to_latest_is_what_is_there_when_an_action_runs(formats: Formats, numbers: str) -> None:
    frames = formats.read(subscribe=numbers, startingOffsets="earliest", endingOffsets="latest")
    assert frames.same_numbers() == list(range(21))
    formats.send(numbers, range(21, 30), 2)
    assert frames.same_numbers() == list(range(30))


@suite("default starting and ending offsets")
def test_default_offsets(formats: Formats, numbers: str) -> None:
    assert formats.read(subscribe=numbers).same_numbers() == list(range(21))


@suite("explicit offsets")
def test_explicit_offsets_with_earliest_and_latest_in_json(formats: Formats, numbers: str) -> None:
    start = json.dumps({numbers: {"0": -2, "1": 4, "2": 0}})
    end = json.dumps({numbers: {"0": -1, "1": 7, "2": 1}})
    frames = formats.read(subscribe=numbers, startingOffsets=start, endingOffsets=end)
    assert frames.same_numbers() == [*range(10), 14, 15, 16, 20]
    formats.send(numbers, range(100, 105), 0)
    formats.send(numbers, range(200, 205), 1)
    assert frames.same_numbers() == [*range(10), 14, 15, 16, 20, *range(100, 105)]


@suite("default starting and ending offsets with headers")
def test_headers(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("headers", ())
    some = [("a", b"b"), ("c", b"d"), ("c", b"e"), ("f", None)]
    records: list[dict[str, object]] = [{"value": "1", "headers": some}, {"value": "2"}]
    records.append({"value": "3", "headers": [("g", b"")]})
    write_records(kafka.bootstrap_servers, name, records)
    assert formats.read(subscribe=name, includeHeaders="true").same_numbers() == [1, 2, 3]


BY_TIME: dict[str, tuple[Callable[[str], dict[str, object]], list[int]]] = {
    "timestamp provided for starting and ending": (
        lambda t: {"startingOffsetsByTimestamp": at(t, 1), "endingOffsetsByTimestamp": at(t, 2)},
        [1, 11, 21],
    ),
    "timestamp provided for starting, offset provided for ending": (
        lambda t: {"startingOffsetsByTimestamp": at(t, 1), "endingOffsets": json.dumps({t: {"0": 2, "1": 2, "2": -1}})},
        [1, 11, 21, 22],
    ),
    "timestamp provided for ending, offset provided for starting": (
        lambda t: {"startingOffsets": "earliest", "endingOffsetsByTimestamp": at(t, 2)},
        [0, 1, 10, 11, 20, 21],
    ),
    "timestamp provided for starting, ending not provided": (
        lambda t: {"startingOffsetsByTimestamp": at(t, 1)},
        [1, 2, 11, 12, 21, 22],
    ),
    "timestamp provided for ending, starting not provided": (
        lambda t: {"endingOffsetsByTimestamp": at(t, 1)},
        [0, 10, 20],
    ),
    "global timestamp provided for starting and ending": (
        lambda t: {"startingTimestamp": NOON + 1000, "endingTimestamp": NOON + 2000},
        [1, 11, 21],
    ),
    "no matched offset for timestamp - endingOffsets": (
        lambda t: {"endingOffsetsByTimestamp": at(t, 60)},
        [0, 1, 2, 10, 11, 12, 20, 21, 22],
    ),
    "preferences on offset related options": (
        lambda t: {
            "startingTimestamp": NOON + 2000,
            "startingOffsetsByTimestamp": at(t, 1),
            "startingOffsets": "earliest",
            "endingTimestamp": NOON + 60_000,
            "endingOffsetsByTimestamp": at(t, 1),
            "endingOffsets": json.dumps({t: {"0": 0, "1": 0, "2": 0}}),
        },
        [2, 12, 22],
    ),
}


@pytest.mark.parametrize("case", [pytest.param(name, marks=suite(name)) for name in BY_TIME])
def test_offsets_by_time(formats: Formats, timed: str, case: str) -> None:
    options, expected = BY_TIME[case]
    assert formats.read(subscribe=timed, **options(timed)).same_numbers() == expected


@pytest.mark.long
@suite("no matched offset for timestamp - startingOffsets")
def test_no_record_of_a_starting_time(formats: Formats, timed: str) -> None:
    late = {"startingOffsetsByTimestamp": at(timed, 60)}
    assert formats.read(subscribe=timed, **late).same_error() == "no offset of this time"
    assert formats.read(subscribe=timed, startingTimestamp=NOON + 60_000).same_error() == "no offset of this time"
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert formats.read(subscribe=timed, **late, **latest).same() == []


@suite("reuse same dataframe in query")
def test_a_frame_united_with_itself(formats: Formats, numbers: str) -> None:
    frames = formats.read(subscribe=numbers).map(lambda frame: frame.union(frame))
    assert frames.same_numbers() == sorted([*range(21), *range(21)])


@suite("test late binding start offsets")
def test_what_retention_deletes_between_two_actions_is_no_loss(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("late", range(10))
    frames = formats.read(subscribe=name, startingOffsets="earliest", endingOffsets="latest")
    assert frames.same_numbers() == list(range(10))
    delete_before(kafka, name, {0: 6})
    formats.send(name, range(10, 15))
    assert frames.same_numbers() == list(range(6, 15))


def test_what_retention_deletes_of_a_partition_in_pieces_is_no_loss(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("pieces", range(12))
    frames = formats.read(subscribe=name, minPartitions=3)
    assert frames.tasks() == dict.fromkeys(ALL, 3)
    assert frames.same_numbers() == list(range(12))
    formats.send(name, range(12, 15))
    assert frames.same_numbers() == list(range(15))
    delete_before(kafka, name, {0: 6})
    # Spark's source fails here: its pieces, except the first, have offsets of the plan.
    for name in OURS:
        assert sorted(int(row.value) for row in frames[name].collect()) == list(range(6, 15)), name


def test_a_view_sees_records_that_come_later_also_in_partitions_that_were_empty(formats: Formats) -> None:
    name = formats.topic("view", (), ())
    frames = formats.read(subscribe=name)
    for format_name in ALL:
        frames[format_name].createOrReplaceTempView(f"view_{format_name}")
    counts = {n: f"SELECT count(*) AS n FROM view_{n}" for n in ALL}
    assert {n: formats.spark.sql(query).first() for n, query in counts.items()} == dict.fromkeys(ALL, (0,))
    formats.send(name, range(5), 1)
    assert {n: formats.spark.sql(query).first() for n, query in counts.items()} == dict.fromkeys(ALL, (5,))


def test_a_topic_created_again_is_read_by_a_frame_of_before(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("again", range(5))
    frames = formats.read(subscribe=name)
    assert frames.same_numbers() == list(range(5))
    kafka.delete_topic(name)
    create_again(kafka, name, 1)
    formats.send(name, range(50, 53))
    assert frames.same_numbers() == [50, 51, 52]


WRONG: dict[str, dict[str, object]] = {
    "subscribe": {"subscribe": ""},
    "nothing to read": {},
    "two of them": {"subscribe": "t", "subscribePattern": "t"},
    "assign": {"assign": "no json"},
    "startingOffsets latest": {"subscribe": "t", "startingOffsets": "latest"},
    "startingOffsets -1": {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'},
    "endingOffsets earliest": {"subscribe": "t", "endingOffsets": "earliest"},
    "endingOffsets -2": {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
    "minPartitions": {"subscribe": "t", "minPartitions": "0"},
}


@pytest.mark.parametrize("case", WRONG)
@suite("bad batch query options")
def test_wrong_options(formats: Formats, case: str) -> None:
    assert formats.read(**WRONG[case]).same_error() == "option"


@pytest.mark.parametrize("isolation", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.long)])
@suite("read Kafka transactional messages: read_committed")
@suite("read Kafka transactional messages: read_uncommitted")
def test_one_frame_looks_at_a_transaction_again_and_again(
    kafka: EmbeddedKafka, formats: Formats, isolation: str
) -> None:
    name = formats.topic("transactions", ())
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    frames = formats.read(subscribe=name, kafka_isolation_level=isolation)
    seen = []
    for first, commit in ((0, True), (5, False), (10, True)):
        producer.begin_transaction()
        for value in range(first, first + 5):
            producer.produce(name, str(value))
        producer.flush(10)
        seen.append(frames.same_numbers())
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        # The broker answers before it has written the marker, which is a record too.
        wait_until(partial(_is_stable, kafka, name, 3 * (len(seen) + 1)), "the marker")
        seen.append(frames.same_numbers())
    committed, all_of = [*range(5), *range(10, 15)], list(range(15))
    if isolation == "read_committed":
        assert seen == [[], list(range(5)), list(range(5)), list(range(5)), list(range(5)), committed]
    else:
        assert seen == [list(range(n)) for n in (5, 5, 10, 10, 15)] + [all_of]


@suite("read Kafka transactional messages: read_committed")
def test_a_start_within_an_open_transaction(kafka: EmbeddedKafka, formats: Formats) -> None:
    name = formats.topic("open", ())
    formats.send(name, range(5), timestamp=NOON)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for second in range(3):
        producer.produce(name, str(5 + second), timestamp=NOON + 1000 * second)
    producer.flush(10)
    read = partial(formats.read, subscribe=name, kafka_isolation_level="read_committed")
    late = NOON + 1000
    found = read(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert found.same_numbers() == []
    assert read(startingTimestamp=late).same_error() == "no offset of this time"
    assert read(endingTimestamp=late).same_numbers() == list(range(5))
    producer.commit_transaction(30)
    wait_until(partial(_is_stable, kafka, name, 9), "the marker")
    assert found.same_numbers() == [5, 6, 7]
    assert read(startingTimestamp=late).same_numbers() == [6, 7]


def _is_stable(kafka: EmbeddedKafka, topic: str, offset: int) -> bool:
    from confluent_kafka import Consumer, TopicPartition

    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looks", "isolation.level": "read_committed"}
    with closing(Consumer(config)) as consumer:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1] >= offset


@suite("SPARK-30656: minPartitions")
def test_min_partitions(formats: Formats, numbers: str) -> None:
    frames = formats.read(subscribe=numbers, minPartitions=6)
    tasks = frames.tasks()
    assert tasks == dict.fromkeys(ALL, tasks[SPARK])
    assert tasks[SPARK] >= 6
    assert frames.same_numbers() == list(range(21))
    formats.send(numbers, range(21, 31), 2)
    assert frames.same_numbers() == list(range(31))


@suite("topic-partition for start offset and end offset must match")
def test_json_must_name_the_partitions_of_the_topic(formats: Formats, numbers: str) -> None:
    start = json.dumps({numbers: {"0": 0, "1": 0, "2": 0}})
    end = json.dumps({numbers: {"0": 1, "1": 1}})
    errors = [_error(formats, name, subscribe=numbers, startingOffsets=start, endingOffsets=end) for name in ALL]
    nothing = formats.read(subscribe=numbers, startingOffsets="{}")
    assert nothing.same_error() == "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
    # Spark compares the two texts before it asks the cluster; which of the two conditions is met first differs.
    assert all(one.endswith(("_DOES_NOT_MATCH_ASSIGNED", "_START_OFFSET_AND_END_OFFSET")) for one in errors), errors


@suite("unresolved start offset greater than end offset")
def test_a_start_beyond_the_end_in_json(formats: Formats, numbers: str) -> None:
    start = json.dumps({numbers: {"0": 5, "1": 0, "2": 0}})
    end = json.dumps({numbers: {"0": 4, "1": 1, "2": 1}})
    for name in ALL:
        kind = _error(formats, name, subscribe=numbers, startingOffsets=start, endingOffsets=end)
        assert kind in ("UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET", "option")


@suite("resolved start offset greater than end offset")
def test_a_start_beyond_the_end_when_resolved(formats: Formats, timed: str) -> None:
    kind = "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
    start = json.dumps({timed: {"0": 3, "1": 3, "2": 3}})
    assert formats.read(subscribe=timed, startingOffsets=start, endingTimestamp=NOON + 1000).same_error() == kind
    end = json.dumps({timed: {"0": 1, "1": 1, "2": 1}})
    assert formats.read(subscribe=timed, startingTimestamp=NOON + 2000, endingOffsets=end).same_error() == kind


def test_times_are_compared_by_the_offsets_that_they_mean(formats: Formats, timed: str) -> None:
    # No record is of a time between the two, so both mean the same offset.
    assert formats.read(subscribe=timed, startingTimestamp=NOON + 1800, endingTimestamp=NOON + 1200).same() == []
    crossed = formats.read(subscribe=timed, startingTimestamp=NOON + 1800, endingTimestamp=NOON + 600)
    assert crossed.same_error() == "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"


@pytest.mark.long
@suite("V1: resolved start offset greater than end offset (with latest)")
def test_a_start_beyond_latest(formats: Formats, numbers: str) -> None:
    start = json.dumps({numbers: {"0": 12, "1": 0, "2": 0}})
    frames = formats.read(subscribe=numbers, startingOffsets=start)
    assert frames.same_error() == "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
    formats.send(numbers, range(100, 105), 0)
    assert frames.same_numbers() == [*range(10, 21), 102, 103, 104]


def test_assign_skips_partitions_that_do_not_exist(formats: Formats, numbers: str) -> None:
    frames = formats.read(assign=json.dumps({numbers: [1, 7]}), strict=False)
    assert frames.same_numbers() == list(range(10, 20))
    assert formats.read(assign="{}").same() == []


def test_a_topic_that_does_not_exist(formats: Formats) -> None:
    assert formats.read(subscribe="there-is-no-such-topic").same_error() == "unknown topic"


def _error(formats: Formats, name: str, **options: object) -> str:
    with pytest.raises(Exception) as caught:
        formats.read(**options)[name].collect()
    return kind_of(caught.value)
