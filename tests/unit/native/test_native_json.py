"""Random JSON values of random types: read as Python's json reads them, and written so that they come back."""

import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.native import kernel

native = kernel()

SCALARS = (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(20, 4))
ALPHABET = 'ab"\\/\n\t\u0000\u001f é€\U0001f600\u2028'


def text(rng: random.Random) -> str:
    return "".join(rng.choices(ALPHABET, k=rng.randint(0, 6)))


def kind_of(rng: random.Random, depth: int = 0) -> pa.DataType:
    draw = rng.random() + depth * 0.15
    if draw < 0.25 or depth == 0:
        # The names of Arrow's C interface end at a NUL.
        names = {text(rng).replace("\0", "") or "x" for _ in range(rng.randint(1, 5))}
        return pa.struct([(name, kind_of(rng, depth + 1)) for name in sorted(names)])
    if draw < 0.4:
        return pa.list_(kind_of(rng, depth + 1))
    if draw < 0.5:
        return pa.map_(pa.string(), kind_of(rng, depth + 1))
    return rng.choice(SCALARS)


def value_of(kind: pa.DataType, rng: random.Random) -> Any:
    """Return a value as pyarrow takes it."""
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, rng) for field in kind}
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, rng) for _ in range(rng.choice([0, 1, 2, 9]))]
    if pa.types.is_map(kind):
        return [(key, value_of(kind.item_type, rng)) for key in {text(rng) for _ in range(rng.randint(0, 3))}]
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        bits = rng.randint(1, kind.bit_width - 1)
        return rng.randint(-(1 << bits), (1 << bits) - 1)
    if pa.types.is_decimal(kind):
        return Decimal(rng.randint(-(10**20) + 1, 10**20 - 1)).scaleb(-4)
    if pa.types.is_floating(kind):
        return rng.choice([0.0, 1.5, -(2.0**-1074), rng.random() * 10.0 ** rng.randint(-300, 300)])
    return text(rng)


def written(kind: pa.DataType, value: Any, rng: random.Random) -> str:
    """Write a value in one of the ways in which JSON may have it."""
    space = rng.choice(["", "", " ", "\n\t"])
    if value is None or pa.types.is_boolean(kind):
        return json.dumps(value)
    if pa.types.is_struct(kind):
        fields = [(name, written(kind.field(name).type, one, rng)) for name, one in value.items()]
        # A field that is null may be absent, and there may be fields of which the type knows nothing.
        fields = [pair for pair in fields if pair[1] != "null" or rng.random() < 0.5]
        known = {field.name for field in kind}
        fields += [(f"more {n}", rng.choice(["1e5", '[{"a": [null]}]', '"}"'])) for n in range(rng.choice([0, 0, 2]))]
        assert len({name for name, _ in fields if name in known}) <= len(known)
        rng.shuffle(fields)
        return "{" + ",".join(f"{space}{quoted(name, rng)}{space}:{space}{one}{space}" for name, one in fields) + "}"
    if pa.types.is_list(kind):
        return "[" + ",".join(space + written(kind.value_type, one, rng) for one in value) + space + "]"
    if pa.types.is_map(kind):
        return "{" + ",".join(f"{quoted(key, rng)}:{written(kind.item_type, one, rng)}" for key, one in value) + "}"
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    return quoted(value, rng) if isinstance(value, str) else json.dumps(value)


def quoted(value: str, rng: random.Random) -> str:
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def plain(value: Any) -> Any:
    """Return a value with maps that have no order."""
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return {key: plain(one) for key, one in value}
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def check(seed: int, number: int = 8) -> int:
    rng = random.Random(seed)
    kind = kind_of(rng)
    values = [value_of(kind, rng) or {field.name: None for field in kind} for _ in range(number)]
    expected = pa.array(values, kind)
    decoder = native.JsonDecoder(pa.field("value", kind).type)
    texts = [written(kind, value, rng).encode() for value in values]
    encoded = pa.array(native.JsonEncoder(schema_id=None).encode(expected))
    for made in (pa.array(texts, pa.binary()), encoded.cast(pa.binary())):
        done = decoder.decode(made)
        assert not done.bad, (seed, done.bad[0], made[done.bad[0][0]])
        found = pa.array(done)
        found.validate(full=True)
        assert plain(found.to_pylist()) == plain(expected.to_pylist()), seed
    return number


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_random_values_are_read_and_written_as_pythons_json_does(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_random_values_are_read_and_written_as_pythons_json_does() -> None:
    assert sum(check(seed) for seed in range(12_500)) == 100_000
