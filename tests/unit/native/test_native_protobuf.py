"""Protobuf values are decoded into columns, and columns encoded, equal to what Google's runtime makes of the same bytes."""

import importlib
import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native import kernel
from tests.support.protobuf import drawn_schema, fill, row_of

native = kernel()

ORDER = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string item = 1; uint32 count = 2; }
  int64 id = 1;
  State state = 2;
  optional double discount = 3;
  repeated Line lines = 4;
  map<string, int32> tags = 5;
  oneof way { string email = 6; int64 phone = 7; }
  google.protobuf.Timestamp at = 8;
  repeated sint32 deltas = 9;
}
message Refund { int64 id = 1; }
"""
EMPTY: dict[str, object] = {
    **{"id": 0, "state": "NEW", "discount": None, "lines": [], "tags": [], "email": None, "phone": None},
    **{"at": None, "deltas": []},
}


def names(fields: list[str]) -> pa.DataType:
    return pa.struct([(name, pa.null()) for name in fields])


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def decode(decoder: Any, *values: bytes | None) -> tuple[list[Any], list[Any]]:
    decoded = decoder.decode(column(*values))
    array = pa.array(decoded)
    array.validate(full=True)
    assert len(array) == len(values)
    return array.to_pylist(), decoded.bad


def plain(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in place of times, which Python has fewer of."""
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, plain(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type), False))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), pa.field("value", plain(kind.item_type), False))
    return pa.int64() if pa.types.is_temporal(kind) else kind


class Typed:
    def __init__(self, array: Any, kind: pa.DataType) -> None:
        self.array, self.kind = array, kind

    def __arrow_c_array__(self, _: object = None) -> tuple[object, object]:
        return self.kind.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def rows_of(decoded: Any, kind: pa.DataType) -> list[Any]:
    array = pa.array(Typed(decoded, plain(kind)))
    array.validate(full=True)
    return array.to_pylist(maps_as_pydicts="strict")


