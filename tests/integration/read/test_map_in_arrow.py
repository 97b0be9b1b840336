"""A function in the read task: its rows, its errors, its end, and what a query commits and shows."""

import os
import sys
import time
import zipfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql.types import IntegerType, StructField, StructType
from pyspark.sql.utils import StreamingQueryException

import kafkagroup
from kafka_source.engine_selection import why_not_native
from tests.support.programs import run_python
from tests.support.random_functions import compare, functions
from tests.support.records import produce, reader, run_to_end, to_files
from tests.support.waiting import wait_until, wait_until_committed

SIZES = "size int, offset bigint"
COUNT = 200
SECRET = "hunter2-in-a-closure"


def sizes(batches, secret=""):
    for batch in batches:
        yield pa.record_batch({"size": pc.binary_length(batch["value"]), "offset": batch["offset"]})


@pytest.fixture(scope="module")
def orders(kafka):
    """A topic of 200 numbers, as keys and values."""
    kafka.create_topic("orders-to-map", 2)
    produce(kafka.bootstrap_servers, "orders-to-map", COUNT)
    return "orders-to-map"


def source(reading, kafka, name, **options):
    reading = reading.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("subscribe", name)
    return reading.options(**{option.replace("_", "."): value for option, value in options.items()})


def rows(frame):
    return sorted(map(tuple, frame.collect()))


def run(frame, folder, **options):
    return run_to_end(to_files(frame, folder).options(**options))


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_batch_has_the_rows_of_map_in_arrow(spark, kafka, orders, engine):
    reading = source(spark.read, kafka, orders, engine=engine)
    inside = kafkagroup.map_in_arrow(reading, sizes, SIZES, columns=["value", "offset"])
    outside = reading.format("kafkagroup").load().mapInArrow(sizes, SIZES)
    assert inside.schema == outside.schema
    assert rows(inside) == rows(outside)
    assert inside.count() == COUNT
    # The reader has forgotten the function.
    assert len(reading.load().columns) == 7


def test_a_stream_of_a_group_counts_what_it_reads_and_what_it_returns(spark, kafka, orders, groups, group, tmp_path):
    def every_tenth(batches):
        for batch in sizes(batches):
            yield batch.filter(pc.equal(pc.bit_wise_and(batch["offset"], 7), 0))

    reading = source(spark.readStream, kafka, orders, startingOffsets="earliest", kafka_group_id=group)
    query = run(kafkagroup.map_in_arrow(reading, every_tenth, SIZES, columns=["value", "offset"]), tmp_path)
    written = spark.read.parquet(str(tmp_path / "out")).count()
    assert 0 < written < COUNT / 4
    (progress,) = [one for one in query.recentProgress if one.numInputRows]
    assert progress.numInputRows == written
    (offsets,) = kafkagroup.progress.sources_of(progress)
    assert sum(span.end - span.start for span in offsets.end.partitions.values()) == COUNT
    wait_until_committed(groups, group, COUNT)


def test_decoded_values_and_all_columns_are_given_to_it(spark, kafka, orders):
    def names(batches):
        for batch in batches:
            first = [",".join(batch.schema.names)]
            yield pa.record_batch([pa.array(first), batch["value"].slice(0, 1)], ["names", "value"])

    options = {"value.format": "string", "includeHeaders": "true"}
    reading = source(spark.read, kafka, orders).options(**options)
    found = {row[0] for row in kafkagroup.map_in_arrow(reading, names, "names string, value string").collect()}
    assert found == {"key,value,topic,partition,offset,timestamp,timestampType,headers"}
    reading = reading.options(**{"value.format": "json", "value.schema": "n int", "mode": "PERMISSIVE"})
    frame = kafkagroup.map_in_arrow(
        reading, names, "names string, value struct<n:int>", columns=["_corrupt_record", "value"]
    )
    assert {row[0] for row in frame.collect()} == {"_corrupt_record,value"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"columns": ["value", "none"]}, "map.columns got 'value,none'; it takes each at most once: key, value,"),
        ({"columns": []}, "columns got []; it takes a list of names of columns, at least one"),
        ({"schema": "no schema !"}, "PARSE_SYNTAX_ERROR"),
        ({"schema": StructType([StructField("size", IntegerType())])}, None),
        ({"f": 3}, "a function of an iterator of pyarrow.RecordBatch"),
        ({"f": partial(sizes, secret=sys.stdout)}, "The function cannot be pickled: "),
        ({"f": partial(sizes, secret=bytes(17 << 20))}, "more than 16,777,216: load large objects"),
    ],
)
def test_mistakes_come_out_in_the_call(spark, kafka, orders, change, told):
    arguments = {"f": sizes, "schema": SIZES, "columns": None, **change}
    if told is None:
        assert kafkagroup.map_in_arrow(source(spark.read, kafka, orders), **arguments).columns == ["size"]
        return
    with pytest.raises(Exception) as caught:
        kafkagroup.map_in_arrow(source(spark.read, kafka, orders), **arguments)
    assert told in str(caught.value)


