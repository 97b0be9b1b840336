"""What a value may cost: a record takes memory up to a limit, and a batch ends when it is full."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.native import kernel

native = kernel()

MILLION, HUGE = b"\x80\x89\x7a", b"\x80\x80\x80\x80\x80\x40"
LIMIT = 1 << 20


def decoder_of(reader: Any, writer: Any = None, **options: Any) -> Any:
    decoder = native.AvroDecoder(json.dumps(reader), framing="none", **options)
    decoder.add_writer_schema(0, json.dumps(writer or reader))
    return decoder


def decoded(reader: Any, values: list[bytes], writer: Any = None, **options: Any) -> Any:
    return decoder_of(reader, writer, **options).decode(pa.array(values, pa.binary()))


def array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(*fields: dict[str, Any], name: str = "Item") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


EMPTY = record()
WIDE = record(*({"name": f"f{i}", "type": "long", "default": i} for i in range(60)))
TEXT = record({"name": "text", "type": "string", "default": "x" * 5000})
TEXTS = record({"name": "texts", "type": array_of("string"), "default": ["x" * 100] * 50})
SYMBOL = {"type": "enum", "name": "Long", "symbols": ["S" * 5000]}
WITHOUT_BYTES = {"wide": (WIDE, EMPTY), "text": (TEXT, EMPTY), "texts": (TEXTS, EMPTY)}


@pytest.mark.parametrize("kind", WITHOUT_BYTES)
def test_a_tiny_value_with_a_huge_array_is_bad(kind: str) -> None:
    reader, writer = WITHOUT_BYTES[kind]
    for count in (MILLION, HUGE):
        done = decoded(array_of(reader), [count + b"\0"] * 100, array_of(writer), max_decoded_bytes=LIMIT)
        told = f"the record takes more than {LIMIT} bytes decoded, the limit (max.decoded.bytes)"
        assert {message.split(": ")[-1] for _, _, message in done.bad} == {told}
        assert len(done.bad) == len(pa.array(done)) == 100


@pytest.mark.parametrize(
    ("reader", "writer", "item"),
    [
        *((*pair, b"") for pair in WITHOUT_BYTES.values()),
        ("null", "null", b""),
        (["null", WIDE], ["null", WIDE], b"\0"),
        (SYMBOL, SYMBOL, b"\0"),
        (array_of(["null", TEXT]), array_of(["null", EMPTY]), b"\2\2\0"),
    ],
    ids=[*WITHOUT_BYTES, "null", "nulls", "symbols", "nested"],
)
def test_each_value_below_the_limit_is_read_and_none_above_it(reader: Any, writer: Any, item: bytes) -> None:
    """Values with more and more items: the limit is what Arrow says of the value, and a byte for each item at least."""
    decoder = decoder_of(array_of(reader), array_of(writer), max_decoded_bytes=LIMIT)
    for items in (2**power for power in range(22)):
        done = decoder.decode(pa.array([zigzag(items) + item * items + b"\0"], pa.binary()))
        column = pa.array(done)
        column.validate(full=True)
        assert column.nbytes < LIMIT + 100
        if done.bad:
            whole = decoded(array_of(reader), [zigzag(items) + item * items + b"\0"], array_of(writer))
            assert whole.bad == [] or items > 1000
            # Twice, as validity and offsets are counted for the values around them too.
            assert max(items, pa.array(whole).nbytes) > LIMIT / 2
            break
    else:
        raise AssertionError("no value is bad")


def test_sparse_arrays_of_wide_records_are_read() -> None:
    """What is absent takes no bytes on the wire: the value's own size says nothing about what it decodes to."""
    wide = record(*({"name": f"f{i}", "type": ["null", "double"]} for i in range(400)))
    values = [zigzag(items) + b"\0" * items + b"\0" for items in (1, 30, 1000)]
    done = decoded(array_of(["null", wide]), values)
    assert (done.bad, pc_lengths(done)) == ([], [1, 30, 1000])
    # The reader has grown: small items of an older schema.
    older, newer = record({"name": "id", "type": "int"}), record({"name": "id", "type": "int"}, *wide_defaults(100))
    done = decoded(array_of(newer), [zigzag(500) + b"\2" * 500 + b"\0"], array_of(older))
    assert (done.bad, pc_lengths(done)) == ([], [500])


