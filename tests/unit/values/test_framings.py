"""What may precede a value: bytes as each specification has them, and which schema they mean."""

import json
import struct
import uuid
import zlib
from dataclasses import replace

import fastavro.schema
import pyarrow as pa

from kafka_source.client_config import Settings
from kafka_source.source.row_columns import columns_to_fetch
from kafka_source.values import header_ids
from kafka_source.values.fingerprint import canonical_form, fingerprint
from kafka_source.values.header_ids import HeaderIds
from kafka_source.values.reader_schema import ProtobufMessage, ReaderSchema
from tests.support.avro import datum, framed, record
from tests.support.native import kernel

kernel()

from kafka_source.values.decoding import ColumnDecoding, Decoding  # noqa: E402
from tests.support.decoded import decode  # noqa: E402

ORDER = record("shop.Order", {"name": "id", "type": "long"})
OLD = record("shop.Order", {"name": "id", "type": "int"})
FIVE = {"id": 5}
BODY = datum(ORDER, FIVE)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GUID = uuid.UUID("cc0e0e0e-53c1-4a1a-8f1a-000000000001")


def decoding(framing, registry=None, reader=None):
    reader = reader or ReaderSchema(json.dumps(ORDER))
    settings = Settings({"url": registry.url, "timeout.ms": "300"} if registry else {})
    column = ColumnDecoding(reader, reader.column_type(), framing, "_corrupt_record", settings)
    return Decoding((column,), "PERMISSIVE")


def read(how, *values, headers=None):
    """The values, and why those are bad that are."""
    rows = len(values)
    columns = {
        "value": pa.array(values, pa.binary()),
        "topic": ["orders"] * rows,
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": range(rows),
        "headers": pa.array(headers or [None] * rows, HEADERS),
    }
    why: list[str] = []
    _, made = decode(pa.record_batch(columns), how, None, lambda _, reasons: why.extend(reasons))
    bad = [value for value in made["_corrupt_record"].to_pylist() if value is not None]
    assert len(bad) == len(why)
    return made["value"].to_pylist(), why


def test_the_fingerprint_is_that_of_the_specification():
    # Of share/test/data/schema-tests.txt in Avro.
    assert (fingerprint('"int"'), fingerprint('{"type": "null"}')) == (0x7275D51A3F395C8F, 0x63DD24E7CC258F8A)
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1, "doc": "x"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}, "aliases": ["f"]},
        {"name": "f", "type": ["null", {"type": "fixed", "name": "other.F", "size": 4}, "E", "other.F"]},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "R"}}},
        {"name": "g", "type": {"type": "record", "name": "G", "namespace": "", "fields": []}},
    ]
    schema = {"type": "record", "name": "a.b.R", "doc": "x", "fields": fields}
    of_fastavro = fastavro.schema.to_parsing_canonical_form(fastavro.schema.parse_schema(schema))
    assert canonical_form(json.dumps(schema)) == of_fastavro
    crc = fastavro.schema.fingerprint(of_fastavro, "CRC-64-AVRO")
    assert fingerprint(json.dumps(schema)).to_bytes(8, "little").hex() == crc


def test_single_objects_have_the_fingerprint_of_the_column_or_are_bad():
    def single(schema, value):
        return b"\xc3\x01" + struct.pack("<Q", fingerprint(json.dumps(schema))) + datum(schema, value)

    found, why = read(decoding("single-object"), single(ORDER, FIVE), None, single(OLD, FIVE), BODY)
    assert found == [FIVE, None, None, None]
    assert why[0] == "its schema has another fingerprint than the schema of option value.schema"
    assert "C3 01" in why[1]


def test_glues_values_have_the_schema_of_the_column_compressed_or_not():
    head = GUID.bytes + BODY, GUID.bytes + zlib.compress(BODY)
    found, why = read(decoding("glue"), b"\x03\x00" + head[0], b"\x03\x05" + head[1], b"\x03\x05" + head[0], BODY)
    assert found == [FIVE, FIVE, None, None]
    assert ("zlib" in why[0], "AWS Glue" in why[1]) == (True, True)


