"""Random JSON Schemas that leave nothing open: their columns take each valid value, and keep what it means."""

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from kafka_source.values.json_schema import json_schema_type
from tests.support.native import kernel

native = kernel()
Schema = dict[str, Any]


@dataclass(frozen=True)
class Json:
    """A value, and the text that was written of it."""

    value: Any
    text: str


Make = Callable[[], Json]


def scalar(value: object) -> Json:
    return Json(value, json.dumps(value))


class Draw:
    """Draws schemas, each with what makes values of it.

    Args:
        rng: The chance.
        is_old: Whether tuples are those of the drafts before 2020-12.
    """

    def __init__(self, rng: random.Random, *, is_old: bool) -> None:
        self.rng, self.is_old, self.parts = rng, is_old, dict[str, Schema]()

    def schema(self, depth: int = 0) -> tuple[Schema, Make]:
        rng = self.rng
        draw = rng.choice([self._object, self._map, self._array, self._tuple, self._branches, self._all, self._ref])
        return self._scalar() if depth > 3 or (depth and rng.random() < 0.5) else draw(depth + 1)

    def _integer(self) -> Json:
        value = rng_int(self.rng)
        return Json(value, self.rng.choice(["{}", "{}", "{}.0", "{}e0", "{}.00E+0"]).format(value))

    def _number(self) -> Json:
        whole = self._integer()
        return whole if abs(whole.value) < 1 << 53 and self.rng.random() < 0.5 else scalar(self.rng.uniform(-1e9, 1e9))

    def _text(self) -> Json:
        value = "".join(self.rng.choices('a"\\/\n\u0000é\U0001f600 1{', k=self.rng.randrange(4)))
        return Json(value, json.dumps(value, ensure_ascii=self.rng.random() < 0.5))

    def _date_time(self) -> Json:
        local = datetime(1, 1, 2) + timedelta(
            microseconds=self.rng.randrange(9998 * 365 * 86_400) * 1_000_000 + 123_456
        )
        minutes = self.rng.choice([0, 90, -300])
        offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "Z"
        return Json(local.replace(tzinfo=timezone(timedelta(minutes=minutes))), f'"{local.isoformat()}{offset}"')

    def _scalar(self) -> tuple[Schema, Make]:
        rng = self.rng
        days = rng.randrange(1, 3_000_000)
        kinds: list[tuple[Schema, Make]] = [
            ({"type": "integer"}, self._integer),
            ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, self._integer),
            ({"type": "number", "multipleOf": 0.5}, lambda: scalar(rng.randrange(-(10**6), 10**6) / 2)),
            ({"type": "number"}, self._number),
            ({"type": "boolean"}, lambda: scalar(rng.random() < 0.5)),
            ({"type": "null"}, lambda: scalar(None)),
            ({"type": "string", "maxLength": 9}, self._text),
            ({"type": "string", "format": "uuid"}, self._text),
            ({"type": "string", "format": "date"}, lambda: scalar(date.fromordinal(days).isoformat())),
            ({"type": "string", "format": "date-time"}, self._date_time),
            (
                {"type": "string", "contentEncoding": "base64"},
                lambda: scalar(base64.b64encode(rng.randbytes(rng.randrange(5))).decode()),
            ),
            self._named_values(),
            self._several_types(),
        ]
        return rng.choice(kinds)

    def _named_values(self) -> tuple[Schema, Make]:
        values = self.rng.sample([1, 2.5, 1.0, "a", "1", None, True, -7], k=self.rng.randint(1, 4))
        return {"enum": values} if len(values) > 1 else {"const": values[0]}, lambda: scalar(self.rng.choice(values))

    def _several_types(self) -> tuple[Schema, Make]:
        makes: dict[str, Make] = {"integer": self._integer, "number": self._number, "string": self._text}
        makes["null"] = lambda: scalar(None)
        kinds = self.rng.sample(list(makes), k=2)
        if set(kinds) == {"integer", "number"}:
            makes["integer"] = self._number
        return {"type": kinds}, lambda: makes[self.rng.choice(kinds)]()

    def _object(self, depth: int) -> tuple[Schema, Make]:
        fields = {name: self.schema(depth) for name in self.rng.sample(["a", "B", 'c"\\', "é", "_"], k=3)}
        names = {name: schema for name, (schema, _) in fields.items()}
        more = self.rng.choice([{}, {"required": ["a"]}]) if "a" in fields else {}

        def make() -> Json:
            kept = [name for name in fields if name in more.get("required", []) or self.rng.random() < 0.7]
            self.rng.shuffle(kept)
            return object_of({name: fields[name][1]() for name in kept})

        return {"type": "object", "properties": names, "additionalProperties": False, **more}, make

    def _map(self, depth: int) -> tuple[Schema, Make]:
        (schema, make), (other, make_other) = self.schema(depth), self.schema(depth)
        if self.rng.random() < 0.5:
            return {"type": "object", "additionalProperties": schema}, lambda: object_of({"x": make(), "1": make()})
        closed = {"type": "object", "patternProperties": {"^x": schema, "^y": other}, "additionalProperties": False}
        return closed, lambda: object_of({"x1": make(), "y": make_other()})

    def _array(self, depth: int) -> tuple[Schema, Make]:
        schema, make = self.schema(depth)
        return {"type": "array", "items": schema}, lambda: array_of([make() for _ in range(self.rng.randrange(4))])

    def _tuple(self, depth: int) -> tuple[Schema, Make]:
        first, second = self.schema(depth), self.schema(depth)
        rest = self.schema(depth) if self.rng.random() < 0.5 else None
        items, others = ("items", "additionalItems") if self.is_old else ("prefixItems", "items")
        schema = {"type": "array", items: [first[0], second[0]], others: rest[0] if rest else False}
        return schema, lambda: array_of([first[1](), second[1](), *(rest[1]() for _ in range(2) if rest)])

    def _branches(self, depth: int) -> tuple[Schema, Make]:
        branches = [self.schema(depth) for _ in range(self.rng.randint(1, 3))]
        return {"anyOf": [schema for schema, _ in branches]}, lambda: self.rng.choice(branches)[1]()

    def _all(self, depth: int) -> tuple[Schema, Make]:
        """A schema beside one that says less of the same values."""
        schema, make = self.schema(depth)
        wider: Schema = {"description": "any"}
        if schema.get("type") in ("integer", "number"):
            wider = {"type": self.rng.choice(["number", ["number", "string"]])}
        elif isinstance(schema.get("type"), str):
            wider = {"type": self.rng.choice([schema["type"], [schema["type"], "null"]])}
        both = [schema, wider]
        self.rng.shuffle(both)
        return {"allOf": both}, make

    def _ref(self, depth: int) -> tuple[Schema, Make]:
        schema, make = self.schema(depth)
        self.parts[name := f"p{len(self.parts)}"] = schema
        return {"$ref": f"#/$defs/{name}"}, make