def wide_defaults(count: int) -> list[dict[str, Any]]:
    return [{"name": f"f{i}", "type": ["null", "double"], "default": None} for i in range(count)]


def pc_lengths(done: Any) -> list[int]:
    return [len(items) for items in pa.array(done)]


def test_a_batch_ends_when_it_is_full_and_goes_on_from_there() -> None:
    wide = record(*wide_defaults(1000))
    decoder = decoder_of(wide, record())
    values, batches = pa.array([b""] * 10_000, pa.binary()), []
    while len(values):
        batches.append(pa.array(decoder.decode(values, batch_bytes=1 << 20)))
        values = values[len(batches[-1]) :]
    assert sum(map(len, batches)) == 10_000
    assert all(batch.nbytes < (1 << 20) + 20_000 for batch in batches) and len(batches) > 50


def test_values_of_more_than_an_offset_can_count_are_no_fault_of_a_row() -> None:
    """2^31 bytes of a column are several batches."""
    one = bytes(200 << 20)
    values = pa.chunked_array([pa.array([zigzag(len(one)) + one], pa.large_binary())] * 11).combine_chunks()
    decoder = decoder_of("bytes", max_decoded_bytes=1 << 28)
    rows = []
    while len(values):
        done = decoder.decode(values)
        assert done.bad == []
        rows.append(len(pa.array(done)))
        values = values[rows[-1] :]
    assert sum(rows) == 11 and len(rows) > 1


def test_the_plans_that_were_met_last_are_kept() -> None:
    decoder = native.AvroDecoder('"int"')
    ids = [*range(600)]
    values = pa.array([b"\0" + number.to_bytes(4, "big") + b"\2" for number in ids], pa.binary())
    missing, rows = decoder.missing_ids(values)
    assert (missing, rows) == (ids[:500], 500)
    for number in missing:
        decoder.add_writer_schema(number, '"int"')
    assert decoder.decode(values[:rows]).bad == []
    missing, rows = decoder.missing_ids(values[500:])
    assert (missing, rows) == (ids[500:], 100)
    for number in missing:
        decoder.add_writer_schema(number, '"int"')
    assert decoder.decode(values[500:]).bad == []
    assert len(decoder.missing_ids(values)[0]) == 100


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


@pytest.mark.parametrize(("kind", "inner", "levels"), [("array", "items", 1), ("map", "values", 2)])
def test_the_deepest_type_can_be_imported(kind: str, inner: str, levels: int) -> None:
    schema: Any = "int"
    for _ in range(63 // levels):
        schema = {"type": kind, inner: schema}
    assert len(pa.array(decoded(schema, [b"\0"]))) == 1
    deeper = {"type": kind, inner: schema}
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        native.AvroDecoder(json.dumps(deeper))


def test_a_default_that_tries_too_many_branches_is_refused() -> None:
    below = {"name": "a", "type": ["Top", "S"], "default": {}}
    inner = {"type": "record", "name": "S", "fields": [below]}
    field = {**below, "type": ["Top", inner]}
    decoder = native.AvroDecoder(json.dumps({"type": "record", "name": "Top", "fields": [field]}), framing="none")
    with pytest.raises(ValueError, match="default"):
        decoder.add_writer_schema(0, json.dumps({"type": "record", "name": "Top", "fields": []}))


def test_a_default_is_read_where_its_branch_is_left_out() -> None:
    """The plan of a default has its own records to pass over."""
    nested = {"name": "next", "type": ["Node", "string"], "default": {"id": 1, "next": "x"}}
    reader = {"type": "record", "name": "Node", "fields": [{"name": "id", "type": "int"}, nested]}
    decoder = native.AvroDecoder(json.dumps(reader), framing="none", recursive_depth=1)
    decoder.add_writer_schema(0, json.dumps({**reader, "fields": reader["fields"][:1]}))
    done = decoder.decode(pa.array([b"\x0a"], pa.binary()))
    assert (done.bad, pa.array(done).to_pylist()) == ([], [{"id": 5, "next": {"member1": None}}])