def test_apicurios_ids_have_eight_bytes(registry):
    registry.add(7, OLD)
    found, why = read(decoding("apicurio", registry), struct.pack(">bq", 0, 7) + datum(OLD, FIVE), b"\0" + BODY)
    assert (found, registry.asked) == ([FIVE, None], ["/schemas/ids/7"])
    assert "8 bytes" in why[0]


def test_a_header_names_the_schema_by_its_guid_and_without_it_the_id_is_in_front(registry):
    registry.add(7, ORDER)
    # What no header names is bad, also if it begins as the number of a GUID does.
    stranger = b"\0\x80\0\0\0" + datum(OLD, FIVE)
    registry.answers[f"/schemas/guids/{GUID}"] = 200, {}, json.dumps({"schema": json.dumps(OLD)}).encode()
    unknown = uuid.UUID(int=9)

    def named(guid, name="__value_schema_id"):
        return [{"key": "trace", "value": None}, {"key": name, "value": b"\x01" + guid.bytes}]

    how = decoding("confluent-header", registry)
    cases = [
        (datum(OLD, FIVE), named(unknown) + named(GUID), FIVE),
        (framed(7, ORDER, FIVE), None, FIVE),
        (framed(7, ORDER, FIVE), named(unknown, "__key_schema_id"), FIVE),
        (None, named(GUID), None),
        (BODY, named(unknown), None),
        (b"", named(GUID), None),
        (stranger, None, None),
        (BODY, [{"key": "__value_schema_id", "value": b"\x01"}], None),
    ]
    values, headers, expected = zip(*cases, strict=True)
    for _ in range(2):
        found, why = read(how, *values, headers=list(headers))
        assert found == list(expected)
        assert why[0].startswith(f"its schema has the GUID {unknown}; the schema registry")
        assert why[1].startswith(f"its schema has the GUID {GUID}; field id: ")
        assert "no registry has ids above" in why[2]
        assert "Confluent's framing" in why[3]
    # The second time it was asked whether the registry returns it still, beside an unknown one.
    assert registry.asked.count(f"/schemas/guids/{GUID}") == 2
    fetched = [column.name for column in columns_to_fetch((), how)]
    assert fetched == ["value", "topic", "partition", "offset", "headers"]


def test_ids_of_headers_are_put_in_front_in_a_slice_too_and_each_number_means_its_guid():
    other = uuid.UUID(int=9)
    headers = pa.array(
        [
            [{"key": "__key_schema_id", "value": b"\x01" + other.bytes}],
            None,
            [{"key": "trace", "value": b"x"}, {"key": "__key_schema_id", "value": b"\x01" + GUID.bytes + b"\x02\x02"}],
            [],
        ],
        HEADERS,
    )
    ids = HeaderIds("key", has_indexes=True)
    raw = pa.array([b"a", b"b", b"c", None], pa.binary())
    assert ids.framed(raw, headers).to_pylist() == [b"\0\x80\0\0\0a", b"b", b"\0\x80\0\0\x01\x02\x02c", None]
    assert ids.framed(raw.slice(1), headers.slice(1)).to_pylist() == [b"b", b"\0\x80\0\0\x01\x02\x02c", None]
    numbers = (1 << 31, (1 << 31) + 1, (1 << 31) + 2, 7)
    assert [ids.guid(number) for number in numbers] == [str(other), str(GUID), None, None]
    assert HeaderIds("value", has_indexes=True).framed(raw, headers) is raw
    # A number at the beginning of a value without the header names no schema, in a batch without headers, too.
    alike = pa.array([b"\0\x80\0\0\0x"], pa.binary())
    (other_number,) = ids.framed(alike, pa.array([None], HEADERS)).to_pylist()
    assert ids.guid(int.from_bytes(other_number[1:5], "big")) is None
    # What follows the GUID is Protobuf's: else it makes no other schema, and is not put in front of the datum.
    assert HeaderIds("key", has_indexes=False).framed(raw, headers).to_pylist()[2] == b"\0\x80\0\0\x01c"


