"""Columns that a JSON Schema excludes, and the error; a column of which a row is valid is never refused."""

import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from kafka_source.values.derived_schema import json_schema
from kafka_source.values.json_fit import UnfitError, check_fit
from tests.support.native import kernel

native = kernel()
NULL = {"type": "null"}
INTEGER = {"type": "integer"}
NOTE = {"oneOf": [NULL, {"type": "string"}]}
LONG, TEXT, DATE, AT = pa.int64(), pa.string(), pa.date32(), pa.timestamp("us", tz="UTC")


def told(kind, schema, **imports):
    try:
        check_fit(kind, json.dumps(schema), {name: json.dumps(one) for name, one in imports.items()})
    except UnfitError as fault:
        return str(fault)
    return "fits"


def record(closed=False, required=(), **properties):
    open_ = {"type": "object", "properties": properties, "required": list(required)}
    return {**open_, "additionalProperties": False} if closed else open_


def struct(**fields):
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        (TEXT, INTEGER, "the column has string, and the schema allows integer"),
        (pa.decimal128(9, 2), INTEGER, "the column has decimal(9,2), and the schema allows integer"),
        (pa.float64(), {"type": ["integer", "null"]}, "the column has double, and the schema allows integer or null"),
        (struct(a=LONG), {"type": "string"}, "the column has struct, and the schema allows string"),
        (AT, INTEGER, "the column has timestamp, and the schema allows integer"),
        (DATE, {"type": "string", "format": "date-time"}, "has date, and the schema allows a string with a timestamp"),
        (pa.timestamp("us"), {"format": "date-time"}, "has timestamp_ntz, and the schema allows a string with a times"),
        (LONG, NOTE, "the column has bigint, and the schema allows null or string"),
        (struct(a=LONG), record(required=["b"]), "field b: the column does not have it, and the schema allows no v"),
        (struct(b=pa.null()), record(required=["b"]), "field b: the column does not have it"),
        (struct(A=LONG), record(True, a=INTEGER), "field A: the column has bigint, and the schema allows no value"),
        (struct(a=pa.list_(struct(b=TEXT))), record(a={"items": record(b=INTEGER)}), "field a[].b: the column has str"),
        (struct(a=pa.map_(TEXT, LONG)), record(a={"additionalProperties": NOTE}), "field a{}: the column has bigint"),
        (struct(a=LONG), {"additionalProperties": {"type": "string"}}, "field a: the column has bigint"),
        (struct(a=struct(b=LONG)), {"anyOf": [NULL, record(a=record(b=NOTE))]}, "field a.b: the column has bigint"),
        (struct(a=LONG), {"allOf": [record(a=INTEGER), {"required": ["b"]}]}, "field b: the column does not have it"),
        (LONG, {"$ref": "#/$defs/Id", "$defs": {"Id": NOTE}}, "the column has bigint"),
    ],
    ids=str,
)
def test_a_column_that_the_schema_excludes_is_named_with_its_path_and_both_types(kind, schema, reason):
    assert reason in told(kind, schema)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (LONG, {"type": "number"}),
        (pa.decimal128(9, 0), INTEGER),
        (TEXT, {"type": "string", "format": "date-time"}),
        (pa.binary(), {"type": "string", "format": "byte"}),
        (TEXT, NOTE),
        (struct(a=LONG, b=TEXT), record(a=INTEGER)),
        (struct(xa=LONG), {"patternProperties": {"^x": INTEGER}, "additionalProperties": False}),
        (struct(a=LONG, b=pa.null()), record(True, a=INTEGER)),
        (pa.list_(LONG), {"items": [{"type": "string"}]}),
        (pa.map_(TEXT, LONG), record(True, a=INTEGER)),
        # Nothing is decided by keywords about values, by what no draft has, and by references that are not there.
        (LONG, {"enum": ["a"], "pattern": "a", "not": INTEGER}),
        (LONG, {"type": "any"}),
        (LONG, {"$ref": "other.json"}),
        (LONG, {"$ref": "#"}),
    ],
    ids=str,
)
def test_a_column_that_may_be_valid_fits(kind, schema):
    assert told(kind, schema) == "fits"


