"""Memory of a worker under hostile records: its peak with harmless ones, and three times the limit of a record more.

python -m tests.unit.values.test_hostile_memory FILE is the worker, which prints both peaks.
"""

import gzip
import json
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.options.kinds import ValueFraming
from kafka_source.values.reader_schema import ProtobufMessage, ReaderSchema
from testbed.processes import resident
from tests.support.native import kernel
from tests.unit.native.batches import CODECS, HEADER, PARTITION, TOPIC, Row, batch, with_crc

native = kernel()

from kafka_source.values.decoding import ColumnDecoding, Decoding, decode  # noqa: E402

LIMIT = 8 << 20
# What a few bytes of the wire are multiplied by.
COUNT = 1 << 18
WIDE = 300


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else ~(number << 1))


def _avro() -> tuple[ReaderSchema, bytes, list[bytes]]:
    wide = [{"name": f"f{n}", "type": ["null", "long"], "default": None} for n in range(WIDE)]
    text = {"name": "t", "type": "string", "default": "a default of some bytes" * 50}
    items = {
        "nulls": {"type": "array", "items": "null"},
        "empty": {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
        "wide": {"type": "array", "items": {"type": "record", "name": "Wide", "fields": wide}},
        "map": {"type": "map", "values": "null"},
        "lists": {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": "boolean"}}},
        "node": ["null", {"type": "record", "name": "Node", "fields": [{"name": "n", "type": ["null", "Node"]}]}],
        "text": "string",
    }
    fields = [{"name": name, "type": kind} for name, kind in items.items()]
    none = [b"\0"] * len(items)

    def value(name: str, made: bytes) -> bytes:
        at = list(items).index(name)
        return b"".join([*none[:at], made, *none[at + 1 :]])

    hostile = [
        *(value("nulls", zigzag(count) + b"\0") for count in (COUNT, 1 << 40, -(1 << 62))),
        value("nulls", zigzag(1000) * COUNT + b"\0"),
        *(value("empty", zigzag(count) + b"\0") for count in (COUNT, 1 << 40)),
        value("empty", zigzag(-COUNT) + b"\0\0"),
        value("wide", zigzag(10_000) + b"\0" * (WIDE * 10_000) + b"\0"),
        value("wide", zigzag(1 << 40)),
        value("map", zigzag(COUNT) + b"\0" * COUNT + b"\0"),
        value("lists", zigzag(COUNT) + b"\0" * COUNT + b"\0"),
        value("lists", (zigzag(1) + zigzag(1 << 30)) * 1000),
        value("node", b"\2" * COUNT + b"\0"),
        *(value("text", zigzag(count)) for count in (1 << 30, 1 << 62, -1)),
    ]
    schema = {"type": "record", "name": "All", "fields": [*fields, {**text, "type": ["string", "null"]}]}
    return ReaderSchema(json.dumps(schema)), b"".join(none) + b"\0\2x", [one + b"\0\2x" for one in hostile]


def _protobuf() -> tuple[ReaderSchema, bytes, list[bytes]]:
    wide = " ".join(f"optional int64 f{n} = {n};" for n in range(1, WIDE))
    text = f"""syntax = "proto3"; import "google/protobuf/struct.proto";
        message All {{ repeated Empty empty = 1; repeated Wide wide = 2; map<string, Wide> map = 3;
            repeated bool flags = 4; All in_itself = 5; google.protobuf.Value any = 6; string text = 7;
            repeated string texts = 8; }}
        message Empty {{}} message Wide {{ {wide} }}"""

    def field(number: int, body: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(body)) + body

    def nested(number: int, levels: int) -> bytes:
        body = b""
        for _ in range(levels):
            body = field(number, body)
        return body

    hostile = [
        *(field(number, b"") * COUNT for number in (1, 2, 3, 6, 8)),
        field(4, bytes(8 * COUNT)),
        b"\x20\1" * COUNT,
        nested(5, 5_000),
        field(6, b"\x2a\4\x0a\2\x0a\0" * 1000 + nested(6, 2_000)),
        field(6, b"\x32" + varint(2 * COUNT) + b"\x0a\0" * COUNT),
        field(7, b"x" * COUNT) * 20,
        *(b"\x3a" + varint(length) for length in (1 << 31, (1 << 64) - 1)),
        b"\x4b" * COUNT,
    ]
    return ReaderSchema(text, protobuf=ProtobufMessage("All")), field(7, b"x"), hostile


def _glue() -> tuple[ReaderSchema, bytes, list[bytes]]:
    """Values that are compressed one by one."""

    def packed(datum: bytes) -> bytes:
        return b"\3\5" + bytes(16) + zlib.compress(datum)

    hostile = [packed(zigzag(length) + bytes(length)) for length in (LIMIT // 2 - 100, LIMIT - 100, 16 * LIMIT)]
    return ReaderSchema('"string"'), packed(b"\2x"), hostile


def _json() -> tuple[ReaderSchema, bytes, list[bytes]]:
    wide = pa.struct([(f"f{n}", pa.int64()) for n in range(WIDE)])
    kind = pa.struct(
        {
            "wide": pa.list_(pa.field("element", wide)),
            "lists": pa.list_(pa.field("element", pa.list_(pa.field("element", pa.bool_())))),
            "map": pa.map_(pa.string(), pa.field("value", wide)),
            "text": pa.string(),
            "sum": pa.decimal128(38, 10),
            "count": pa.int64(),
        }
    )
    hostile = [
        b'{"wide": [' + b",".join([b"{}"] * COUNT) + b"]}",
        b'{"lists": [' + b",".join([b"[]"] * COUNT) + b"]}",
        b'{"map": {' + b",".join([b'"":{}'] * COUNT) + b"}}",
        b'{"text": "' + b"\\u0000" * COUNT + b'"}',
        b'{"text": ' + b"[" * COUNT,
        b'{"other": ' + b"[" * COUNT,
        b'{"text": [' + b"0," * COUNT + b"0]}",
        b"{" + b",".join([b'"wide":[{},{},{}]'] * (COUNT // 8)) + b"}",
        b'{"sum": 1' + b"0" * COUNT + b"}",
        b'{"sum": 1e999999999}',
        b'{"count": 10e9223372036854775807}',
        b'{"count": 1.5e-9223372036854775808}',
        b"[" * COUNT,
        b" " * (8 * COUNT),
    ]
    return ReaderSchema("", json=kind), b'{"text": "x"}', hostile


VALUES: dict[str, Callable[[], tuple[ReaderSchema, bytes, list[bytes]]]] = {
    "avro": _avro,
    "protobuf": _protobuf,
    "json": _json,
    "glue": _glue,
}


def _bombs(codec: str) -> Iterator[bytes]:
    """Yield batches that unpack to more than the limit, and one that says so in a few bytes."""
    block = varint((1 << 32) - 1) + b"\0"
    said = {
        "gzip": gzip.compress(b"")[:10] + b"\xff" * 100,
        "framed snappy": b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block,
        "snappy": block,
        "lz4": b"\x04\x22\x4d\x18\x70\x70\x72" + struct.pack("<I", 1 << 22),
        "zstd": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 62) + b"\1\0\0",
    }
    packed = next(text for name, text in said.items() if name in codec)
    fields = list(HEADER.unpack_from(batch([Row(0)], codec=codec)))
    fields[1] = 49 + len(packed)
    yield with_crc(HEADER.pack(*fields) + packed)
    if codec != "framed snappy":
        yield batch([Row(n, bytes(LIMIT // 4)) for n in range(64)], codec=codec)
        yield batch([Row(0, bytes(16 * LIMIT))], codec=codec)


def decode_values(framing: ValueFraming, reader: ReaderSchema, good: bytes, hostile: list[bytes]) -> Iterator[int]:
    column = ColumnDecoding(
        *(reader, reader.column_type(), framing, "_corrupt_record", Settings({})), max_decoded_bytes=LIMIT
    )

    def good_values(raw: pa.RecordBatch) -> int:
        made = decode(raw, Decoding((column,), "PERMISSIVE"))
        return sum(len(columns["value"]) - columns["value"].null_count for _, columns in made)

    def fetched(value: bytes, rows: int) -> pa.RecordBatch:
        place = {"topic": ["t"] * rows, "partition": [0] * rows, "offset": pa.array(range(rows))}
        return pa.record_batch({"value": [value] * rows, **place})

    batches = [fetched(one, 1000 if len(one) < 1000 else 1) for one in hostile]
    assert good_values(fetched(good, 1000)) == 1000
    yield resident("VmHWM")
    for raw in batches:
        good_values(raw)
    yield resident("VmHWM")
    assert good_values(fetched(good, 1000)) == 1000


def unpack(good: list[bytes], hostile: list[bytes]) -> Iterator[int]:
    def is_read(data: bytes) -> bool:
        builder = native.BatchBuilder(["value"], batch_bytes=1 << 20, max_unpacked_bytes=LIMIT)
        records = native.RecordSet(data, TOPIC, PARTITION)
        try:
            while builder.append(records):
                pa.record_batch(builder.take())
        except native.RecordsError:
            return False
        return True

    for batches, is_good in ((good, True), (hostile, False)):
        assert [is_read(one) for one in batches] == [is_good] * len(batches)
        yield resident("VmHWM")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how large a process has been")
@pytest.mark.parametrize("name", [*VALUES, "compressed batches"])
def test_hostile_records_take_three_times_the_limit_at_most(name: str, tmp_path: Path) -> None:
    codecs = [codec for codec in CODECS if codec != "none"]
    good = [batch([Row(n, bytes(1000)) for n in range(1000)], codec=codec) for codec in codecs]
    work: tuple[Callable[..., Iterator[int]], tuple[object, ...]]
    if name in VALUES:
        work = decode_values, ("glue" if name == "glue" else "none", *VALUES[name]())
    else:
        work = unpack, (good, [bomb for codec in codecs for bomb in _bombs(codec)])
    (tmp_path / "work").write_bytes(pickle.dumps((work[0].__name__, work[1])))
    command = [sys.executable, "-m", "tests.unit.values.test_hostile_memory", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    harmless, hostile = map(int, done.stdout.split())
    assert hostile - harmless <= 3 * LIMIT, f"{harmless} bytes, then {hostile}"


if __name__ == "__main__":
    called, arguments = pickle.loads(Path(sys.argv[1]).read_bytes())
    print(*globals()[called](*arguments))