def test_options_about_a_function_are_checked_and_never_shown(spark, kafka, orders):
    for options, told in (
        ({"map.columns": "value"}, "it takes a value only with map.function"),
        ({"map.schema": SIZES}, "it takes a value only with map.function"),
        ({"map.function": "gASVsecret=="}, "'*****'; it takes module:function"),
        ({"map.function": "os:system"}, "Option map.schema is missing"),
    ):
        with pytest.raises(Exception, match="OptionError") as caught:
            reader(spark, kafka, orders).options(**options).load()
        assert told in str(caught.value)
        assert "secret" not in str(caught.value)


def test_an_error_names_the_place_and_shows_neither_the_function_nor_a_secret(spark, kafka, orders, tmp_path, capfd):
    def failing(batches, secret=SECRET):
        for batch in batches:
            assert secret
            raise LookupError("no key")
            yield batch

    reading = source(spark.read, kafka, orders)
    frame = kafkagroup.map_in_arrow(reading, failing, SIZES, columns=["value"])
    with pytest.raises(PythonException) as caught:
        frame.collect()
    told = str(caught.value)
    assert "failed with LookupError; its last batch had the offsets orders-to-map-" in told
    assert f'test_map_in_arrow.py", line {failing.__code__.co_firstlineno + 3}, in failing' in told
    reading = source(spark.readStream, kafka, orders, startingOffsets="earliest")
    with pytest.raises(StreamingQueryException) as stopped:
        run(kafkagroup.map_in_arrow(reading, failing, SIZES, columns=["value"]), tmp_path)
    frame.explain("extended")
    out, err = capfd.readouterr()
    files = [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    pickled = kafkagroup.map_in_arrow.__globals__["text_of"](failing).partition(":")[2]
    for text in (told, str(stopped.value), out, err, repr(frame), *files):
        assert SECRET not in text
        assert pickled[:40] not in text
        assert pickled[-40:] not in text


def test_a_function_of_another_python_is_refused_as_a_udf_is(spark, kafka, orders):
    text = kafkagroup.map_in_arrow.__globals__["text_of"](sizes)
    options = {"map.function": "2.7:" + text.partition(":")[2], "map.schema": SIZES}
    with pytest.raises(PythonException, match="PYTHON_VERSION_MISMATCH"):
        reader(spark, kafka, orders).options(**options).load().collect()


SENT = """
import pyarrow as pa
import kafkagroup

def plain(batches):
    for batch in batches:
        yield pa.record_batch({"offset": batch["offset"]})

sent = kafkagroup.arrow_function(plain.__class__(plain.__code__, globals()))
"""


@pytest.fixture(scope="module")
def module(spark, tmp_path_factory) -> str:
    """A module with functions, which only tasks can import: Spark has sent it."""
    path = tmp_path_factory.mktemp("modules") / "sent_functions.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sent_functions.py", SENT)
    spark.sparkContext.addPyFile(str(path))
    return path.stem


def view(spark, kafka, orders, function):
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": orders, "map.function": function}
    options["map.columns"] = "offset"
    listed = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW mapped (offset BIGINT) USING kafkagroup OPTIONS ({listed})")
    return spark.sql("SELECT count(*), max(offset) >= 0 FROM mapped")


def test_sql_calls_only_functions_that_say_so(spark, kafka, orders, module):
    assert rows(view(spark, kafka, orders, f"{module}:sent")) == [(COUNT, True)]
    for function in (f"{module}:plain", "os:system", f"{module}:none"):
        with pytest.raises(PythonException, match="is not decorated by kafkagroup"):
            view(spark, kafka, orders, function).collect()
    with pytest.raises(PythonException, match="no_such_module:f cannot be imported"):
        view(spark, kafka, orders, "no_such_module:f").collect()


