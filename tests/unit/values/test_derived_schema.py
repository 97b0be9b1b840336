"""The Avro schema that a column gets is the one of Spark's `SchemaConverters.toAvroType`."""

import json

import pyarrow as pa
import pytest

from kafka_source.errors import InvalidConfigurationError
from kafka_source.values.derived_schema import avro_schema, json_schema

SCALARS: dict[str, pa.DataType] = {
    **{"s": pa.string(), "t": pa.int8(), "b": pa.binary(), "d": pa.decimal128(9, 2), "e": pa.decimal128(38, 10)},
    **{"day": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "loc": pa.timestamp("us"), "f": pa.float32()},
    **{"g": pa.float64(), "z": pa.bool_(), "sm": pa.int16(), "i": pa.int32(), "n": pa.null()},
}
INNER = pa.struct([("y", pa.string()), ("d", pa.decimal128(4, 1))])
NESTED = {
    "o": pa.struct([("x", pa.int32()), ("d", pa.decimal128(18, 4)), ("in", INNER)]),
    "l": pa.list_(pa.struct([("q", pa.int32())])),
    "m": pa.map_(pa.string(), pa.list_(pa.decimal128(5, 0))),
}

# Each with what `SchemaConverters.toAvroType` of spark-avro 4.1.1 gave for it.
FROM_SPARK = [
    (
        pa.struct(
            [pa.field("id", pa.int64(), nullable=False)] + [pa.field(n, t, n != "e") for n, t in SCALARS.items()]
        ),
        '{"type":"record","name":"topLevelRecord","fields":[{"name":"id","type":"long"},{"name":"s","type":["'
        'string","null"]},{"name":"t","type":["int","null"]},{"name":"b","type":["bytes","null"]},{"name":"d"'
        ',"type":[{"type":"fixed","name":"fixed","namespace":"topLevelRecord.d","size":4,"logicalType":"decim'
        'al","precision":9,"scale":2},"null"]},{"name":"e","type":{"type":"fixed","name":"fixed","namespace":'
        '"topLevelRecord.e","size":16,"logicalType":"decimal","precision":38,"scale":10}},{"name":"day","type'
        '":[{"type":"int","logicalType":"date"},"null"]},{"name":"at","type":[{"type":"long","logicalType":"t'
        'imestamp-micros"},"null"]},{"name":"loc","type":[{"type":"long","logicalType":"local-timestamp-micro'
        's"},"null"]},{"name":"f","type":["float","null"]},{"name":"g","type":["double","null"]},{"name":"z",'
        '"type":["boolean","null"]},{"name":"sm","type":["int","null"]},{"name":"i","type":["int","null"]},{"'
        'name":"n","type":"null"}]}',
    ),
    (
        pa.struct(list(NESTED.items())),
        '{"type":"record","name":"topLevelRecord","fields":[{"name":"o","type":[{"type":"record","name":"o","'
        'namespace":"topLevelRecord","fields":[{"name":"x","type":["int","null"]},{"name":"d","type":[{"type"'
        ':"fixed","name":"fixed","namespace":"topLevelRecord.o.d","size":8,"logicalType":"decimal","precision'
        '":18,"scale":4},"null"]},{"name":"in","type":[{"type":"record","name":"in","namespace":"topLevelReco'
        'rd.o","fields":[{"name":"y","type":["string","null"]},{"name":"d","type":[{"type":"fixed","name":"fi'
        'xed","namespace":"topLevelRecord.o.in.d","size":2,"logicalType":"decimal","precision":4,"scale":1},"'
        'null"]}]},"null"]}]},"null"]},{"name":"l","type":[{"type":"array","items":[{"type":"record","name":"'
        'l","namespace":"topLevelRecord","fields":[{"name":"q","type":["int","null"]}]},"null"]},"null"]},{"n'
        'ame":"m","type":[{"type":"map","values":[{"type":"array","items":[{"type":"fixed","name":"fixed","na'
        'mespace":"topLevelRecord.m","size":3,"logicalType":"decimal","precision":5,"scale":0},"null"]},"null'
        '"]},"null"]}]}',
    ),
]


@pytest.mark.parametrize(("kind", "text"), FROM_SPARK)
def test_it_is_sparks(kind: pa.DataType, text: str) -> None:
    assert json.loads(avro_schema(kind)) == json.loads(text)


def test_what_avro_cannot_have_is_named_by_its_path() -> None:
    nested = pa.struct([("items", pa.list_(pa.struct([("net price", pa.float64())])))])
    with pytest.raises(InvalidConfigurationError, match=r"Field items\[\]\.net price .* another name"):
        avro_schema(nested)
    with pytest.raises(InvalidConfigurationError, match="keys of a map"):
        avro_schema(pa.struct([("m", pa.map_(pa.int32(), pa.int32()))]))
    with pytest.raises(InvalidConfigurationError, match=r"Field t .* time64"):
        avro_schema(pa.struct([("t", pa.time64("ns"))]))


def test_a_json_schema_says_what_is_written_of_each_column() -> None:
    inner = pa.struct([pa.field("n", pa.int16(), nullable=False), ("at", pa.timestamp("us", tz="UTC"))])
    items = pa.list_(pa.field("element", inner, nullable=False))
    kind = pa.struct([pa.field("items", items, nullable=False), ("more", pa.map_(pa.string(), pa.decimal128(9, 2)))])
    written = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
        "additionalProperties": False,
        "required": ["n"],
    }
    assert json.loads(json_schema(kind)) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": written},
            "more": {"type": "object", "additionalProperties": {"oneOf": [{"type": "null"}, {"type": "number"}]}},
        },
        "additionalProperties": False,
        "required": ["items"],
    }
    with pytest.raises(InvalidConfigurationError, match=r"Field t .* no JSON type for duration"):
        json_schema(pa.struct([("t", pa.duration("us"))]))
