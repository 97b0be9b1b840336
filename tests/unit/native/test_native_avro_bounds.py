"""What an Avro value may cost: memory in proportion to its bytes, and one pass over them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.native import kernel

native = kernel()

# As in native/src/values/column.rs.
FIXED_BYTES, BYTES_PER_BYTE = 8 << 10, 512
MILLION, HUGE = b"\x80\x89\x7a", b"\x80\x80\x80\x80\x80\x40"
TOO_MANY = "an array or map has too many items for its bytes"


def decoded(reader: Any, values: list[bytes], writer: Any = None) -> Any:
    decoder = native.AvroDecoder(json.dumps(reader), framing="none")
    decoder.add_writer_schema(0, json.dumps(writer or reader))
    return decoder.decode(pa.array(values, pa.binary()))


def array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Item", "fields": list(fields)}


EMPTY = record()
WIDE = record(*({"name": f"f{i}", "type": "long", "default": i} for i in range(60)))
TEXT = record({"name": "text", "type": "string", "default": "x" * 5000})
TEXTS = record({"name": "texts", "type": array_of("string"), "default": ["x" * 100] * 50})
SYMBOL = {"type": "enum", "name": "Long", "symbols": ["S" * 5000]}
WITHOUT_BYTES = {"null": ("null", "null"), "empty": (EMPTY, EMPTY), "wide": (WIDE, EMPTY), "text": (TEXT, EMPTY)}
WITHOUT_BYTES["texts"] = (TEXTS, EMPTY)


@pytest.mark.parametrize("count", [MILLION, HUGE], ids=["million", "huge"])
@pytest.mark.parametrize("kind", WITHOUT_BYTES)
def test_a_tiny_value_with_a_huge_array_is_bad(kind: str, count: bytes) -> None:
    reader, writer = WITHOUT_BYTES[kind]
    done = decoded(array_of(reader), [count + b"\0"] * 100, array_of(writer))
    assert [(row, message) for row, _, message in done.bad] == [(row, TOO_MANY) for row in range(100)]
    assert pa.array(done).nbytes < 10_000


@pytest.mark.parametrize(
    ("reader", "writer", "item"),
    [
        *((*pair, b"") for pair in WITHOUT_BYTES.values()),
        (["null", WIDE], ["null", WIDE], b"\0"),
        (SYMBOL, SYMBOL, b"\0"),
        (array_of(["null", TEXT]), array_of(["null", EMPTY]), b"\2\2\0"),
    ],
    ids=[*WITHOUT_BYTES, "nulls", "symbols", "nested"],
)
def test_the_memory_of_values_is_bounded_by_their_bytes(reader: Any, writer: Any, item: bytes) -> None:
    """Values with more and more items, up to those with too many."""
    values = [zigzag(items) + item * items + b"\0" for items in range(1, 2000, 7)]
    done = decoded(array_of(reader), values, array_of(writer))
    allowed = sum(FIXED_BYTES + BYTES_PER_BYTE * len(value) for value in values)
    column = pa.array(done)
    column.validate(full=True)
    assert column.nbytes <= allowed
    assert {message.split(": ")[-1] for _, _, message in done.bad} <= {TOO_MANY}
    assert column.null_count == len(done.bad) < len(values)


def zigzag(number: int) -> bytes:
    raw, out = number << 1, b""
    while raw >= 0x80:
        out, raw = out + bytes([raw & 0x7F | 0x80]), raw >> 7
    return out + bytes([raw])


@pytest.mark.parametrize("depth", [1, 2, 30])
def test_a_map_has_the_last_value_of_each_key_at_any_depth(depth: int) -> None:
    """A map with a key twice was once decoded twice, with all maps in it: 30 levels would have taken years."""
    schema: Any = "int"
    value, other = b"\x0a", b"\x0e"
    expected: Any = 5
    other_expected: Any = 7
    for _ in range(depth):
        schema = {"type": "map", "values": schema}
        value = b"\6\2k" + other + b"\2l" + other + b"\2k" + value + b"\0"
        expected = [("l", other_expected), ("k", expected)]
        other, other_expected = b"\0", []
    done = decoded(schema, [value, b"\0", value, value[:-1], value])
    column = pa.array(done)
    column.validate(full=True)
    assert column.to_pylist() == [expected, [], expected, None, expected]
    assert [row for row, _, _ in done.bad] == [3]


def test_a_map_with_many_entries_has_the_last_value_of_each_key() -> None:
    entries = [(f"k{i % 300}", i) for i in range(1000)]
    body = b"".join(zigzag(len(key)) + key.encode() + zigzag(i) for key, i in entries)
    value = zigzag(1000) + body + b"\0"
    column = pa.array(decoded({"type": "map", "values": "int"}, [value, b"\2\2z\2\0", value]))
    assert column.to_pylist() == [entries[700:], [("z", 1)], entries[700:]]


def test_a_default_has_the_size_that_the_reader_schema_gives_it() -> None:
    """It is not the writer's doing: only where it comes with each item, it counts."""
    numbers = {"name": "numbers", "type": array_of("int"), "default": list(range(5000))}
    reader = {"type": "record", "name": "Order", "fields": [numbers, {"name": "id", "type": "int"}]}
    done = decoded(reader, [b"\2", b"\4"], {**reader, "fields": reader["fields"][1:]})
    assert [(row["id"], len(row["numbers"])) for row in pa.array(done).to_pylist()] == [(1, 5000), (2, 5000)]
    items = decoded(array_of(reader), [b"\2\2\0", b"\6\2\2\2\0"], array_of({**reader, "fields": reader["fields"][1:]}))
    assert [row for row, _, _ in items.bad] == [0, 1]


@pytest.mark.parametrize(("kind", "inner", "levels"), [("array", "items", 1), ("map", "values", 2)])
def test_the_deepest_type_can_be_imported(kind: str, inner: str, levels: int) -> None:
    schema: Any = "int"
    for _ in range(63 // levels):
        schema = {"type": kind, inner: schema}
    assert len(pa.array(decoded(schema, [b"\0"]))) == 1
    deeper = {"type": kind, inner: schema}
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        native.AvroDecoder(json.dumps(deeper))


def test_a_default_is_read_where_its_branch_is_left_out() -> None:
    """The plan of a default has its own records to pass over."""
    nested = {"name": "next", "type": ["Node", "string"], "default": {"id": 1, "next": "x"}}
    reader = {"type": "record", "name": "Node", "fields": [{"name": "id", "type": "int"}, nested]}
    decoder = native.AvroDecoder(json.dumps(reader), framing="none", recursive_depth=1)
    decoder.add_writer_schema(0, json.dumps({**reader, "fields": reader["fields"][:1]}))
    done = decoder.decode(pa.array([b"\x0a"], pa.binary()))
    assert (done.bad, pa.array(done).to_pylist()) == ([], [{"id": 5, "next": {"member1": None}}])
