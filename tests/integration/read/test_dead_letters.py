"""Records whose values cannot be decoded, in the topic of dead letters: before their offsets count, and never lost."""

from collections import Counter
from functools import partial

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.produce.dead_letters import write_dead_letters
from kafka_source.produce.records import HEADERS
from kafkagroup import arrow
from tests.apps.process import halting, spark_app, streaming_app
from tests.support.avro import framed, record
from tests.support.native import kernel
from tests.support.records import reader, run_to_end, stream, to_files, write_records, written_rows
from tests.support.waiting import wait_until, wait_until_committed

kernel()

ORDER = record("Order", {"name": "id", "type": "long"})
GOOD, TOMBSTONE = {"id": 5}, None
# No UTF-8.
KEY = b"\xff\x00key"
OWN: list[tuple[str, str | bytes | None]] = [("trace", b"\x01"), ("trace", None)]
ERRORS = "__streams.errors."


@pytest.fixture
def orders(kafka, topic, kafkagroup_schema_registry):
    """A topic of two partitions, its dead letters' topic, and its bad records by their places."""
    name, dead = topic("orders", partitions=2), topic("dead", partitions=1)
    number = kafkagroup_schema_registry.register(f"{name}-value", ORDER)
    good = framed(number, ORDER, GOOD)
    bad = [good[:-1], b"hunter2hunter2", framed(number + 9999, ORDER, GOOD)]
    for partition in (0, 1):
        place = {"key": KEY, "headers": OWN, "partition": partition}
        values = (good, bad[0], TOMBSTONE, *bad[1:], good)
        write_records(kafka.bootstrap_servers, name, ({"value": value, **place} for value in values))
    return name, dead, {(name, p, offset): value for p in (0, 1) for offset, value in zip((1, 3, 4), bad, strict=True)}


@pytest.fixture
def avro(kafkagroup_schema_registry):
    return {"value.format": "avro", "schema.registry.url": kafkagroup_schema_registry.url, "mode": "DROPMALFORMED"}


def letters(kafka, topic):
    """The dead letters by their places, with how often each is there."""
    found: dict[tuple[str, int, int], list[bytes]] = {}
    batches = arrow.read(topic, {"bootstrap.servers": kafka.bootstrap_servers}, columns=["key", "value", "headers"])
    for row in pa.table(batches).to_pylist():
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        assert (row["key"], headers[: len(OWN)]) == (KEY, OWN)
        errors = {key.removeprefix(ERRORS): value.decode() for key, value in headers[len(OWN) :]}
        assert errors["exception"] == "kafkagroup.UnreadableRecordError"
        assert errors["message"] and "hunter2" not in errors["message"]
        place = errors["topic"], int(errors["partition"]), int(errors["offset"])
        found.setdefault(place, []).append(row["value"])
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("commit", "moment", "passes"),
    [
        ("batch", "batch-planned", 0),
        # One task has written its dead letters, and then both have.
        ("task", "dead-letters-written", 0),
        ("batch", "dead-letters-written", 1),
        # The group has offsets of a batch whose rows are not written.
        ("task", "task-committed", 0),
        # The first of two batches is done.
        ("batch", "offsets-committed", 0),
    ],
)
def test_a_stream_that_dies_loses_no_dead_letter_and_writes_its_rows_once(
    spark, kafka, orders, avro, groups, tmp_path, commit, moment, passes
):
    name, dead, bad = orders
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "kafka.group.instance.id": f"{name}-app",
        "kafka.session.timeout.ms": 6_000,
        "startingOffsets": "earliest",
        "group.members": 2,
        "min.records.per.task": 1,
        "commit": commit,
        "deadletter.topic": dead,
        # Of the query, whose dead letters are acknowledged all the same.
        "kafka.acks": "0",
        **avro,
    }
    if moment == "offsets-committed":
        options["maxOffsetsPerTrigger"] = 6
    with streaming_app(tmp_path, options, environment=halting(tmp_path, moment, passes)) as app:
        app.wait_for("started")
        wait_until((tmp_path / "halted").exists, f"the failpoint {moment}")
        app.kill()
    committed = {tp.partition: offset for tp, offset in groups.committed(f"{name}-group").items()}
    written = letters(kafka, dead)
    assert any(committed.values()) == moment.endswith("-committed")
    assert bool(written) == (moment != "batch-planned")
    # No offset counts before the dead letters of what is below it.
    assert {place for place in bad if place[2] < committed.get(place[1], 0)} <= written.keys()
    run_to_end(to_files(spark.readStream.format("kafkagroup").options(**options).load(), tmp_path))
    rows = sorted(written_rows(tmp_path / "out", "partition", "offset", "value"), key=lambda row: row[:2])
    assert rows == [(p, offset, value) for p in (0, 1) for offset, value in ((0, GOOD), (2, TOMBSTONE), (5, GOOD))]
    wait_until_committed(groups, f"{name}-group", 12)
    found = letters(kafka, dead)
    assert {place: set(values) for place, values in found.items()} == {place: {value} for place, value in bad.items()}
    if moment == "dead-letters-written":
        # A task that ran again has written again.
        assert sum(map(len, found.values())) >= len(bad) + 3


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    ["dead-letters-written", "task-flushed", "sink-prepared", "sink-decided", "sink-half-committed", "sink-committed"],
)
def test_a_copy_that_dies_loses_no_dead_letter_and_has_its_rows_exactly_once(
    kafka, topic, orders, avro, groups, tmp_path, moment
):
    name, dead, bad = orders
    out, group = topic("out", partitions=2), f"{name}-group"
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    source = {
        **servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "kafka.group.id": group,
        "kafka.group.instance.id": f"{name}-app",
        "kafka.session.timeout.ms": 6_000,
        "group.members": 2,
        "min.records.per.task": 1,
        "commit": "sink",
        "deadletter.topic": dead,
        **avro,
    }
    sink = {
        **servers,
        "topic": out,
        "transactional": "true",
        "transactional.id.prefix": name,
        "commit.group": group,
        "value.format": "json",
    }
    copy = partial(spark_app, "copying_app", tmp_path, "local[2]", source, sink)
    with copy(environment=halting(tmp_path, moment, 0)) as app:
        wait_until((tmp_path / "halted").exists, f"the failpoint {moment}")
        app.kill()
    committed = {tp.partition: offset for tp, offset in groups.committed(group).items()}
    assert {place for place in bad if place[2] < committed.get(place[1], 0)} <= letters(kafka, dead).keys()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}

    def visible() -> Counter[bytes | None]:
        return Counter(pa.table(arrow.read(out, settings))["value"].to_pylist())

    with copy(name="again") as app:
        wait_until_committed(groups, group, 12)
        # Offsets of the first run count with its decision, before its transactions are committed.
        wait_until(lambda: visible().total() >= 6, "the decided rows")
        app.stop()
    assert visible() == {b'{"id":5}': 4, TOMBSTONE: 2}
    found = letters(kafka, dead)
    assert {place: set(values) for place, values in found.items()} == {place: {value} for place, value in bad.items()}


