"""JSON values read as columns, compared with Spark's `from_json`, and written, compared with `to_json`."""

import random
import re
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
from pyspark.sql.functions import col, from_json, to_json

from kafka_source.json_type import json_column_type
from kafka_source.source.stream import HAS_READ_LIMITS
from kafkagroup.progress import lag_of
from tests.support.native import kernel
from tests.support.records import reader, run_to_end, stream, to_topic, write_records

JsonDecoder, JsonEncoder = kernel().JsonDecoder, kernel().JsonEncoder

SCHEMA = "id bigint, amount double, placed_at timestamp, tags array<string>"


def write(kafka, topic, *values):
    records = ({"value": value, "key": b"k", "partition": 0} for value in values)
    write_records(kafka.bootstrap_servers, topic, records)


@pytest.mark.parametrize("commit", ["batch", "sink"])
def test_a_job_of_one_micro_batch_counts_its_bad_records(spark, kafka, topic, tmp_path, commit):
    name, target = topic("hourly", partitions=2), topic("hourly-copy", partitions=1)
    frame = stream(spark, kafka, name, startingOffsets="earliest", kafka_group_id=name, commit=commit,
                   mode="DROPMALFORMED", **{"value.format": "json", "value.schema": "id bigint"})  # fmt: skip

    def run(*values):
        write(kafka, name, *values)
        writer = to_topic(frame.selectExpr("CAST(value.id AS STRING) AS value"), kafka, target, tmp_path)
        if commit == "sink":
            writer = writer.options(**{"transactional": "true", "transactional.id.prefix": name, "commit.group": name})
        query = run_to_end(writer)
        return [lag.bad_records for progress in query.recentProgress for lag in lag_of(progress)]

    # Spark 4.1 plans one batch and does not ask again: the count is unknown, and not 0.
    assert run(*[b'{"id": 1}'] * 50, *[b"no JSON"] * 5) == ([None, 5] if HAS_READ_LIMITS else [None])
    # A batch of good records needs no other one after it.
    assert run(b'{"id": 2}') == [None]
    assert reader(spark, kafka, target).load().count() == 51


def test_a_topic_of_json_is_read_as_columns_and_bad_records_are_kept(spark, kafka, topic):
    name, dead = topic("orders-json", partitions=1), topic("dead-json", partitions=1)
    good = b'{"id": 1, "amount": 2.5, "placed_at": "2026-11-26T10:20:30Z", "tags": ["a", null], "more": {"x": []}}'
    bad = b'{"id": 2, "amount": "hunter2"}'
    write(kafka, name, good, bad, None, b'{"amount": 3}', b"no JSON")
    options = {"value.format": "json", "value.schema": SCHEMA}
    source = reader(spark, kafka, name, **options, mode="PERMISSIVE", **{"deadletter.topic": dead})
    frame = source.load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,amount:double,placed_at:timestamp,tags:array<string>>"
    )
    rows = frame.orderBy("offset").selectExpr(
        "value.id",
        "value.amount",
        "unix_seconds(value.placed_at) AS at",
        "value.tags",
        "value IS NULL",
        "_corrupt_record",
    )
    assert [tuple(row) for row in rows.collect()] == [
        (1, 2.5, 1_795_688_430, ["a", None], False, None),
        (None, None, None, None, True, bad),
        (None, None, None, None, True, None),
        (None, 3.0, None, None, False, None),
        (None, None, None, None, True, b"no JSON"),
    ]
    letters = reader(spark, kafka, dead, includeHeaders="true").load().orderBy("offset").collect()
    # Sorting reads the topic twice, and each time writes them.
    messages = {one.value for letter in letters for one in letter.headers if one.key == "__streams.errors.message"}
    assert (letters[0].value, messages) == (bad, {b"field amount: not a number", b"not valid JSON"})
    # Some of the fields, and an error that does not show the value.
    fewer = reader(spark, kafka, name, **options).schema("offset bigint, value struct<amount: double>")
    with pytest.raises(Exception, match=f"{name}-0.*offset 1.*field amount: not a number") as failed:
        fewer.load().collect()
    assert "hunter2" not in str(failed.value)
    dropped = reader(spark, kafka, name, **options, mode="DROPMALFORMED").schema("value struct<tags: array<string>>")
    assert [row.value and row.value.tags for row in dropped.load().collect()] == [["a", None], None, None, None]