def test_references_to_other_documents_are_followed():
    schema = record(line={"$ref": "line.json#/$defs/Line"})
    line = {"$defs": {"Line": record(next={"$ref": "#/$defs/Line"}, count=INTEGER)}}
    inner = struct(next=struct(count=TEXT), count=LONG)
    assert told(struct(line=inner), schema, **{"line.json": line}).startswith("field line.next.count: the column has s")


def test_a_schema_of_few_lines_with_endless_parts_decides_nothing():
    def twice(number):
        return {"allOf": [{"$ref": f"#/$defs/p{number}"}] * 2}

    parts = {f"p{number}": twice(number + 1) for number in range(40)}
    assert told(LONG, {**twice(0), "$defs": {**parts, "p40": INTEGER}}) == "fits"


class Draw:
    """Draws columns with a row each, and changes schemas."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.parts = rng, dict[str, object]()

    def column(self, depth: int = 0) -> tuple[pa.DataType, object]:
        """Draw a type and a value of no other type: no null, nothing empty, no whole number in fractions."""
        scalars = [(TEXT, "x"), (LONG, 7), (pa.float64(), 0.5), (pa.bool_(), True), (pa.binary(), b"x")]
        scalar = self.rng.choice([*scalars, (pa.decimal128(9, 0), 7), (pa.decimal128(9, 2), Decimal("0.5"))])
        if depth == 3 or (depth and self.rng.random() < 0.5):
            return scalar
        if self.rng.random() < 0.5:
            fields = {name: self.column(depth + 1) for name in self.rng.sample("abc", k=2)}
            kinds = [pa.field(name, kind, self.rng.random() < 0.5) for name, (kind, _) in fields.items()]
            return pa.struct(kinds), {name: value for name, (_, value) in fields.items()}
        kind, value = self.column(depth + 1)
        return (pa.list_(kind), [value]) if self.rng.random() < 0.5 else (pa.map_(TEXT, kind), [("a", value)])

    def changed(self, schema: object) -> object:
        """Return a schema with some of its parts changed."""
        if isinstance(schema, list):
            return [self.changed(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        rng = self.rng
        made = {key: self.changed(one) for key, one in schema.items()}
        if "type" in made and rng.random() < 0.15:
            made["type"] = rng.choice(["integer", "number", "string", ["null", "array"], ["string", "object"]])
        if "required" in made and rng.random() < 0.2:
            made["required"] = rng.sample("abcd", k=2)
        if "additionalProperties" in made and rng.random() < 0.4:
            made["additionalProperties"] = rng.choice([True, {"type": "integer"}, False])
        if "type" not in made or rng.random() < 0.7:
            return made
        self.parts[name := f"p{len(self.parts)}"] = made
        reference = {"$ref": f"#/$defs/{name}"}
        return rng.choice([reference, {"anyOf": [NULL, reference]}, {"allOf": [reference, {"title": "x"}]}])


def check(seed: int) -> tuple[bool, bool]:
    """Return whether a column fits a random schema, and whether its row is valid."""
    draw = Draw(random.Random(seed))
    kind, value = draw.column()
    schema = json.loads(json_schema(kind))
    assert told(kind, schema) == "fits"
    changed = {"allOf": [draw.changed(schema)], "$defs": draw.parts}
    (text,) = pa.array(native.JsonEncoder(schema_id=None).encode(pa.array([value], kind))).to_pylist()
    return told(kind, changed) == "fits", Draft7Validator(changed).is_valid(json.loads(text))


@given(st.integers(0, 2**32))
@settings(max_examples=500, deadline=None)
def test_a_column_is_refused_only_if_its_row_is_not_valid(seed: int) -> None:
    fits, valid = check(seed)
    assert fits or not valid


def test_most_rows_that_are_not_valid_are_refused() -> None:
    found = [check(seed) for seed in range(400)]
    invalid = [fits for fits, valid in found if not valid]
    assert len(invalid) > 50 and invalid.count(False) > 0.9 * len(invalid), (len(invalid), invalid.count(False))
