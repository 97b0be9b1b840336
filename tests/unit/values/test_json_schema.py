"""The type of a JSON Schema's values: each keyword that decides about it, and what has no single type."""

import json

import pyarrow as pa
import pytest

from kafka_source.json_type import json_column_type
from kafka_source.spark_types import spark_type
from kafka_source.values.derived_schema import json_schema
from kafka_source.values.json_schema import SchemaError, json_schema_type


def shown(schema, **imports):
    """The type as Spark shows it."""
    texts = {name.replace("_", "."): json.dumps(one) for name, one in imports.items()}
    return spark_type(json_schema_type(json.dumps(schema), texts)).simpleString()


def of(kind):
    return {"type": kind}


INTEGER, NUMBER, STRING, NULL = map(of, ("integer", "number", "string", "null"))


def record(**properties):
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (INTEGER, "bigint"),
        (NUMBER, "double"),
        (of("boolean"), "boolean"),
        (NULL, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": ["null", "string"], "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"enum": ["a", None]}, "string"),
        ({"const": 7}, "bigint"),
        ({"enum": [1, 2.5]}, "double"),
        ({"enum": [True, 1]}, "string"),
        # Objects and arrays.
        (record(id=INTEGER, tags={"type": "array", "items": STRING}), "struct<id:bigint,tags:array<string>>"),
        ({"properties": {"id": INTEGER}, "additionalProperties": NUMBER}, "struct<id:bigint>"),
        ({"type": "object", "additionalProperties": NUMBER}, "map<string,double>"),
        ({"type": "object", "patternProperties": {"^a": INTEGER, "^b": NUMBER}}, "map<string,double>"),
        (of("object"), "map<string,string>"),
        ({"type": "object", "additionalProperties": False}, "map<string,string>"),
        (of("array"), "array<string>"),
        ({"items": record(n=INTEGER)}, "array<struct<n:bigint>>"),
        ({"type": "array", "prefixItems": [INTEGER, NUMBER]}, "array<double>"),
        ({"type": "array", "items": [INTEGER, STRING]}, "array<string>"),
        ({"type": "array", "prefixItems": [INTEGER], "items": NUMBER}, "array<double>"),
        ({"type": "array", "items": [INTEGER], "additionalItems": STRING}, "array<string>"),
        ({"type": "array", "prefixItems": [INTEGER], "items": False}, "array<bigint>"),
        # Several branches.
        ({"type": ["integer", "null"]}, "bigint"),
        ({"oneOf": [NULL, NUMBER, INTEGER]}, "double"),
        ({"anyOf": [INTEGER, of("boolean")]}, "string"),
        (record(a={"oneOf": [INTEGER, {}]}), "struct<a:string>"),
        ({"oneOf": [record(a=INTEGER, b=STRING), record(a=NUMBER)]}, "struct<a:double,b:string>"),
        ({"oneOf": [{"type": "array", "items": INTEGER}, {"type": "array", "items": NULL}]}, "array<bigint>"),
        ({"oneOf": [record(a=INTEGER), STRING]}, "string"),
        ({"type": "object", "oneOf": [record(a=INTEGER), record(b=STRING)]}, "struct<a:bigint,b:string>"),
        ({"allOf": [record(a=INTEGER), {"required": ["a"]}, record(b=STRING)]}, "struct<a:bigint,b:string>"),
        ({**record(a=INTEGER), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "struct<a:bigint>"),
        ({"allOf": [NUMBER, INTEGER]}, "bigint"),
        ({**STRING, "allOf": [{**STRING, "format": "date"}]}, "date"),
        (
            record(a={"anyOf": [record(b=INTEGER), {"type": "object", "additionalProperties": INTEGER}]}),
            "struct<a:string>",
        ),
        ({"anyOf": [record(b=INTEGER), {"type": "object", "additionalProperties": False}]}, "struct<b:bigint>"),
        # What has no type.
        (record(a={}, b=True, c={"type": "any"}), "struct<a:string,b:string,c:string>"),
    ],
    ids=str,
)
def test_each_keyword_that_decides_about_a_type(schema, kind):
    assert shown(schema) == kind


def test_references_are_followed_and_what_contains_itself_is_text():
    line = {"$id": "http://shop/line.json", **record(item=STRING, unit={"$ref": "#/$defs/Unit"})}
    line["$defs"] = {"Unit": {"enum": ["kg", "l"]}}
    schema = {
        "$id": "http://shop/order.json",
        **record(
            lines={"type": "array", "items": {"$ref": "line.json"}},
            unit={"$ref": "http://shop/line.json#/$defs/Unit"},
            parent={"oneOf": [NULL, {"$ref": "#"}]},
            a={"$ref": "#/definitions/a~1b%25"},
        ),
        "definitions": {"a/b%": INTEGER},
    }
    kind = "struct<lines:array<struct<item:string,unit:string>>,unit:string,parent:string,a:bigint>"
    assert shown(schema, line_json=line) == shown(schema, other=line) == kind
    node = {"$ref": "#/$defs/Node", "$defs": {"Node": record(id=INTEGER, next={"$ref": "#/$defs/Node"})}}
    assert shown(node) == "struct<id:bigint,next:string>"


def doubled(levels):
    """A schema of few lines with 2^levels parts."""
    parts = {f"p{n}": record(a={"$ref": f"#/$defs/p{n + 1}"}, b={"$ref": f"#/$defs/p{n + 1}"}) for n in range(levels)}
    return {"$ref": "#/$defs/p0", "$defs": {**parts, f"p{levels}": INTEGER}}


def nested(levels):
    schema = INTEGER
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "record", "fields": []}, "nothing about the type"),
        ({"$ref": "line.json"}, r"line\.json, which is none of its references"),
        ({"$ref": "#/$defs/Line"}, "#/\\$defs/Line, which does not exist"),
        ({"$ref": "#Line"}, "only references by a path"),
        (doubled(40), "more than 20000 parts"),
        (nested(70), "nested more than 64 deep"),
    ],
)
def test_a_schema_without_a_type_is_refused_in_words(schema, why):
    with pytest.raises(SchemaError, match=why):
        shown(schema)


@pytest.mark.parametrize("text", ["no JSON", "[" * 100_000])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(SchemaError, match=r"it is no JSON|nested too deeply"):
        json_schema_type(text)


def test_what_a_sink_writes_is_read_with_the_same_types():
    kind = pa.struct(
        {
            **{"id": pa.int64(), "amount": pa.float64(), "day": pa.date32(), "at": pa.timestamp("us", tz="UTC")},
            **{"bytes": pa.binary(), "ok": pa.bool_(), "inner": pa.struct({"n": pa.int64()})},
            "tags": pa.list_(pa.field("element", pa.string())),
            "counts": pa.map_(pa.string(), pa.field("value", pa.int64())),
        }
    )
    assert json_schema_type(json_schema(kind)) == kind


def test_an_option_takes_a_json_schema_too():
    assert json_column_type(json.dumps(record(id=INTEGER))) == pa.struct({"id": pa.int64()})