def test_headers_that_all_differ_take_a_bounded_memory(monkeypatch):
    monkeypatch.setattr(header_ids, "_MAX_KNOWN", 2)
    ids = HeaderIds("value", has_indexes=True)
    for number in range(9):
        header = [{"key": "__value_schema_id", "value": b"\x01" + uuid.UUID(int=number).bytes}]
        (framed,) = ids.framed(pa.array([b"a"], pa.binary()), pa.array([header], HEADERS)).to_pylist()
        assert ids.guid(int.from_bytes(framed[1:5], "big")) == str(uuid.UUID(int=number))
    assert [ids.guid((1 << 31) + number) is not None for number in range(9)] == [False] * 6 + [True] * 3


def test_the_header_has_the_message_indexes_of_protobuf(registry):
    text = 'syntax = "proto3"; message Note { string text = 1; } message Order { int64 id = 1; }'
    answer = json.dumps({"schema": text, "schemaType": "PROTOBUF"}).encode()
    registry.answers[f"/schemas/guids/{GUID}"] = 200, {}, answer
    reader = ReaderSchema(text, 1, protobuf=ProtobufMessage("Order"))
    orders = [[{"key": "__value_schema_id", "value": b"\x01" + GUID.bytes + end}] for end in (b"\x02\x02", b"\0")]
    found, why = read(decoding("confluent-header", registry, reader), b"\x08\x05", b"\x0a\x01x", headers=orders)
    assert found == [FIVE, None]
    assert why == [f"its schema has the GUID {GUID}; the record is a message Note, but the column has Order"]


# What Confluent's Python JSONSerializer (2.16.1) wrote with the schema 1 of a registry.
OF_CONFLUENT = "00000000017b226964223a20372c226e616d65223a226772c3bc657a69227d"


def test_json_has_every_framing_but_avros_own_and_bad_values_where_the_registry_lacks_the_schema(registry):
    schema = {"type": "object"}
    registry.add(7, schema, schemaType="JSON")
    answer = json.dumps({"schema": json.dumps(schema), "schemaType": "JSON"}).encode()
    registry.answers[f"/schemas/guids/{GUID}"] = 200, {}, answer
    registry.add(8, '"long"')
    reader = ReaderSchema("", 1, json=pa.struct({"id": pa.int64(), "name": pa.string()}))
    row = {"id": 7, "name": "grüezi"}
    written = bytes.fromhex(OF_CONFLUENT)
    text, broken = written[5:], written[:-1]
    found, why = read(decoding("confluent", registry, reader), written, None, text, broken)
    assert found == [row, None, None, None]
    assert ("Confluent's framing" in why[0], why[1]) == (True, "its schema id is 1; not valid JSON")
    assert registry.asked == []  # the schema of the column comes with the query
    numbered = [bytes(8) + bytes([number]) + text for number in (7, 8, 9, 1)]
    for _ in range(2):
        found, why = read(decoding("apicurio", registry, reader), *numbered)
        assert found == [row, None, None, row]
        assert why[0] == "its schema id is 8; the schema with id 8 is of type AVRO, and not JSON"
        assert why[1].endswith("does not have the schema with id 9")
    assert registry.count(7) == 1
    packed = [b"\x03\x00" + GUID.bytes + text, b"\x03\x05" + GUID.bytes + zlib.compress(text), b"\x03\x00" + GUID.bytes]
    assert read(decoding("glue", None, reader), *packed) == ([row, row, None], ["not valid JSON"])
    headers = [[{"key": "__value_schema_id", "value": b"\x01" + GUID.bytes}]]
    found = read(
        decoding("confluent-header", registry, reader), text, written, text[:-1], headers=[*headers, None, *headers]
    )
    assert found == ([row, row, None], [f"its schema has the GUID {GUID}; not valid JSON"])
    given = replace(reader, id=None)
    assert read(decoding("confluent", None, given), written[:4] + b"\5" + text)[0] == [row]