def shown(row: Any, decoder: Any) -> Any:
    """What the column has, with maps in a fixed order."""

    def of(value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_boolean(kind):
            # An empty message is there, or null.
            return value if isinstance(value, bool) else True
        if pa.types.is_struct(kind):
            return {one.name: of(value[one.name], one.type) for one in kind}
        if pa.types.is_list(kind):
            return [of(item, kind.value_type) for item in value]
        if pa.types.is_map(kind):
            return {key: of(value[key], kind.item_type) for key in sorted(value)}
        return value

    return of(row, pa.field(decoder).type)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_random_messages_are_read_as_google_reads_them(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_random_messages_are_read_as_google_reads_them() -> None:
    for seed in range(25_000):
        check(seed)


def check(seed: int) -> None:
    rng = random.Random(seed)
    drawn = drawn_schema(rng)
    values = []
    for _ in range(4):
        # A message that is written in pieces is merged by its reader.
        pieces = [drawn.message() for _ in range(rng.choice([1, 1, 2, 3]))]
        for piece in pieces:
            fill(rng, piece)
        values.append(b"".join(piece.SerializeToString() for piece in pieces))
    expected = [row_of(drawn.message.FromString(value)) for value in values]
    of_text = native.ProtobufDecoder(drawn.text, framing="none")
    of_set = native.ProtobufDecoder(drawn.descriptors, message=drawn.message.DESCRIPTOR.full_name, framing="none")
    kind = pa.field(of_text).type
    assert pa.field(of_set).type == kind
    for decoder in (of_text, of_set):
        decoded = decoder.decode(column(*values))
        assert decoded.bad == []
        found = [shown(row, decoder) for row in rows_of(decoded, kind)]
        assert repr(found) == repr([shown(row, decoder) for row in expected])
    # The same messages come back, but for values of enums that have no symbol.
    known = [row for row, value in enumerate(expected) if "UNKNOWN_ENUM_VALUE" not in repr(value)]
    part = pa.array(of_text.decode(column(*[values[row] for row in known])))
    for schema in (drawn.text, drawn.descriptors):
        encoder = native.ProtobufEncoder(schema, schema_id=None, message=drawn.message.DESCRIPTOR.full_name)
        encoder.check(part.type)
        again = [row_of(drawn.message.FromString(value)) for value in pa.array(encoder.encode(part)).to_pylist()]
        assert repr([shown(row, of_text) for row in again]) == repr([shown(expected[row], of_text) for row in known])
    # Some of the fields, in another order.
    chosen = rng.sample([one.name for one in kind], rng.randrange(1, len(kind) + 1))
    fewer = native.ProtobufDecoder(drawn.text, wanted=names(chosen), framing="none")
    found = [shown(row, fewer) for row in rows_of(fewer.decode(column(*values)), pa.field(fewer).type)]
    assert repr(found) == repr([shown(row, fewer) for row in expected])
    # What the one cannot read, the other cannot; here bytes are stricter only in varints that are too long.
    cut = [value[: rng.randrange(len(value))] for value in values if value]
    bad = {row for row, _, _ in of_text.decode(column(*cut)).bad}
    for row, value in enumerate(cut):
        try:
            drawn.message.FromString(value)
            assert row not in bad
        except DecodeError:
            assert row in bad


def framed(schema_id: int, indexes: bytes, value: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + value


def test_the_message_indexes_name_the_message_and_ids_are_mixed() -> None:
    decoder = native.ProtobufDecoder(ORDER, wanted=names(["id", "email"]))
    old = 'syntax = "proto3"; package shop.v0; message Other {} message Order { int64 id = 1; message Line {} }'
    one = b"\x08\x07"
    values = [
        framed(1, b"\0", one + b"\x32\x01a"),
        framed(2, b"\x02\x02", one),
        None,
        framed(1, b"\x02\0", one),
        framed(1, b"\x02\x02", one),
        framed(2, b"\0", one),
        framed(2, b"\x04\x02\0", one),
        framed(2, b"\x02\x09", one),
        framed(1, b"\x80", b""),
        b"\0\0",
        framed(7, b"\0", one),
    ]
    assert decoder.missing_ids(column(*values)) == ([1, 2, 7], 11)
    decoder.add_writer_schema(1, ORDER)
    decoder.add_writer_schema(2, old)
    with pytest.raises(ValueError, match="it has no message Order"):
        decoder.add_writer_schema(7, 'syntax = "proto3"; message Another {}')
    assert decoder.missing_ids(column(*values))[0] == [7]
    rows, bad = decode(decoder, *values)
    read = {"id": 7, "email": None}
    assert rows == [{"id": 7, "email": "a"}, read, None, read, *[None] * 7]
    assert [(row, schema_id) for row, schema_id, _ in bad] == [(4, 1), (5, 2), (6, 2), (7, 2), (8, 1), (9, None), (10, 7)]
    reasons = [why for _, _, why in bad]
    assert reasons[:3] == [
        "the record is a message Refund, but the column has Order",
        "the record is a message Other, but the column has Order",
        "the record is a message Order.Line, but the column has Order",
    ]
    assert "indexes" in reasons[3]
    assert "indexes" in reasons[4]


def test_a_written_message_has_the_schemas_id_and_its_indexes() -> None:
    row = pa.array([{"ID": 5}, None], pa.struct([("ID", pa.int32())]))
    for name, indexes in (("shop.v1.Order", b"\0"), ("shop.v1.Refund", b"\2\2")):
        encoder = native.ProtobufEncoder(ORDER, schema_id=258, message=name)
        assert pa.array(encoder.encode(row)).to_pylist() == [b"\0\0\0\1\2" + indexes + b"\x08\x05", None]
    line = pa.array([{"item": "", "count": -1}], pa.struct([("item", pa.string()), ("count", pa.int32())]))
    encoder = native.ProtobufEncoder(ORDER, schema_id=1, message="shop.v1.Order.Line")
    # What is the default of a field without presence is left out.
    written = b"\0\0\0\0\1\x04\0\0\x10\xff\xff\xff\xff\x0f"
    assert pa.array(encoder.encode(line)).to_pylist() == [written]
    other = 'syntax = "proto3"; message Other { int32 n = 1; }'
    imports = {"other.proto": other}
    imported = 'syntax = "proto3"; import "other.proto"; message M { Other o = 1; }'
    with pytest.raises(ValueError, match="message Other is in an imported file"):
        native.ProtobufEncoder(imported, schema_id=1, imports=imports, message="Other")
    native.ProtobufEncoder(imported, schema_id=None, imports=imports, message="Other")


@pytest.mark.parametrize(
    ("name", "value", "kind", "said"),
    [
        ("state", "hunter2", pa.string(), "field state: the string is none of the symbols"),
        ("deltas", [1, None], pa.list_(pa.int32()), r"field deltas\[\]: the value is null"),
        ("tags", [("hunter2", None)], pa.map_(pa.string(), pa.int32()), r"field tags\{\}: the value is null"),
        ("lines", [{"count": 2**32}], pa.list_(pa.struct([("count", pa.int64())])), r"field lines\[\]\.count: the number"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_row_and_path_and_not_shown(
    name: str, value: object, kind: pa.DataType, said: str
) -> None:
    rows = pa.array([{name: None}, {name: value}], pa.struct([(name, kind)]))
    with pytest.raises(native.UnfitValue, match=said) as failed:
        native.ProtobufEncoder(ORDER, schema_id=None).encode(rows)
    assert (failed.value.row, "hunter2" in str(failed.value)) == (1, False)
    both = pa.array([{"email": "hunter2", "phone": 1}], pa.struct([("email", pa.string()), ("phone", pa.int64())]))
    with pytest.raises(native.UnfitValue, match="several of the fields email, phone are set"):
        native.ProtobufEncoder(ORDER, schema_id=None).encode(both)


def test_types_are_those_of_spark_protobuf_and_what_a_record_lacks_has_its_default() -> None:
    decoder = native.ProtobufDecoder(ORDER, framing="none")
    assert decode(decoder, b"") == ([EMPTY], [])
    line = pa.struct([("item", pa.string()), ("count", pa.int64())])
    assert plain(pa.field(decoder).type) == plain(
        pa.struct(
            [
                ("id", pa.int64()),
                ("state", pa.string()),
                ("discount", pa.float64()),
                ("lines", pa.list_(pa.field("element", line, False))),
                ("tags", pa.map_(pa.string(), pa.field("value", pa.int32(), False))),
                ("email", pa.string()),
                ("phone", pa.int64()),
                ("at", pa.timestamp("us", tz="UTC")),
                ("deltas", pa.list_(pa.field("element", pa.int32(), False))),
            ]
        )
    )
    second = native.ProtobufDecoder(ORDER, message="shop.v1.Refund", framing="none")
    assert decode(second, b"\x08\x05") == ([{"id": 5}], [])


def test_bad_records_name_the_field_and_leave_no_trace() -> None:
    decoder = native.ProtobufDecoder(ORDER, framing="none")
    good = b"\x08\x07\x22\x05\x0a\x01x\x10\x02"
    rows, bad = decode(decoder, good, good + b"\x22\x03\x0a\x01\xff", good, good + b"\x2a\x04\x0a\x01k\x10", b"\x07", good)
    full = {**EMPTY, "id": 7, "lines": [{"item": "x", "count": 2}]}
    assert rows == [full, None, full, None, None, full]
    assert [why for _, _, why in bad] == [
        "field lines[].item: the string is not UTF-8",
        "field tags{}: a record is truncated in the middle of a field",
        "the record has a byte where a field of a message should begin",
    ]
    # Groups that nobody knows, in each other without an end.
    _, ((_, _, why),) = decode(decoder, b"\xa3\x06" * 500)
    assert "groups are nested more than 100 deep" in why


def test_proto2_has_defaults_required_fields_groups_and_closed_enums() -> None:
    schema = """
    syntax = "proto2";
    message P {
      enum E { A = 1; B = 2; }
      required int32 must = 1;
      optional string name = 2 [default = "nobody"];
      optional E kind = 3 [default = B];
      optional group Part = 4 { optional int32 n = 5; repeated int32 more = 6; }
      repeated E kinds = 7;
      optional int32 none = 8;
    }
    """
    decoder = native.ProtobufDecoder(schema, framing="none")
    rows, bad = decode(
        decoder,
        b"\x08\x01",
        b"\x08\x01\x18\x09\x23\x28\x05\x30\x01\x24\x23\x30\x02\x24\x38\x01\x38\x09\x3a\x03\x02\x09\x01",
        b"\x10\x01",
        b"\x08\x01\x23\x28\x05",
    )
    first = {"must": 1, "name": "nobody", "kind": "B", "part": None, "kinds": [], "none": None}
    part = {"n": 5, "more": [1, 2]}
    assert rows == [first, {**first, "part": part, "kinds": ["A", "B", "A"]}, None, None]
    assert bad[0][2] == "field must: the required field is missing"
    again = native.ProtobufEncoder(schema, schema_id=None).encode(pa.array(decoder.decode(column(b"\x08\x01", b"\x10\x01"))))
    assert pa.array(again).to_pylist() == [b"\x08\x01\x12\x06nobody\x18\x02", None]
    with pytest.raises(ValueError, match="field must: the column lacks this field, which the message requires"):
        native.ProtobufEncoder(schema, schema_id=None).check(pa.struct([("none", pa.int32())]))
    with pytest.raises(native.UnfitValue, match="field must: the value is null, and the message requires it"):
        native.ProtobufEncoder(schema, schema_id=None).encode(pa.array([{"must": None}], pa.struct([("must", pa.int32())])))
    assert len(bad) == 2
    assert not pa.field(decoder).type.field("must").nullable


def test_of_several_symbols_with_one_number_the_first_counts() -> None:
    enum = "enum E { option allow_alias = true; OFF = 0; STARTED = 1; RUNNING = 1; GOING = 1; }"
    schema = f'syntax = "proto2"; {enum} message M {{ optional E a = 1 [default = GOING]; optional E b = 2; optional M m = 3; }}'
    decoder = native.ProtobufDecoder(schema, recursive_depth=1, framing="none")
    assert decode(decoder, b"\x08\x01", b"\x10\x01")[0] == [{"a": "STARTED", "b": None}, {"a": "STARTED", "b": "STARTED"}]
    as_text = native.ProtobufDecoder(schema, framing="none")
    assert '"b":"STARTED"' in str(decode(as_text, b"\x1a\x02\x10\x01")[0])


def test_what_a_schema_may_not_have_is_refused() -> None:
    tree = 'syntax = "proto3"; message Tree { int32 v = 1; repeated Tree below = 2; }'
    bounded = native.ProtobufDecoder(tree, recursive_depth=2, framing="none")
    assert decode(bounded, b"\x08\x01\x12\x04\x12\x02\x08\x05")[0] == [{"v": 1, "below": [{"v": 0}]}]
    edition = FileDescriptorSet(file=[FileDescriptorProto(name="a.proto", syntax="editions", edition=1000)])
    for schema, said in (
        ("message", "expected"),
        ('syntax = "proto3";', "no message"),
        ('syntax = "proto3"; import "other.proto"; message M { Other o = 1; }', "other.proto"),
        ('syntax = "proto3"; message M {}', "no field that can be a column"),
        (b"\xff", "no descriptor set"),
        (edition.SerializeToString(), "a.proto has editions"),
        ("message M { repeated E e = 1; } message E { option map_entry = true; optional int32 a = 5; }", "message E is the entry"),
    ):
        with pytest.raises(ValueError, match=said):
            native.ProtobufDecoder(schema)
    with pytest.raises(ValueError, match="no message Order; a name begins with its package"):
        native.ProtobufDecoder(ORDER, message="Order")
    with pytest.raises(ValueError, match="has no field price"):
        native.ProtobufDecoder(ORDER, wanted=names(["price"]))
    imported = 'syntax = "proto3"; import "other.proto"; message M { Other o = 1; }'
    other = 'syntax = "proto3"; message Other { int32 n = 1; }'
    decoder = native.ProtobufDecoder(imported, imports={"other.proto": other}, framing="none")
    assert decode(decoder, b"\x0a\x02\x08\x03")[0] == [{"o": {"n": 3}}]


# The files of `google/type` that Confluent's registry knows.
WELL_KNOWN = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "latlng", "money", "month"),
    *("postal_address", "quaternion", "timeofday"),
)


def test_files_that_confluents_registry_knows_are_imported_without_a_text_and_are_those_of_google() -> None:
    rng = random.Random(1)
    for name in WELL_KNOWN:
        file = importlib.import_module(f"google.type.{name}_pb2").DESCRIPTOR
        head = f'syntax = "proto3"; import "google/type/{name}.proto"; message M'
        for kind in file.message_types_by_name.values():
            decoder = native.ProtobufDecoder(f"{head} {{ {kind.full_name} it = 1; }}", framing="none")
            made = [GetMessageClass(kind)() for _ in range(20)]
            for message in made:
                fill(rng, message)
            raw = [message.SerializeToString() for message in made]
            values = [b"\x0a" + bytes([len(one) & 0x7F | 0x80, len(one) >> 7]) + one for one in raw]
            decoded = decoder.decode(column(*values))
            assert decoded.bad == []
            found = [shown(row, decoder) for row in rows_of(decoded, pa.field(decoder).type)]
            assert repr(found) == repr([shown({"it": row_of(message)}, decoder) for message in made])
        for enum in file.enum_types_by_name.values():
            decoder = native.ProtobufDecoder(f"{head} {{ {enum.full_name} it = 1; }}", framing="none")
            found, _ = decode(decoder, *(bytes([8, value.number]) for value in enum.values))
            assert found == [{"it": value.name} for value in enum.values]


def test_custom_options_are_left_out_whatever_is_in_them() -> None:
    text = """syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "confluent/type/variant.proto";
option (confluent.file_meta).doc = "orders";
message Order {
  option (confluent.message_meta) = {doc: "an order", rules: [{name: "r", expr: "this.id > 0"}]};
  int64 id = 1 [deprecated = true, (confluent.field_meta) = {tags: ["PII"], of_tomorrow: {a: 1}}];
  oneof way { option (shop.way) = true; State state = 2 [(confluent.field_meta).doc = "x"]; }
  confluent.type.Decimal price = 3;
  confluent.type.Variant note = 4;
  enum State { option (confluent.enum_meta).doc = "x"; NEW = 0; PAID = 1 [(confluent.enum_value_meta).doc = "x"]; }
}"""
    decoder = native.ProtobufDecoder(text, framing="none")
    price, note = {"value": b"\x04\xd2", "precision": 9, "scale": 2}, {"metadata": b"m", "value": b"v"}
    value = b"\x08\x05\x10\x01\x1a\x08\x0a\x02\x04\xd2\x10\x09\x18\x02\x22\x06\x0a\x01m\x12\x01v"
    assert decode(decoder, value) == ([{"id": 5, "state": "PAID", "price": price, "note": note}], [])
    with pytest.raises(ValueError, match="Missing"):
        native.ProtobufDecoder(text.replace("State state", "Missing state"))


def test_items_and_fields_that_come_again_are_bounded() -> None:
    fields = " ".join(f"string f{i} = {i};" for i in range(1, 600))
    oneof = "oneof way { W left = 3; W right = 4; bool none = 5; }"
    schema = f'syntax = "proto3"; message M {{ repeated W wide = 1; W one = 2; {oneof} }} message W {{ {fields} }}'
    # A member of a oneof that takes the wide one back each time, whether it is a column or not.
    values = (b"\x0a\0" * 100, b"\x12\0" * 100, b"\x1a\0\x22\0" * 50, b"\x1a\0\x28\1" * 50, b"\x0a\0\x1a\0\x28\1")
    for chosen in (None, names(["wide", "one", "left"])):
        decoder = native.ProtobufDecoder(schema, wanted=chosen, framing="none", max_decoded_bytes=100_000)
        rows, bad = decode(decoder, *values)
        assert [row for row, _, _ in bad] == [0, 1, 2, 3]
        assert bad[0][2].startswith("field wide: the record takes more than 100000 bytes decoded")
        assert (len(rows[4]["wide"]), rows[4]["left"]) == (1, None)
