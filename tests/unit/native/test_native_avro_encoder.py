"""What the kernel writes as Avro is read back equal by fastavro and by the kernel itself."""

import datetime
import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.differential.avro_pairs import Schemas, text_of, value_of
from tests.support.avro import Schema, record
from tests.support.native import kernel

native = kernel()

ROWS = 12


def decoded(text: str, values: list[bytes | None]) -> Any:
    """The kernel's column of values, and which are bad."""
    decoder = native.AvroDecoder(text, framing="none")
    decoder.add_writer_schema(0, text)
    return decoder.decode(pa.array(values, pa.binary()))


def plain(node: Any) -> Any:
    """A schema without the logical types that fastavro shows otherwise, or not at all: all but decimals of bytes."""
    if isinstance(node, list):
        return [plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    keeps = node.get("logicalType") == "decimal" and node["type"] == "bytes"
    return {key: plain(one) for key, one in node.items() if keeps or key != "logicalType"}


def by_fastavro(schema: Any, value: bytes) -> str:
    """A value as fastavro reads it, which must take all of its bytes."""
    rest = io.BytesIO(value)
    datum = fastavro.schemaless_reader(rest, schema)
    assert rest.read() == b""
    return repr(in_order(datum))


def in_order(datum: Any) -> Any:
    """A value with the entries of its maps in order: a map may have had a key twice."""
    if isinstance(datum, dict):
        return [(key, in_order(value)) for key, value in sorted(datum.items())]
    return [in_order(item) for item in datum] if isinstance(datum, list) else datum


def check(number: int) -> int:
    """Write the column of random values of a random schema, with nulls; return how many of them fastavro has seen."""
    chance = random.Random(number)
    schemas = Schemas(chance)
    node = schemas.record() if chance.random() < 0.8 else schemas.some()
    text = json.dumps(text_of(node))
    given = [None if chance.random() < 0.2 else value_of(node, chance) for _ in range(ROWS)]
    encoder = native.AvroEncoder(text, schema_id=None)
    try:
        column = pa.array(decoded(text, given))
        encoder.check(column.type)
    except ValueError as problem:
        # A record in itself is a text of JSON, which is not written back.
        assert "the column has string, which cannot be written as record" in str(problem), f"{text}: {problem}"
        return 0
    first = chance.randrange(3)
    part = column.slice(first)
    written = pa.array(encoder.encode(part))
    written.validate(full=True)
    again = decoded(text, written.to_pylist())
    assert not again.bad
    assert pa.array(encoder.encode(pa.array(again))).equals(written), text
    schema = fastavro.parse_schema(plain(json.loads(text)))
    seen = 0
    for value, original in zip(written.to_pylist(), given[first:], strict=True):
        if value is not None and original is not None:
            assert by_fastavro(schema, value) == by_fastavro(schema, original), text
            seen += 1
    return seen


def test_random_values_of_random_schemas_come_back() -> None:
    assert sum(check(number) for number in range(300)) > 1_000


@pytest.mark.long
def test_random_values_of_ten_thousand_random_schemas_come_back() -> None:
    assert sum(check(number) for number in range(10_000)) > 40_000


ALL = record(
    "All",
    {"name": "b", "type": "boolean"},
    {"name": "i", "type": ["null", "int"]},
    {"name": "l", "type": "long"},
    {"name": "f", "type": "float"},
    {"name": "d", "type": "double"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "sum", "type": {"type": "fixed", "name": "S", "size": 6, "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "array", "items": ["string", "null"]}},
    {"name": "more", "type": {"type": "map", "values": "bytes"}},
    {"name": "either", "type": ["null", "int", "string"]},
)


def encoded(schema: Schema | str, values: pa.Array, schema_id: int | None = None) -> list[bytes | None]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    found: list[bytes | None] = pa.array(native.AvroEncoder(text, schema_id=schema_id).encode(values)).to_pylist()
    return found


def test_every_type_of_spark_is_written_as_fastavro_writes_it() -> None:
    columns: dict[str, tuple[pa.DataType, Any]] = {
        # Spark's order may be another, and its strings may have 64-bit offsets.
        "more": (pa.map_(pa.string(), pa.binary()), [("k", b"\0\1")]),
        "tags": (pa.list_(pa.large_string()), ["x", None]),
        "b": (pa.bool_(), True),
        "i": (pa.int16(), -300),
        "l": (pa.int32(), 2**31 - 1),
        "f": (pa.float32(), 1.5),
        "d": (pa.float32(), 0.5),
        "day": (pa.date32(), datetime.date(1969, 12, 31)),
        "at": (pa.timestamp("us", tz="Europe/Zurich"), datetime.datetime(1969, 12, 31, 23, 59, 59, 1000, datetime.timezone.utc)),
        "sum": (pa.decimal128(18, 2), Decimal("-1.28")),
        "kind": (pa.string(), "B"),
        "either": (pa.struct([("member0", pa.int32()), ("member1", pa.string())]), {"member1": "text"}),
    }
    kind = pa.struct([(name, one) for name, (one, _) in columns.items()])
    values = {name: value for name, (_, value) in columns.items()}
    (written,) = encoded(ALL, pa.array([values], kind), 7)
    assert written is not None
    told = fastavro.schemaless_reader(io.BytesIO(written[5:]), fastavro.parse_schema(ALL))
    assert written[:5] == b"\0\0\0\0\7"
    assert told == {**values, "more": {"k": b"\0\1"}, "either": "text"}


@pytest.mark.parametrize(
    ("schema", "values", "row", "said"),
    [
        ("string", pa.array(["ok", b"\xff"], pa.binary()).view(pa.string()), 1, "not UTF-8"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["A", "hunter2"]), 1, "none of the symbols"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"xy", b"hunter2"]), 1, "7 bytes, but the schema's fixed type has 2"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.array([-1000, -1001], pa.timestamp("us", tz="UTC")), 1, "has microseconds, .* date_trunc"),
        ({"type": "array", "items": "long"}, pa.array([[1], [2, None]]), 1, r"field \[\]: the value is null"),
        ({"type": "map", "values": "int"}, pa.array([[("hunter2", None)]], pa.map_("string", "int32")), 0, r"field \{\}"),
        (["int", "string"], pa.array([{"member0": 1, "member1": "hunter2"}], pa.struct([("member0", "int32"), ("member1", "string")])), 0, "several members"),
        (["int", "string"], pa.array([{"member0": None}], pa.struct([("member0", "int32"), ("member1", "string")])), 0, "is null"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_named_by_row_and_path_and_not_shown(schema, values, row, said):
    with pytest.raises(native.UnfitValue, match=said) as failed:
        encoded(json.dumps(schema), values)
    assert failed.value.row == row
    assert "hunter2" not in str(failed.value)