def rng_int(rng: random.Random) -> int:
    bits = rng.randint(1, 63)
    return rng.randint(-(1 << bits), (1 << bits) - 1)


def object_of(fields: dict[str, Json]) -> Json:
    return Json(fields, "{" + ", ".join(f"{json.dumps(name)} :{one.text}" for name, one in fields.items()) + "}")


def array_of(items: list[Json]) -> Json:
    return Json(items, "[ " + ",".join(one.text for one in items) + "]")


def plain(one: Json) -> object:
    """Return a value as the validator takes it, which reads long numbers with a point as other ones."""
    if isinstance(one.value, dict):
        return {name: plain(field) for name, field in one.value.items()}
    if isinstance(one.value, list):
        return [plain(item) for item in one.value]
    return json.loads(one.text) if isinstance(one.value, datetime) else one.value


def meaning(kind: pa.DataType, json_: Json | None) -> object:
    """Return the value that a column of this type has."""
    if json_ is None or json_.value is None:
        return None
    value = json_.value
    if pa.types.is_struct(kind):
        said = {name for name, one in value.items() if one.value is not None}
        assert said <= {field.name for field in kind}, f"{kind} has no place for all of {value}"
        return {field.name: meaning(field.type, value.get(field.name)) for field in kind}
    if pa.types.is_map(kind):
        return [(name, meaning(kind.item_type, one)) for name, one in value.items()]
    if pa.types.is_list(kind):
        return [meaning(kind.value_type, one) for one in value]
    if pa.types.is_string(kind):
        return (
            value if isinstance(value, str) else json.loads(json_.text) if isinstance(value, datetime) else json_.text
        )
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return value.astimezone(timezone.utc)
    assert pa.types.is_boolean(kind) == isinstance(value, bool)
    if pa.types.is_integer(kind):
        assert value == int(value)
    return float(value) if pa.types.is_floating(kind) else value


def check(seed: int) -> None:
    rng = random.Random(seed)
    is_old = rng.random() < 0.3
    draw = Draw(rng, is_old=is_old)
    schema, make = draw.schema()
    if draw.parts:
        schema = {"allOf": [schema], "$defs": draw.parts}
    values = [make() for _ in range(20)]
    validator = (Draft7Validator if is_old else Draft202012Validator)(schema)
    for one in values:
        validator.validate(plain(one))
    kind = json_schema_type(json.dumps(schema))
    decoded = native.JsonDecoder(kind, framing="none").decode(pa.array([one.text.encode() for one in values]))
    assert decoded.bad == [], (schema, kind)
    assert pa.array(decoded).to_pylist() == [meaning(kind, one) for one in values], (schema, kind)


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_each_valid_value_of_a_random_schema_is_read_and_means_the_same(seed: int) -> None:
    check(seed)


@pytest.mark.long
def test_twenty_thousand_random_schemas_read_their_values() -> None:
    for seed in range(20_000):
        check(seed)