NUMBERS = ("0", "-0", "7", "-12", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808")
FRACTIONS = (
    "1.5",
    "-0.005",
    "1e3",
    "1.0",
    "0.1e-2",
    "123456789.125",
    "99999.995",
    "1E400",
    "2.5e-3",
    "1.7976931348623157e308",
)
WORDS = ("null", "true", "false", "NaN", '"NaN"', '"INF"', '"-Infinity"', "-Infinity")
TEXTS = ('""', '"x"', '"12"', '"12.345"', '"a\\n\\u00e9\\ud83d\\ude00\\/"', '"größe"', '"2026-11-26"', '"1582-10-04"')
TIMES = ('"2026-11-26T10:20:30.1234567"', '"2026-11-26 10:20:30Z"', '"0001-01-01T00:00:00+01:00"', '"2026-02-30"')
BASE64 = ('"Zm9v"', '"Zg=="', '"Zg"', '"Zm8="')
NESTED = (
    "[]",
    "{}",
    "[1]",
    '["a"]',
    '{"a":1}',
    '{"a":"b"}',
    '[{"a":1,"b":"x"},null]',
    '{"k":{"a":2},"l":null}',
    "[[1]]",
)
BROKEN = ("", "1.", "01", ".5", "nul", '"a', "[1", "[1,]", "{a:1}", "{1:2}", "+1", "1e", '"\\x"', "tru", '"\t"')
TYPES = (
    *("boolean", "int", "bigint", "float", "double", "decimal(7,2)", "date", "timestamp", "timestamp_ntz", "string"),
    *("binary", "array<bigint>", "array<string>", "map<string,string>", "struct<a:bigint,b:string>"),
    *("array<struct<a:bigint,b:string>>", "map<string,struct<a:int>>"),
)

# What `docs/guides/json.md` says of the differences, in the order of its table.
DIFFERENT = {
    *product(("timestamp",), ('"2026-11-26T10:20:30.1234567"', '"2026-11-26"', '"1582-10-04"')),
    *product(("date",), ('"2026-11-26T10:20:30.1234567"', '"2026-11-26 10:20:30Z"', '"0001-01-01T00:00:00+01:00"')),
    *product(("date", "timestamp", "timestamp_ntz"), ('"12"',)),
    *product(("string",), (*FRACTIONS, "-0", "NaN", "-Infinity")),
    *product(("timestamp",), ("9223372036854775807", "-9223372036854775808")),
    *product(("float", "double"), ("-0",)),
    *product(("int", "bigint", "timestamp"), ("1.0", "1e3")),
    ("binary", '"\t"'),
}


def test_values_are_those_of_from_json(spark):
    """Each type with each text, alone and between other fields, which fails or not, as with `from_json`."""
    spelled = (*NUMBERS, *FRACTIONS, *WORDS, *TEXTS, *TIMES, *BASE64, *NESTED, *BROKEN)
    schema = ", ".join(f"f{number} {kind}" for number, kind in enumerate(TYPES))
    alone = [(kind, text) for kind, text in product(range(len(TYPES)), spelled) if (TYPES[kind], text) not in DIFFERENT]
    rows = [f'{{"f{kind}":{text}}}' for kind, text in alone]
    rng = random.Random(7)
    for _ in range(2000):
        chosen = rng.sample(alone, rng.randrange(1, 6))
        rows.append("{" + ",".join(f'"f{kind}":{text}' for kind, text in chosen) + "}")
    kind = json_column_type(schema)
    decoded = JsonDecoder(kind).decode(pa.array([row.encode() for row in rows], pa.binary()))
    ours, bad = pa.array(decoded), {row: why for row, _, why in decoded.bad}
    options = {"columnNameOfCorruptRecord": "corrupt", "timeZone": "UTC"}
    parsed = from_json("value", f"{schema}, corrupt string", options)
    table = (
        spark.createDataFrame([(row,) for row in rows], "value string").coalesce(1).select(parsed.alias("v")).toArrow()
    )
    theirs = table.column("v").combine_chunks()
    wrong = []
    # Python has no timestamps after the year 9999.
    numbers = pa.struct([(one.name, pa.int64() if pa.types.is_timestamp(one.type) else one.type) for one in kind])

    def listed(column):
        parts = [column.field(one.name).cast(kind.field(one.name).type).cast(one.type) for one in numbers]
        return pa.StructArray.from_arrays(parts, fields=list(numbers)).to_pylist()

    same = listed(theirs)
    corrupt = theirs.field("corrupt").to_pylist()
    for number, (row, mine) in enumerate(zip(rows, listed(ours), strict=True)):
        if (number in bad) != (corrupt[number] is not None):
            wrong.append((row, bad.get(number), corrupt[number]))
        elif number not in bad and repr(mine) != repr(same[number]):
            wrong.append((row, mine, same[number]))
    assert not wrong, wrong[:5]
    assert 500 < len(bad) < len(rows) - 150


NUMBER = re.compile(r'"any":([^",}]+)')
INNER = pa.struct([("n", pa.int32()), ("t", pa.string()), ("of", pa.list_(pa.float32()))])
WRITTEN = pa.struct(
    {
        **{"b": pa.bool_(), "i8": pa.int8(), "i16": pa.int16(), "i": pa.int32(), "l": pa.int64(), "f": pa.float32()},
        **{"d": pa.float64(), "any": pa.float64(), "small": pa.decimal128(7, 7), "sum": pa.decimal128(38, 18)},
        **{"whole": pa.decimal128(20, 0), "day": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "t": pa.string()},
        **{
            "local": pa.timestamp("us"),
            "raw": pa.binary(),
            "inner": INNER,
            "list": pa.list_(INNER),
            'a "b"': pa.bool_(),
        },
        **{"map": pa.map_(pa.string(), INNER), "lists": pa.list_(pa.list_(pa.timestamp("us", tz="UTC")))},
    }
)
TEXT = ("", "x", "größe", 'a"\\/\n\t\x1f\x7f', "\U0001f600\u2028")
FLOATS = (0.0, -0.0, 1.0, -12.375, 9999999.0, 1e7, 0.001, 0.0009765625, 1e30, float("inf"), float("-inf"))


def drawn(rng: random.Random, kind: pa.DataType) -> object:
    if rng.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {one.name: drawn(rng, one.type) for one in kind}
    if pa.types.is_map(kind):
        return [(key, drawn(rng, kind.item_type)) for key in rng.sample(TEXT, rng.randrange(3))]
    if pa.types.is_list(kind):
        return [drawn(rng, kind.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        return rng.randrange(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1)
    if pa.types.is_floating(kind):
        return rng.choice(FLOATS)
    if pa.types.is_decimal(kind):
        value = rng.choice([0, rng.randrange(10**kind.precision), rng.randrange(1000)])
        return Decimal((rng.randrange(2), tuple(map(int, str(value))), -kind.scale))
    if pa.types.is_date(kind):
        return date(1, 1, 1) + timedelta(days=rng.randrange(3_650_000))
    if pa.types.is_timestamp(kind):
        # Spark cuts microseconds off.
        return datetime(1, 1, 2) + timedelta(milliseconds=rng.randrange(315_000_000_000_000))
    return rng.choice(TEXT) if pa.types.is_string(kind) else rng.choice(TEXT).encode()


def test_structs_are_written_as_to_json_writes_them_and_read_back(spark):
    rng = random.Random(11)
    rows = [drawn(rng, WRITTEN) or {} for _ in range(500)]
    for row in rows:
        assert isinstance(row, dict)
        (row["any"],) = struct.unpack("d", rng.randbytes(8))
    column = pa.array(rows, WRITTEN)
    ours = [value.decode() for value in pa.array(JsonEncoder(schema_id=None).encode(column)).to_pylist()]
    frame = spark.createDataFrame(pa.table({"value": column}))
    # Spark makes an instant of a local time.
    value = col("value").withField("local", col("value.local").cast("timestamp_ntz"))
    texts = frame.coalesce(1).select(to_json(value, {"timeZone": "UTC"})).toArrow().column(0).to_pylist()

    def shown(text):
        # The Java of before 19 does not always find the shortest text of a number.
        return NUMBER.sub(lambda found: f'"any":{float(found[1])!r}', text)

    wrong = [(mine, their) for mine, their in zip(ours, texts, strict=True) if shown(mine) != shown(their)]
    assert not wrong, wrong[:3]
    # What is read has no integers of less than 32 bits.
    kind = pa.struct([(one.name, pa.int32() if one.name in ("i8", "i16") else one.type) for one in WRITTEN])
    decoded = JsonDecoder(kind).decode(pa.array([text.encode() for text in ours], pa.binary()))
    assert decoded.bad == []
    assert repr(pa.array(decoded).to_pylist()) == repr(column.to_pylist())
    at = pa.array([{"at": 1_500_001}], pa.struct([("at", pa.timestamp("us", tz="UTC"))]))
    assert pa.array(JsonEncoder(schema_id=7).encode(at)).to_pylist() == [
        b'\0\0\0\0\7{"at":"1970-01-01T00:00:01.500001Z"}'
    ]