def test_it_is_closed_under_limit(spark, kafka, orders, tmp_path):
    marks = str(tmp_path)

    def marking(batches):
        Path(marks, "begun").touch()
        try:
            yield from sizes(batches)
        finally:
            Path(marks, "ended").touch()

    reading = source(spark.read, kafka, orders).option("batch.rows", 1)
    assert len(kafkagroup.map_in_arrow(reading, marking, SIZES).take(1)) == 1
    wait_until(lambda: {path.name for path in tmp_path.iterdir()} == {"begun", "ended"}, "the function to end")


def test_with_commit_task_the_offsets_are_committed_after_its_last_row(spark, kafka, orders, groups, group):
    def ends(batches):
        for number, batch in enumerate(sizes(batches)):
            if number == 1:
                raise RuntimeError("in the middle")
            yield batch

    def mapped(function, name):
        reading = source(spark.read, kafka, orders, kafka_group_id=name, commit="task").option("batch.rows", 10)
        return kafkagroup.map_in_arrow(reading, function, SIZES)

    with pytest.raises(PythonException, match="in the middle"):
        mapped(ends, group).collect()
    assert sum(groups.committed(group).values()) == 0
    assert mapped(sizes, f"{group}-whole").count() == COUNT
    wait_until_committed(groups, f"{group}-whole", COUNT)
    # What it leaves unread counts as read.
    assert mapped(lambda batches: iter(()), f"{group}-early").count() == 0
    wait_until_committed(groups, f"{group}-early", COUNT)


@pytest.mark.parametrize("examples", [4, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_random_functions_make_the_same_rows_inside_and_outside(spark, kafka, orders, examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(functions, st.booleans(), st.sampled_from(["librdkafka"] if why_not_native() else ["native", "librdkafka"]))
    def same_rows(function, stream, engine):
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": orders, "engine": engine}
        compare(spark, options, function, stream=stream)

    same_rows()


@pytest.mark.requires_native
@pytest.mark.parametrize("examples", [2, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_through_spark_connect(kafka, orders, tmp_path, examples):
    program = ("-m", "tests.apps.connect_map_app", tmp_path, kafka.bootstrap_servers, orders, examples)
    done = run_python(*program, seconds=280 + 10 * examples)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert int(told["compared"]) >= examples, done.stderr[-5000:]
    assert told["sent"] == f"{COUNT} named {COUNT}", done.stderr[-5000:]
    assert told["after"] == "7"


def returns_nothing(batches):
    next(batches)


def wrong_types(batches):
    for batch in batches:
        yield pa.record_batch({"size": batch["value"], "offset": batch["offset"]})


def too_many_columns(batches):
    return iter(batches)


def leaves(batches):
    next(batches)
    raise SystemExit


def sleeps(batches):
    for batch in sizes(batches):
        time.sleep(4)
        yield batch


def forks(batches):
    for batch in sizes(batches):
        os.fork()
        yield batch


def prints(batches):
    for batch in sizes(batches):
        print("x" * 100_000)
        yield batch


def keeps(batches):
    return sizes(iter(list(batches)))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (returns_nothing, "returned NoneType, and not an iterator of pyarrow.RecordBatch"),
        (wrong_types, "returned the column size as binary, but the schema has int32"),
        (too_many_columns, "returned the columns key, value, topic, partition, offset, timestamp, timestampType, but"),
        (leaves, "has failed with SystemExit; its last batch had the offsets"),
        (sleeps, None),
        (forks, None),
        (prints, None),
        (keeps, None),
    ],
)
def test_a_hostile_function_leaves_its_group_in_order(spark, kafka, orders, groups, group, tmp_path, function, told):
    reading = source(spark.readStream, kafka, orders, startingOffsets="earliest", kafka_group_id=group)
    reading = reading.option("kafka.max.poll.interval.ms", 2000).option("kafka.session.timeout.ms", 6000)
    frame = kafkagroup.map_in_arrow(reading, function, SIZES)
    if told is None:
        run(frame, tmp_path)
    else:
        with pytest.raises(StreamingQueryException) as stopped:
            run(frame, tmp_path)
        assert told in str(stopped.value)
        assert sum(groups.committed(group).values()) == 0
        # The same checkpoint goes on with a function that is mended.
        run(kafkagroup.map_in_arrow(reading, sizes, SIZES), tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).count() == COUNT
    wait_until_committed(groups, group, COUNT)
    wait_until(lambda: groups.describe(group).members == (), "the members to leave")