def test_each_action_of_a_batch_writes_what_it_decodes(spark, kafka, orders, avro):
    name, dead, bad = orders
    options = {**avro, "mode": "PERMISSIVE", "deadletter.topic": dead}
    frame = reader(spark, kafka, name, **options).load()
    assert frame.where("_corrupt_record IS NOT NULL").count() == len(bad)
    assert frame.where("value IS NOT NULL").count() == 4
    assert letters(kafka, dead) == {place: [value] * 2 for place, value in bad.items()}


def test_a_topic_that_is_missing_or_read_is_an_error_at_the_start(spark, kafka, orders, avro, tmp_path):
    name, dead, _ = orders
    missing = {**avro, "deadletter.topic": f"{dead}-missing"}
    said = f"Topic {dead}-missing of the option deadletter.topic does not exist. Create the topic"
    with pytest.raises(Exception, match=said):
        reader(spark, kafka, name, **missing).load().count()
    query = stream(spark, kafka, name, **missing).writeStream.format("noop")
    with pytest.raises(Exception, match=said):
        query.option("checkpointLocation", str(tmp_path / "missing")).start().processAllAvailable()
    both = {**avro, "subscribePattern": f"{name}|{dead}", "value.subject": f"{name}-value", "deadletter.topic": dead}
    with pytest.raises(Exception, match=f"deadletter.topic.*{dead}.*a topic that the query does not read"):
        reader(spark, kafka, "", **both).load().count()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        # It was deleted while the query ran.
        ({"topic.metadata.propagation.max.ms": "500"}, "UNKNOWN_TOPIC|Unknown topic"),
        ({"max.request.size": "100"}, "kafka.max.request.size is 100"),
    ],
)
def test_a_dead_letter_that_is_not_delivered_ends_the_task(kafka, topic, settings, said):
    name = topic("lost", partitions=1) if "max.request.size" in settings else "no-such-topic"
    places = {"topic": ["orders"], "partition": pa.array([0], pa.int32()), "offset": [7]}
    record = pa.record_batch({"key": [b"k"], "value": [b"hunter2"], "headers": pa.array([None], HEADERS), **places})
    given = Settings({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    with pytest.raises(KafkaGroupError, match=said) as failed:
        write_dead_letters(given, name, record, ["no Avro"])
    text = str(failed.value)
    assert text.startswith(f"Writing 1 dead letters to topic {name} (deadletter.topic) failed: ")
    assert "its offsets are not committed. Check that the topic exists" in text
    assert "hunter2" not in text
